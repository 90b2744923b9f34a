//! The report against manual computations, and the errors of invalid input.

mod support;

use burn::tensor::{DType, Tensor, TensorData};
use lsoftmax::{HeadError, LambdaError, Report, ShapeError};
use support::batch::exact;
use support::way::values;
use support::{Batch, Setup, Way, definition};

const WAYS: [Way; 3] = [Way::Fused, Way::Composed, Way::ComposedF64];

/// Five samples of class 0 at 0°, 30°, 60°, 120° and 180°, of lengths 1 to 5. The second class is at 90°
/// and a little longer; the third sample leans towards it, the fourth away from it.
fn five() -> Batch {
    let at = |degrees: f64, length: f64| {
        let angle = degrees.to_radians();
        [length * angle.cos(), length * angle.sin()]
    };
    let features = [[1.0, 0.0], at(30.0, 2.0), at(60.0, 3.0), at(-120.0, 4.0), [-5.0, 0.0]];
    let features: Vec<&[f64]> = features.iter().map(|x| x.as_slice()).collect();
    Batch::new(&features, &[&[1.0, 0.0], &[0.0, 1.1]], &[0; 5]).with_margin(2.0)
}

fn report(way: Way, batch: &Batch) -> Report {
    Setup::new(way, batch).output().report().unwrap()
}

fn assert_near(what: &str, found: f64, expected: f64) {
    // Angles in degrees and norms up to 180, from numbers that f32 has rounded.
    assert!((found - expected).abs() < 2e-5, "{what} is {found} and not {expected}");
}

#[test]
fn without_a_margin_samples_outside_it_are_correct_in_bf16_too() {
    for seed in 0..20 {
        let batch = Batch::random(seed, 400, 16, 30).with_margin(1.0);
        for way in [Way::Fused, Way::FusedBf16, Way::Composed] {
            let found = report(way, &batch);
            assert!((1.0 - found.accuracy - found.inside_margin).abs() < 1e-12, "{way:?}");
        }
    }
}

#[test]
fn every_entry_matches_a_manual_computation() {
    for way in WAYS {
        let found = report(way, &five());
        assert_eq!((found.samples, found.margin.value(), found.lambda), (5, 2.0, 0.0));
        let theta = found.theta;
        assert_near("mean", theta.mean, 78.0);
        // Positions 0.2, 1, 2, 3 and 3.8 in 0, 30, 60, 120, 180.
        assert_near("p5", theta.p5, 6.0);
        assert_near("p25", theta.p25, 30.0);
        assert_near("p50", theta.p50, 60.0);
        assert_near("p75", theta.p75, 120.0);
        assert_near("p95", theta.p95, 168.0);
        assert_eq!(found.k, [3, 2], "{way:?}: up to 90°, and above");
        let norms = found.feature_norm;
        assert_near("shortest", norms.min, 1.0);
        assert_near("mean", norms.mean, 3.0);
        assert_near("longest", norms.max, 5.0);
        assert_near("shortest weight", found.weight_norm.min, 1.0);
        assert_near("longest weight", found.weight_norm.max, 1.1);
        // Divided by |x|, the cosine is 1, .87, .5, −.5, −1 and the other logit 0, .55, .95, −.95, 0:
        // three are correct. ψ is 1, .5, −.5, −1.5, −3: only the first sample is outside the margin.
        assert_eq!((found.accuracy, found.inside_margin), (0.6, 0.8), "{way:?}");
        assert_eq!(found.margin_accuracy, 0.2, "{way:?}: λ is 0");
        let losses = definition::losses(&five());
        assert_near("loss", found.loss, losses.iter().sum::<f64>() / 5.0);
    }
}

/// λ changes the loss of the step, but not what counts as inside the margin; a bias counts in both.
#[test]
fn inside_the_margin_means_the_full_margin_with_the_bias() {
    for way in WAYS {
        let annealed = report(way, &five().with_lambda(1e6));
        assert_eq!((annealed.lambda, annealed.accuracy, annealed.inside_margin), (1e6, 0.6, 0.8));
        // ψ|x| + b against the other logit: 1.2 > 0, 1.2 > 1.1, −1.3 < 2.86, −5.8 < −3.8, −14.8 < 0.
        let biased = Batch { bias: Some(vec![0.2, 0.0]), ..five() };
        assert_eq!(report(way, &biased).inside_margin, 0.6, "{way:?}");
        let biased = Batch { bias: Some(vec![-20.0, 0.0]), ..five() };
        let lost = report(way, &biased);
        assert_eq!((lost.accuracy, lost.inside_margin), (0.0, 1.0), "{way:?}");
    }
}

