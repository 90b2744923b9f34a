//! A-Softmax, CosFace, ArcFace and NormSoftmax: losses and gradients against their definitions in f64, at
//! generic and at singular points, and the invariances that normalisation promises.

mod support;

use std::f64::consts::PI;

use burn::tensor::{DType, Device, Tensor};
use lsoftmax::{
    AdditiveMargin, AngularMargin, ArcFaceConfig, CombinedMargin, Continuation, CosFaceConfig,
    CosineMargin, Execution, Margin, NormSoftmaxConfig, Normalisation, Precision,
};
use lsoftmax_testing::{assert_close_to_scale, largest};
use support::family::{
    AnyMargin, Batch, compute, definition, differences, for_every_head, ways, with_margin,
};

#[test]
fn losses_and_gradients_agree_with_the_definition() {
    for seed in 1..4 {
        let batch = Batch::random(seed, 5, 6, 4);
        for_every_head(|name, defined, computed| {
            for lambda in [0.0, 5.0] {
                let expected = differences(|batch| defined(batch, lambda), &batch);
                for (execution, dtype, tolerance) in ways() {
                    let what = format!("{name}, λ {lambda}, {execution:?}, {dtype:?}");
                    let found = computed(&batch, lambda, false, (execution, dtype));
                    let loss = defined(&batch, lambda);
                    assert!(
                        (found.loss - loss).abs() < tolerance * loss.max(1.0),
                        "{what}: {loss}"
                    );
                    let close = |part: &str, found: &[f64], expected: &[f64]| {
                        assert_close_to_scale(
                            &format!("{what}, {part}"),
                            found,
                            expected,
                            4.0 * tolerance,
                            1e-30,
                        );
                    };
                    close("features", &found.features, &expected[0]);
                    close("weights", &found.weights, &expected[1]);
                }
            }
        });
    }
}

#[test]
fn fused_in_bf16_agrees_as_far_as_eight_bits_go() {
    // Products of 64 numbers: the largest gradient stands out of the rounding.
    let batch = Batch::random(4, 8, 64, 20);
    for_every_head(|name, defined, computed| {
        let way = (Execution::new(Precision::Bf16), DType::F32);
        let found = computed(&batch, 1.0, false, way);
        let f32 = computed(&batch, 1.0, false, (Execution::new(Precision::F32), DType::F32));
        let loss = defined(&batch, 1.0);
        assert!((found.loss - loss).abs() < 0.02 * loss.max(1.0), "{name}: {}, {loss}", found.loss);
        for (part, found, expected) in [
            ("features", &found.features, &f32.features),
            ("weights", &found.weights, &f32.weights),
        ] {
            assert_close_to_scale(&format!("{name}, {part}"), found, expected, 0.03, 1e-30);
        }
    });
}

/// Angles at which a formula could break: both sides of the knots of ψ, of a right angle and of ArcFace's last angle,
/// and almost the same and the opposite direction. (Across a knot the slope is continuous but bent, and differences are not
/// accurate.)
#[test]
fn gradients_agree_with_differences_at_hard_angles() {
    let knots = [PI / 4.0, PI / 3.0, PI / 2.0, 2.0 * PI / 3.0, 3.0 * PI / 4.0, PI - 0.5];
    let beside = knots.into_iter().flat_map(|knot| [knot - 0.01, knot + 0.01]);
    for theta in beside.chain([0.02, PI - 0.02]) {
        let batch = at_angle(theta, 1.7);
        for_every_head(|name, defined, computed| {
            let expected = differences(|batch| defined(batch, 0.0), &batch);
            for (execution, dtype, tolerance) in ways() {
                // In f32 so small an angle to ±W has lost some of its digits.
                let lost = if dtype == DType::F32 && theta.sin() < 0.1 { 100.0 } else { 1.0 };
                let tolerance = lost * 10.0 * tolerance + 1e-6;
                let found = computed(&batch, 0.0, false, (execution.clone(), dtype));
                let what = format!("{name} at {theta}, {execution:?}, {dtype:?}");
                let close = |part: &str, found: &[f64], expected: &[f64]| {
                    let what = format!("{what}, {part}");
                    assert_close_to_scale(&what, found, expected, tolerance, 1e-3);
                };
                close("features", &found.features, &expected[0]);
                close("weights", &found.weights, &expected[1]);
            }
        });
    }
}

