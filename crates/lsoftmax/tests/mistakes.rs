//! One test for each known mistake of earlier implementations of this loss.

mod support;

use std::f64::consts::{FRAC_PI_2, PI};

use burn::module::{Initializer, Module};
use burn::optim::decay::WeightDecayConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{GradientsParams, SgdConfig};
use burn::store::ModuleRecord;
use burn::tensor::{Device, Distribution, Tensor};
use lsoftmax::{LSoftmaxConfig, LambdaSchedule, Margin};
use support::batch::norm;
use support::way::values;
use support::{
    Batch, MARGINS, Run, Setup, Way, assert_close, assert_finite, assert_gradients_close,
    assert_same_bits, definition,
};

const WAYS: [Way; 3] = [Way::Fused, Way::Composed, Way::ComposedF64];

fn batch() -> Batch {
    Batch::random(41, 9, 6, 5).with_bias(true).with_margin(4.0).with_lambda(0.5)
}

/// With θ = 90°, |x| = |W| = 1 and m = 2, ψ = −1, and the other logit is 1 for every λ. If it were scaled
/// by λ/(1 + λ), it would be 0 for λ = 0.
#[test]
fn mistake_01_non_label_logits_scaled_by_lambda() {
    let batch = Batch::new(&[&[1.0, 0.0]], &[&[0.0, 1.0], &[1.0, 0.0]], &[0]).with_margin(2.0);
    for (lambda, label_logit) in [(0.0, -1.0), (1.0, -0.5), (3.0, -0.25), (999.0, -0.001)] {
        let expected = (1.0f64 - label_logit).exp().ln_1p();
        for way in WAYS {
            let found = Run::new(way, &batch.clone().with_lambda(lambda)).loss;
            assert!(
                (found - expected).abs() < 1e-6,
                "λ = {lambda} ({way:?}): {found}, not {expected}"
            );
        }
    }
}

/// λ is an argument and the head has no step counter: forward passes, evaluations and gradient
/// accumulation do not affect its loss, and a record contains only weights and bias.
#[test]
fn mistake_02_lambda_counted_in_forward_passes() {
    for way in WAYS {
        let setup = Setup::new(way, &batch());
        let first = values(setup.output().losses);
        for pass in 0..50 {
            let other = f64::from(pass);
            let (features, labels) = (setup.features.clone(), setup.labels.clone());
            setup.head.forward(features, labels, other).unwrap();
            setup.output().loss.backward();
        }
        assert_same_bits(&format!("{way:?}"), &values(setup.output().losses), &first);
        assert_eq!(setup.head.clone().into_record().len(), 2);
    }
    // A schedule gives the same λ for a step however often it is evaluated, and after a restart.
    let schedule = LambdaSchedule::power(1000.0, 0.12, 1.0, 5.0).unwrap();
    let text = serde_json::to_string(&schedule).unwrap();
    let first = schedule.at(300);
    (0..1000).for_each(|_| assert_eq!(schedule.at(300), first));
    assert_eq!(serde_json::from_str::<LambdaSchedule>(&text).unwrap().at(300), first);
}

/// Zero, subnormal and parallel vectors: cosines of 0/0, and cosines rounded beyond ±1.
#[test]
fn mistake_03_no_guard_for_zero_vectors_and_cosines_beyond_one() {
    for margin in MARGINS {
        let mut batch = Batch::random(43, 60, 7, 6).with_margin(margin);
        batch.labels = (0..60).map(|i| i % 6).collect();
        let weights = batch.weights.clone();
        for (i, feature) in batch.features.chunks_mut(7).enumerate() {
            let own = &weights[i % 6 * 7..][..7];
            let factor = [0.0, 1e-45, 0.1, -0.3, 1.7, -1e-30][i / 10];
            feature.iter_mut().zip(own).for_each(|(x, w)| *x = f64::from((w * factor) as f32));
        }
        batch.weights[..7].fill(0.0);
        for way in Way::ALL {
            let run = Run::new(way, &batch);
            let what = format!("margin {margin} ({way:?})");
            assert!(run.losses.iter().all(|loss| loss.is_finite()), "{what}: {:?}", run.losses);
            assert_finite(&what, &run.gradients);
        }
    }
}

/// At cos θ = −1, k is m − 1, that of the last interval, and the logit (1 − 2m)|W||x|; with k = 0 it would
/// be ±|W||x|. Just before and after every knot, k follows from the angle.
#[test]
fn mistake_04_k_read_one_past_the_table_and_zero_at_its_end() {
    for m in 1..=16u32 {
        let margin = f64::from(m);
        let against =
            Batch::new(&[&[-0.5, 0.0]], &[&[1.0, 0.0], &[0.0, 0.0]], &[0]).with_margin(margin);
        let expected = (0.5 * (2.0 * margin - 1.0)).exp().ln_1p();
        let angles: Vec<f64> = (1..m)
            .flat_map(|k| [-1e-4, 1e-4].map(|away| f64::from(k) * PI / margin + away))
            .collect();
        for way in WAYS {
            let setup = Setup::new(way, &against);
            let output = setup.output();
            assert!((values(output.loss.clone())[0] - expected).abs() < 1e-5, "m = {m} ({way:?})");
            let mut last = vec![0; m as usize];
            last[m as usize - 1] = 1;
            assert_eq!(output.report().unwrap().k, last, "m = {m} ({way:?})");

            if !angles.is_empty() {
                let around = Batch::at_angles(44, &angles, 5, 3, 0.5).with_margin(margin);
                let mut counts = vec![0; m as usize];
                angles.iter().for_each(|angle| counts[definition::interval(margin, *angle)] += 1);
                let found = Setup::new(way, &around).output().report().unwrap().k;
                assert_eq!(found, counts, "m = {m} ({way:?})");
            }
        }
    }
}