/// The mean of cosine and ψ is 1, .68, 0, −1, −2 at λ = 1, and the other logit 0, .55, .95, −.95, 0: the
/// first two samples win.
#[test]
fn the_accuracy_under_the_margin_is_that_of_the_blended_logit() {
    for way in WAYS {
        assert_eq!(report(way, &five().with_lambda(1.0)).margin_accuracy, 0.4, "{way:?}");
        // With a bias of −0.2 on its logit, 1.37 − 0.2 > 1.1 still, but with −0.3 no longer.
        for (bias, expected) in [(-0.2, 0.4), (-0.3, 0.2)] {
            let biased = Batch { bias: Some(vec![bias, 0.0]), ..five().with_lambda(1.0) };
            assert_eq!(report(way, &biased).margin_accuracy, expected, "{way:?}");
        }
    }
}

#[test]
fn the_accuracy_under_the_margin_matches_the_definition_and_its_limits() {
    for seed in 0..20 {
        let margin = [1.0, 1.5, 2.0, 3.0, 4.0][seed as usize % 5];
        // Near their classes, so that the margin decides for some samples.
        let angles: Vec<f64> = (0..300).map(|i| f64::from(i) / 200.0).collect();
        let batch = Batch::at_angles(seed, &angles, 6, 9, 2.0);
        let batch = batch.with_margin(margin).with_bias(seed % 2 == 0);
        for lambda in [0.0, 0.3, 2.0, 20.0, 1e12] {
            let batch = batch.clone().with_lambda(lambda);
            let wins = |sample: &usize| {
                let logits = definition::logits(&batch, *sample);
                let label = batch.labels[*sample];
                let others = logits.iter().enumerate().filter(|(class, _)| *class != label);
                others.into_iter().all(|(_, logit)| *logit < logits[label])
            };
            let expected = (0..batch.samples()).filter(wins).count() as f64 / 300.0;
            for way in WAYS {
                let found = report(way, &batch);
                let what = format!("m = {margin}, λ = {lambda}, {way:?}");
                assert!((found.margin_accuracy - expected).abs() < 1e-12, "{what}");
                assert!(found.margin_accuracy <= found.accuracy, "{what}");
                if margin == 1.0 || lambda == 1e12 {
                    assert_eq!(found.margin_accuracy, found.accuracy, "{what}");
                }
                if lambda == 0.0 {
                    let outside = 1.0 - found.inside_margin;
                    assert!((found.margin_accuracy - outside).abs() < 1e-12, "{what}");
                }
            }
        }
    }
}

/// A tie goes to the first class, with and without a margin of 1.
#[test]
fn without_a_margin_both_accuracies_treat_ties_alike() {
    let batch = Batch::new(&[&[1.0], &[1.0]], &[&[1.0], &[1.0]], &[0, 1]);
    for way in [Way::Fused, Way::FusedBf16, Way::Composed, Way::ComposedF64] {
        let found = report(way, &batch);
        assert_eq!((found.accuracy, found.margin_accuracy), (0.5, 0.5), "{way:?}");
    }
}

#[test]
fn the_report_is_the_same_for_every_implementation() {
    for seed in 0..20 {
        let batch =
            Batch::random(seed, 37, 9, 150).with_bias(true).with_margin(4.0).with_lambda(2.0);
        let exact = report(Way::ComposedF64, &batch);
        for way in [Way::Fused, Way::Composed] {
            let found = report(way, &batch);
            assert_eq!(
                (found.k.clone(), found.accuracy),
                (exact.k.clone(), exact.accuracy),
                "{way:?}"
            );
            assert_eq!(found.inside_margin, exact.inside_margin, "{way:?}");
            assert_eq!(found.margin_accuracy, exact.margin_accuracy, "{way:?}");
            let numbers = |r: &Report| {
                let (t, x, w) = (r.theta, r.feature_norm, r.weight_norm);
                let angles = [t.mean, t.p5, t.p25, t.p50, t.p75, t.p95];
                [&angles[..], &[x.min, x.mean, x.max, w.min, w.max, r.loss]].concat()
            };
            for (found, exact) in numbers(&found).iter().zip(numbers(&exact)) {
                assert_near(&format!("{way:?}"), *found, exact);
            }
        }
    }
}