#[test]
fn a_normalised_vector_of_zeros_has_the_cosine_0_and_no_gradient() {
    for_every_head(|name, defined, computed| {
        if name.contains("free") {
            return;
        }
        for (execution, dtype, tolerance) in ways() {
            for class in [0, 1] {
                let mut batch = Batch::random(3, 2, 5, 3);
                batch.labels = vec![0, 2];
                batch.weights[5 * class..][..5].fill(0.0);
                let what = format!("{name}, class {class}, {execution:?}, {dtype:?}");
                let found = computed(&batch, 0.0, false, (execution.clone(), dtype));
                assert!(found.weights[5 * class..][..5].iter().all(|g| *g == 0.0), "{what}");
                // Of another class the definition agrees: a cosine of 0.
                if class == 1 {
                    let expected = defined(&batch, 0.0);
                    let close =
                        (found.loss - expected).abs() < 10.0 * tolerance * expected.max(1.0);
                    assert!(close, "{what}: {}, {expected}", found.loss);
                }
            }
            if !name.starts_with("A-Softmax") {
                let mut batch = Batch::random(3, 2, 5, 3);
                batch.features[..5].fill(0.0);
                let found = computed(&batch, 0.0, false, (execution.clone(), dtype));
                assert!(
                    found.features[..5].iter().all(|g| *g == 0.0),
                    "{name}: {:?}",
                    found.features
                );
            }
        }
    });
}

#[derive(serde::Deserialize)]
struct Cases {
    cases: Vec<Case>,
}

/// A case of `heads.json`.
#[derive(serde::Deserialize)]
struct Case {
    name: String,
    head: String,
    margin: f64,
    scale: Option<f64>,
    lambda: f64,
    features: Vec<Vec<f64>>,
    weights: Vec<Vec<f64>>,
    labels: Vec<usize>,
    loss: f64,
    grad_features: Vec<Vec<f64>>,
    grad_weights: Vec<Vec<f64>>,
}

#[test]
fn every_reference_case_agrees() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../reference/fixtures/heads.json");
    let text = std::fs::read_to_string(path).unwrap();
    let Cases { cases } = serde_json::from_str(&text).unwrap();
    assert!(cases.len() > 30, "{}", cases.len());
    for case in cases {
        let batch = Batch {
            depth: case.weights[0].len(),
            features: case.features.concat(),
            weights: case.weights.concat(),
            labels: case.labels,
        };
        let normalisation = match case.scale {
            Some(scale) => Normalisation::Both { scale },
            None => Normalisation::Weights,
        };
        let margin = match case.head.as_str() {
            "cosface" => AnyMargin::Subtracted(CosineMargin::new(case.margin).unwrap()),
            "arcface" => AnyMargin::Added(AdditiveMargin::new(case.margin).unwrap()),
            _ => AnyMargin::Multiplied(Margin::new(case.margin).unwrap()),
        };
        // pytorch-metric-learning keeps cosines 1e-7 away from ±1.
        let theirs = if case.name.contains("metric") { 1e-5 } else { 0.0 };
        for (execution, dtype, tolerance) in ways() {
            let what = |part: &str| format!("{}, {dtype:?}, {part}", case.name);
            let found = with_margin!(&margin, |margin| compute(
                &batch,
                margin,
                normalisation,
                case.lambda,
                false,
                (execution.clone(), dtype)
            ));
            let tolerance = 4.0 * tolerance + theirs;
            let close = |part: &str, found: &[f64], expected: &[f64]| {
                assert_close_to_scale(&what(part), found, expected, tolerance, 1e-30);
            };
            close("loss", &[found.loss], &[case.loss]);
            close("features", &found.features, &case.grad_features.concat());
            close("weights", &found.weights, &case.grad_weights.concat());
        }
    }
}

#[test]
fn a_learned_scale_has_the_gradient_of_the_definition() {
    let batch = Batch::random(9, 6, 5, 4);
    let margin = AdditiveMargin::new(0.3).unwrap();
    let loss =
        |log: f64| definition(&batch, &margin, Normalisation::Both { scale: log.exp() }, 0.0);
    let (log, step) = (8f64.ln(), 1e-4);
    let expected = (loss(log + step) - loss(log - step)) / (2.0 * step);
    for (execution, dtype, tolerance) in ways().into_iter().skip(1) {
        let scale = Normalisation::Both { scale: 8.0 };
        let found = compute(&batch, &margin, scale, 0.0, true, (execution, dtype));
        let found = found.scale.expect("the scale's gradient");
        assert!((found - expected).abs() < 10.0 * tolerance, "{found}, not {expected}");
    }
}