/// cos θ = 0 exactly: ψ(90°) = −(m − 1) for every m, and its slope by cos θ is m for odd m, 0 for even.
#[test]
fn mistake_05_powers_of_the_cosine_by_division() {
    for m in 1..=20u32 {
        let margin = f64::from(m);
        let at_zero = Margin::new(m).unwrap().psi(0.0);
        let slope = if m % 2 == 1 { margin } else { 0.0 };
        assert_eq!((at_zero.value, at_zero.slope), (1.0 - margin, slope), "m = {m}");
        let batch =
            Batch::new(&[&[0.5, 0.0]], &[&[0.0, 2.0], &[0.0, 0.0]], &[0]).with_margin(margin);
        assert_eq!(definition::angle(batch.feature(0), batch.weight(0)), FRAC_PI_2);
        for way in WAYS {
            let run = Run::new(way, &batch);
            let expected = (margin - 1.0).exp().ln_1p();
            assert!((run.loss - expected).abs() < 1e-5 * margin, "m = {m} ({way:?}): {}", run.loss);
            // ∂f/∂x = ψ|W| x/|x| + ψ' W, and ∂L/∂f = −(1 − p).
            let rest = -1.0 / (1.0 + (1.0 - margin).exp());
            let expected = [rest * (1.0 - margin) * 2.0, rest * slope * 2.0];
            assert_close(
                &format!("m = {m} ({way:?})"),
                &run.gradients.features,
                &expected,
                1e-5 * margin,
            );
        }
    }
}

/// After the end of the schedule both the loss and the gradient are those of λ_min, which differ from
/// those of λ = 0. Margins above 12, whose factorials exceed 32 bits, are as accurate as small ones.
#[test]
fn mistake_06_minimum_of_lambda_ignored_in_backward_and_factorials_overflow() {
    let schedule = LambdaSchedule::power(1000.0, 0.12, 1.0, 5.0).unwrap();
    let ended = Batch { lambda: schedule.at(1_000_000), ..batch() };
    assert_eq!(ended.lambda, 5.0);
    let expected = definition::gradients(&ended, 1e-4);
    let without = definition::gradients(&Batch { lambda: 0.0, ..batch() }, 1e-4);
    for way in WAYS {
        let run = Run::new(way, &ended);
        assert_close("losses", &run.losses, &definition::losses(&ended), 1e-5);
        assert_gradients_close(&format!("{way:?}"), &run.gradients, &expected, 1e-5);
        let apart = run.gradients.weights.iter().zip(&without.weights).map(|(a, b)| (a - b).abs());
        assert!(apart.fold(0.0, f64::max) > 1e-2, "{way:?}");
    }
    for m in 12..=24 {
        let angles: Vec<f64> = (0..m).map(|k| (f64::from(k) + 0.4) * PI / f64::from(m)).collect();
        let batch = Batch::at_angles(46, &angles, 4, 3, 0.5).with_margin(f64::from(m));
        for way in WAYS {
            let found = Run::new(way, &batch).losses;
            assert_close(&format!("m = {m} ({way:?})"), &found, &definition::losses(&batch), 1e-4);
        }
    }
}

/// For samples that are classified correctly but lie inside the margin, the logits with the margin would
/// predict another class. The report's accuracy is that of the plain scores, as at inference.
#[test]
fn mistake_07_accuracy_measured_on_the_margin_logits() {
    let at = |degrees: f64| [degrees.to_radians().cos(), degrees.to_radians().sin()];
    let degrees = [5.0, 20.0, 30.0, 40.0, 50.0];
    let features = degrees.map(at);
    let features: Vec<&[f64]> = features.iter().map(|x| x.as_slice()).collect();
    let batch = Batch::new(&features, &[&at(0.0), &at(90.0)], &[0; 5]).with_margin(4.0);
    let fed = (0..5).filter(|i| {
        let logits = definition::logits(&batch, *i);
        logits[0] > logits[1]
    });
    assert_eq!(fed.count(), 1);
    for way in Way::ALL {
        let setup = Setup::new(way, &batch);
        let report = setup.output().report().unwrap();
        assert_eq!((report.accuracy, report.inside_margin), (0.8, 0.8), "{way:?}");
        let predicted: Vec<i64> =
            setup.head.predict(setup.features.clone()).into_data().iter::<i64>().collect();
        assert_eq!(predicted, [0, 0, 0, 0, 1], "{way:?}");
    }
}