/// The cosine of parallel vectors may be rounded beyond ±1, where the arc cosine is undefined.
#[test]
fn parallel_samples_have_an_angle() {
    let mut batch = Batch::random(52, 200, 7, 100).with_margin(3.0);
    batch.labels = (0..200).map(|i| i / 2).collect();
    let against = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
    batch.features = (0..200)
        .flat_map(|i| {
            batch.weight(i / 2).iter().map(move |w| exact(w * 3.3 * against(i))).collect::<Vec<_>>()
        })
        .collect();
    for way in WAYS {
        let found = report(way, &batch);
        assert_eq!(found.k, [100, 0, 100], "{way:?}");
        // 3.3·w has a relative rounding error of 1e-7, which causes an angle of that size.
        for (what, found, expected) in [
            ("p5", found.theta.p5, 0.0),
            ("p95", found.theta.p95, 180.0),
            ("mean", found.theta.mean, 90.0),
        ] {
            assert_near(&format!("{what} ({way:?})"), found, expected);
        }
    }
}

/// A sample with an undefined angle counts as one at 90°.
#[test]
fn a_sample_with_an_undefined_angle_counts_as_90_degrees() {
    let batch = Batch::new(&[&[0.0, 0.0]], &[&[1.0, 2.0], &[0.5, 0.0]], &[1]).with_margin(3.0);
    for way in WAYS {
        let found = report(way, &batch);
        assert_eq!((found.theta.mean, found.theta.p5, found.theta.p95), (90.0, 90.0, 90.0));
        assert_eq!((found.k.as_slice(), found.feature_norm.max), (&[0, 1, 0][..], 0.0));
        // Both scores are 0, and a tie goes to the first class.
        assert_eq!((found.accuracy, found.inside_margin), (0.0, 1.0));
    }
}

#[test]
fn a_single_class_and_a_single_sample_have_a_report() {
    let batch = Batch::new(&[&[0.0, -2.0]], &[&[0.0, 1.0]], &[0]).with_margin(4.0);
    for way in WAYS {
        let found = report(way, &batch);
        assert_eq!((found.accuracy, found.inside_margin, found.loss), (1.0, 0.0, 0.0), "{way:?}");
        assert_eq!((found.theta.p5, found.theta.p50, found.k), (180.0, 180.0, vec![0, 0, 0, 1]));
    }
}

/// The error of the head, from the forward pass or, if composed, from the report.
fn refused(way: Way, batch: &Batch) -> HeadError {
    let setup = Setup::new(way, batch);
    let result = setup.forward().and_then(|output| output.report());
    result.expect_err(&format!("{way:?} accepts {batch:?}"))
}

/// A batch with more classes than a tile of any kernel, some of them without samples.
fn many_classes() -> Batch {
    let batch = Batch::random(51, 6, 5, 400).with_bias(true).with_margin(4.0);
    Batch { labels: vec![3, 0, 399, 3, 200, 7], ..batch }
}

#[test]
fn the_first_invalid_feature_is_named() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for way in WAYS {
            for (sample, index) in [(0, 0), (2, 4), (5, 1)] {
                let mut batch = many_classes();
                batch.features[sample * 5 + index] = bad;
                // A later one, or an invalid weight, does not change which one is reported.
                batch.features[5 * 5 + 4] = f64::NAN;
                batch.weights[17] = f64::NAN;
                let error = refused(way, &batch);
                let HeadError::Feature { sample: s, index: i, value } = error else {
                    panic!("{way:?}: {error}")
                };
                assert_eq!((s, i), (sample, index), "{way:?}");
                assert!(value == bad || value.is_nan() && bad.is_nan(), "{way:?}: {value}");
            }
        }
    }
}

#[test]
fn the_first_invalid_weight_is_named() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for way in WAYS {
            // Of a label, of a class without samples, and of the last class.
            for (class, index) in [(0, 0), (3, 2), (17, 4), (250, 1), (399, 3)] {
                let mut batch = many_classes();
                batch.weights[class * 5 + index] = bad;
                batch.bias.as_mut().unwrap()[0] = f64::NAN;
                let error = refused(way, &batch);
                let HeadError::Weight { class: c, index: i, .. } = error else {
                    panic!("{way:?}: {error}")
                };
                assert_eq!((c, i), (class, index), "{way:?}");
            }
        }
    }
}

/// −∞ gives a class probability 0, which could be mistaken for a small probability.
#[test]
fn the_first_invalid_bias_is_named() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for way in WAYS {
            for class in [0, 3, 17, 250, 399] {
                let mut batch = many_classes();
                batch.bias.as_mut().unwrap()[class] = bad;
                let error = refused(way, &batch);
                let HeadError::Bias { class: c, .. } = error else { panic!("{way:?}: {error}") };
                assert_eq!(c, class, "{way:?}");
            }
        }
    }
}