/// A sample of class 0 at an angle to its class, whose weights are (1, 0).
fn at_angle(theta: f64, length: f64) -> Batch {
    Batch {
        features: vec![length * theta.cos(), length * theta.sin()],
        weights: vec![1.0, 0.0, -0.3, 0.9],
        labels: vec![0],
        depth: 2,
    }
}

#[test]
fn everything_is_finite_at_singular_points() {
    let mut batches = Vec::new();
    for theta in [0.0, 1e-9, PI / 2.0, PI - 0.5, PI - 1e-9, PI, PI / 3.0, 2.0 * PI / 3.0] {
        for length in [1.0, 1e-20, 1e15] {
            batches.push(at_angle(theta, length));
        }
    }
    let mut zero = at_angle(1.0, 1.0);
    zero.features.fill(0.0);
    batches.push(zero);
    for class in [0, 1] {
        for length in [0.0, 1e-25, 1e15] {
            let mut batch = at_angle(1.0, 1.0);
            batch.weights[2 * class..][..2].iter_mut().for_each(|w| *w *= length);
            batches.push(batch);
        }
    }
    let mut one_class = at_angle(1.0, 1.0);
    one_class.weights.truncate(2);
    batches.push(one_class);
    for (index, batch) in batches.iter().enumerate() {
        for_every_head(|name, _, computed| {
            // With free norms, products of huge lengths overflow: that is an error, tested elsewhere.
            if name.contains("free") {
                return;
            }
            for (execution, dtype, _) in ways() {
                let what = format!("{name}, batch {index}, {execution:?}, {dtype:?}");
                let found = computed(batch, 0.0, false, (execution, dtype));
                assert!(found.loss.is_finite(), "{what}");
                let all = found.features.iter().chain(&found.weights);
                assert!(all.clone().all(|g| g.is_finite()), "{what}: {all:?}");
            }
        });
    }
}

#[test]
fn the_length_of_a_normalised_vector_does_not_matter_and_gradients_are_orthogonal_to_it() {
    let batch = Batch::random(5, 6, 7, 5);
    let mut scaled = batch.clone();
    scaled.weights[7..14].iter_mut().for_each(|w| *w *= 37.0);
    scaled.features[14..21].iter_mut().for_each(|x| *x *= 0.03);
    let margin = AdditiveMargin::new(0.5).unwrap();
    let both = Normalisation::Both { scale: 8.0 };
    for (execution, dtype, tolerance) in ways() {
        let way = || (execution.clone(), dtype);
        let found = compute(&batch, &margin, both, 0.0, false, way());
        let other = compute(&scaled, &margin, both, 0.0, false, way());
        assert!((found.loss - other.loss).abs() < tolerance, "{dtype:?}");
        for (gradient, vectors) in
            [(&found.features, &batch.features), (&found.weights, &batch.weights)]
        {
            for (g, v) in gradient.chunks_exact(7).zip(vectors.chunks_exact(7)) {
                let dot: f64 = g.iter().zip(v).map(|(g, v)| g * v).sum();
                assert!(dot.abs() <= tolerance * largest(g).max(1e-12) * largest(v) * 7.0, "{dot}");
            }
        }
    }
}

#[test]
fn without_margins_the_combined_head_is_normalised_softmax_to_the_bit() {
    let batch = Batch::random(6, 9, 16, 11);
    let both = Normalisation::Both { scale: 16.0 };
    for (execution, dtype, _) in ways() {
        let way = || (execution.clone(), dtype);
        let none = CombinedMargin::new(1.0, 0.0, 0.0).unwrap();
        let combined = compute(&batch, &none, both, 0.0, false, way());
        let softmax = compute(&batch, &Margin::ONE, both, 0.0, false, way());
        assert_eq!(combined.loss, softmax.loss);
        assert_eq!(combined.features, softmax.features);
        assert_eq!(combined.weights, softmax.weights);
    }
}