/// Weights are initialised with He's normal distribution, eagerly, and depend only on the seed.
#[test]
fn mistake_08_weights_left_uninitialised() {
    let device = Device::flex();
    let config = LSoftmaxConfig::new(512, 100).with_bias(true);
    let build = |seed: u64| {
        device.seed(seed);
        config.init(&device)
    };
    let head = build(3);
    // Drawing in between has no effect, since the weights are already initialised.
    let _ = Tensor::<1>::random([1000], Distribution::Default, &device);
    let weights = values(head.weight.val());
    assert_eq!(weights, values(build(3).weight.val()));
    assert_ne!(weights, values(build(4).weight.val()));
    assert!(weights.iter().all(|w| w.is_finite() && *w != 0.0));
    // Variance 2/D. The standard errors of n normal numbers are σ/√n for the mean and σ²√(2/n) for the
    // variance; five times that is the tolerance, and the seed is fixed.
    let n = weights.len() as f64;
    let variance = 2.0 / 512.0;
    let mean = weights.iter().sum::<f64>() / n;
    let found = weights.iter().map(|w| (w - mean).powi(2)).sum::<f64>() / n;
    assert!(mean.abs() < 5.0 * (variance / n).sqrt(), "{mean}");
    assert!((found / variance - 1.0).abs() < 5.0 * (2.0 / n).sqrt(), "{found}");
    assert!(values(head.bias.unwrap().val()).iter().all(|bias| *bias == 0.0));
}

/// Burn's SGD with weight decay, on the head's own parameters, step by step against the formula
/// v ← μv + g + δW, W ← W − ηv. (Which parameters a recipe decays is tested with the recipes.)
#[test]
fn mistake_09_weight_decay_never_passed_to_the_optimiser() {
    let (rate, decay, momentum) = (0.5, 0.125, 0.75);
    let mut optimiser = SgdConfig::new()
        .with_weight_decay(Some(WeightDecayConfig::new(decay as f32)))
        .with_momentum(Some(MomentumConfig::new().with_momentum(momentum).with_dampening(0.0)))
        .init();
    let mut batch = batch();
    let mut head = Setup::new(Way::Fused, &batch).head;
    let mut velocity = vec![0.0; batch.weights.len()];
    for step in 0..3 {
        let setup = Setup { head: head.clone(), ..Setup::new(Way::Fused, &batch) };
        let gradients = GradientsParams::from_grads(setup.output().loss.backward(), &setup.head);
        head = optimiser.step(rate, head, gradients);

        let found = Run::new(Way::Fused, &batch).gradients;
        for ((weight, v), g) in batch.weights.iter_mut().zip(&mut velocity).zip(&found.weights) {
            *v = momentum * *v + g + decay * *weight;
            *weight -= rate * *v;
        }
        let bias = values(head.bias.as_ref().unwrap().val());
        batch.bias = Some(bias);
        let tolerance = 1e-6 * batch.weights.iter().fold(0.0, |m: f64, w| m.max(w.abs()));
        assert_close(
            &format!("step {step}"),
            &values(head.weight.val()),
            &batch.weights,
            tolerance,
        );
    }
    let start = Setup::new(Way::Fused, &self::batch()).head;
    assert!(norm(&values(head.weight.val())) < norm(&values(start.weight.val())));
}

/// Scores need no label, and the weights can be converted to a linear layer and back, on a device with or
/// without autodiff. A record of them is loaded exactly.
#[test]
fn mistake_11_labels_demanded_at_inference() {
    for device in [Device::flex(), Device::flex().autodiff()] {
        for bias in [false, true] {
            let setup = Setup::on(&device, Way::Fused, &batch().with_bias(bias));
            let (head, features) = (&setup.head, setup.features.clone());
            let scores = values(head.logits(features.clone()));
            let linear = head.to_linear();
            assert_same_bits(
                "to a linear layer",
                &values(linear.forward(features.clone())),
                &scores,
            );

            // Zeros, so that no random numbers are drawn while another test relies on its seed.
            let config = LSoftmaxConfig::new(6, 5).with_initializer(Initializer::Zeros);
            let other = config.clone().with_margin(2).with_bias(true).init(&device);
            let back = other.with_linear(&linear).unwrap();
            assert_eq!((back.margin.value(), back.bias.is_some()), (2.0, bias));
            assert_same_bits("weights", &values(back.weight.val()), &values(head.weight.val()));
            assert_same_bits(
                "from a linear layer",
                &values(back.logits(features.clone())),
                &scores,
            );

            let bytes = head.clone().into_record().into_bytes().unwrap();
            let loaded = config.with_bias(bias).init(&device);
            let loaded = loaded.load_record(ModuleRecord::from_bytes(bytes).unwrap());
            assert_same_bits("from a record", &values(loaded.logits(features)), &scores);
        }
    }
}