#[test]
fn a_loss_that_overflows_names_the_sample_and_both_norms() {
    let batch = Batch::new(
        &[&[1.0, 0.0], &[-3e30, 4e30], &[3e30, 0.0]],
        &[&[6e25, 8e25], &[-6e25, 0.0]],
        &[0, 0, 1],
    );
    for way in [Way::Fused, Way::Composed] {
        for margin in [1.0, 2.0, 2.5] {
            let error = refused(way, &batch.clone().with_margin(margin));
            let HeadError::Loss { sample, value, feature_norm, weight_norm } = error else {
                panic!("{way:?}: {error}")
            };
            assert!(!value.is_finite());
            let norms = (feature_norm / 5e30 - 1.0).abs() + (weight_norm / 1e26 - 1.0).abs();
            assert!(sample == 1 && norms < 1e-5, "{way:?}: {sample} {feature_norm} {weight_norm}");
        }
    }
    // It does not overflow in f64.
    assert!(report(Way::ComposedF64, &batch).loss.is_finite());
}

#[test]
fn a_label_out_of_range_is_rejected() {
    let classes = many_classes().classes;
    for way in WAYS {
        let setup = Setup::new(way, &many_classes());
        for bad in [-1, -400, 400, 401, i64::MAX, i64::MIN, 1 << 32, (1 << 32) + 3] {
            let data = TensorData::new(vec![3, 0, 399, 3, bad, -7], [6]);
            let labels = Tensor::from_data(data, (&setup.features.device(), DType::I64));
            let result = setup.head.forward(setup.features.clone(), labels, 0.0);
            let expected = ShapeError::Label { sample: 4, label: bad, classes };
            assert_eq!(result.unwrap_err(), HeadError::Shape(expected), "{way:?}");
        }
    }
}

#[test]
fn mismatched_sizes_are_rejected() {
    for way in WAYS {
        let setup = Setup::new(way, &many_classes());
        let forward = |features, labels| setup.head.forward(features, labels, 0.0).unwrap_err();
        let (features, named) = (setup.features.clone(), setup.labels.clone());
        assert_eq!(
            forward(features.clone().slice([0..6, 0..4]), named.clone()),
            HeadError::Features { expected: 5, found: 4 }
        );
        assert_eq!(
            forward(features.clone().narrow(0, 0, 5), named.clone()),
            HeadError::Labels { samples: 5, labels: 6 }
        );
        assert_eq!(
            forward(features.clone(), named.clone().narrow(0, 0, 1)),
            HeadError::Labels { samples: 6, labels: 1 }
        );
        let none = ShapeError::Empty { samples: 0, features: 5, classes: 400 };
        let empty = Tensor::empty([0, 5], (&features.device(), way.dtype()));
        let no_labels = Tensor::empty([0], &features.device());
        assert_eq!(forward(empty, no_labels), HeadError::Shape(none));
    }
}

#[test]
fn an_invalid_lambda_is_rejected() {
    for way in WAYS {
        for bad in [-1e-12, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = Setup::new(way, &many_classes().with_lambda(bad)).forward().unwrap_err();
            let HeadError::Lambda(LambdaError::Value(value)) = error else { panic!("{error}") };
            assert_eq!(value.to_bits(), bad.to_bits());
        }
        let good = Setup::new(way, &many_classes().with_lambda(f64::MAX)).output();
        assert!(values(good.loss)[0].is_finite(), "{way:?}");
    }
}

#[test]
fn errors_say_what_to_do() {
    let message = |edit: fn(&mut Batch)| {
        let mut batch = many_classes();
        edit(&mut batch);
        refused(Way::Fused, &batch).to_string()
    };
    let feature = message(|b| b.features[7] = f64::NAN);
    assert!(
        feature.starts_with("feature 2 of sample 1 is NaN: the network before the head"),
        "{feature}"
    );
    let weight = message(|b| b.weights[7] = f64::INFINITY);
    assert!(
        weight.starts_with("weight 2 of class 1 is inf: the last update was not finite"),
        "{weight}"
    );
    let bias = message(|b| b.bias.as_mut().unwrap()[9] = f64::NAN);
    assert!(
        bias.starts_with("the bias of class 9 is NaN: the last update was not finite"),
        "{bias}"
    );
}