#[test]
fn the_combined_margin_has_the_others_as_special_cases() {
    let arc = AdditiveMargin::new(0.4).unwrap().with_continuation(Continuation::None);
    type ValueAndSlope<'a> = &'a dyn Fn(f64) -> (f64, f64);
    let cases: [(CombinedMargin, ValueAndSlope<'_>); 3] = [
        (CombinedMargin::new(1.0, 0.4, 0.0).unwrap(), &|cos| arc.value_and_slope(cos)),
        (CombinedMargin::new(1.0, 0.0, 0.35).unwrap(), &|cos| {
            CosineMargin::new(0.35).unwrap().value_and_slope(cos)
        }),
        // Up to π/m, where ψ leaves the cosine.
        (CombinedMargin::new(2.0, 0.0, 0.0).unwrap(), &|cos| {
            Margin::new(2).unwrap().value_and_slope(cos)
        }),
    ];
    for (combined, special) in cases {
        for step in 1..50 {
            let cos = (f64::from(step) / 50.0 * PI / 2.0).cos();
            let ((value, slope), (expected, expected_slope)) =
                (combined.value_and_slope(cos), special(cos));
            assert!((value - expected).abs() < 1e-12, "{combined:?} at {cos}");
            assert!(
                (slope - expected_slope).abs() < 1e-9 * slope.abs().max(1.0),
                "{combined:?} at {cos}"
            );
        }
    }
}

#[test]
fn arcface_continues_linearly_past_its_last_angle() {
    let margin = AdditiveMargin::new(0.5).unwrap();
    let at = |theta: f64| margin.value_and_slope(theta.cos());
    assert!((at(PI - 0.6).0 - (PI - 0.1).cos()).abs() < 1e-12);
    let (value, slope) = at(PI - 0.4);
    assert!((value - ((PI - 0.4).cos() - 0.5 * 0.5f64.sin())).abs() < 1e-12);
    assert_eq!(slope, 1.0);
    // The larger the angle, the smaller the logit, at every angle.
    let mut last = f64::INFINITY;
    for step in 0..=1000 {
        let (value, _) = at(PI * f64::from(step) / 1000.0);
        assert!(value < last, "at {step}");
        last = value;
    }
}

#[test]
fn inference_has_neither_label_nor_margin_and_ignores_lengths() {
    let device = Device::flex();
    let head = ArcFaceConfig::new(3, 4).with_scale(10.0).init(&device);
    let features = Tensor::<2>::from_floats([[3.0, 0.0, 4.0], [0.3, 0.0, 0.4]], &device);
    let scores: Vec<f32> = head.logits(features.clone()).into_data().iter().collect();
    let (first, second) = scores.split_at(4);
    for (a, b) in first.iter().zip(second) {
        assert!((a - b).abs() < 1e-5 && a.abs() <= 10.0 + 1e-4, "{a} {b}");
    }
    // The linear layer has the same scores for features of length s.
    let linear = head.to_linear().forward(features.slice([0..1, 0..3]).mul_scalar(2.0));
    let linear: Vec<f32> = linear.into_data().iter().collect();
    for (a, b) in first.iter().zip(&linear) {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
}

#[test]
fn the_defaults_are_those_of_the_papers() {
    assert_eq!(CosFaceConfig::new(2, 2).margin.value(), 0.35);
    assert_eq!(ArcFaceConfig::new(2, 2).margin.value(), 0.5);
    assert_eq!(ArcFaceConfig::new(2, 2).scale, Some(64.0));
    assert_eq!(NormSoftmaxConfig::new(2, 2).scale, Some(20.0));
    assert_eq!(lsoftmax::ASoftmaxConfig::new(2, 2).margin.value(), 4.0);
}

#[test]
fn numbers_that_are_no_margins_are_refused_with_the_rule() {
    for wrong in [-0.1, 3.2, f64::NAN, f64::INFINITY] {
        let message = AdditiveMargin::new(wrong).unwrap_err().to_string();
        assert!(message.contains("from 0 to below π"), "{message}");
        assert!(CosineMargin::new(wrong).is_err(), "{wrong}");
        assert!(CombinedMargin::new(1.0, wrong, 0.0).is_err(), "{wrong}");
    }
    assert!(CombinedMargin::new(0.5, 0.0, 0.0).is_err());
}
