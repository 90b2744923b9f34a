//! One training step: accumulated batches, clipped gradients, and every objective.

use std::iter::once;

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use lsoftmax::{Execution, Margin, Precision, SampleRate};
use lsoftmax_lab::batch::LabelledImages;
use lsoftmax_lab::head::HeadSettings;
use lsoftmax_lab::learner::{Learner, StepError, StepSettings, gradient_norm};
use lsoftmax_lab::model::Classifier;
use lsoftmax_lab::objective::Objective;
use lsoftmax_lab::optimiser::{Optimiser, Sgd};
use lsoftmax_nn::{FeaturesConfig, NetworkConfig};
use lsoftmax_testing::{SplitMix, assert_close};

const CLASSES: usize = 3;
const SETTINGS: StepSettings = StepSettings { lambda: 2.0, rate: 0.05, step: 0 };

/// A network without batch norm, whose statistics would depend on the batch size.
fn learner(objective: Objective) -> Learner {
    let features = FeaturesConfig::linear(6);
    let network = NetworkConfig { input: [1, 4, 4], stages: vec![], features };
    let device = Device::flex().autodiff();
    let head = HeadSettings::l_softmax(Margin::new(2).unwrap());
    let execution = Execution::new(Precision::F32);
    let mut model = Classifier::new(&network, CLASSES, head, execution, &device).unwrap();
    let mut numbers = SplitMix(7);
    let mut draw = |count: usize| -> Vec<f32> {
        numbers.normals(count).into_iter().map(|value| 0.4 * value as f32).collect()
    };
    let weight = TensorData::new(draw(6 * 16), [6, 1, 4, 4]);
    model.network.units[0].weight = Param::from_tensor(Tensor::from_data(weight, &device));
    let weight = TensorData::new(draw(CLASSES * 6), [CLASSES, 6]);
    model.head.weight = Param::from_tensor(Tensor::from_data(weight, &device));
    Learner::new(model, &Optimiser::default(), objective)
}

/// Images `from..to` of an endless sequence.
fn batch(from: usize, to: usize) -> LabelledImages {
    let device = Device::flex().autodiff();
    let pixels = (from..to).flat_map(|image| SplitMix(100 + image as u64).normals(16));
    let pixels: Vec<f32> = pixels.map(|value| value as f32).collect();
    let labels: Vec<i64> = (from..to).map(|image| (image % CLASSES) as i64).collect();
    LabelledImages {
        images: Tensor::from_data(TensorData::new(pixels, [to - from, 1, 4, 4]), &device),
        labels: Tensor::from_data(TensorData::new(labels, [to - from]), &device),
    }
}

fn parameters(model: &Classifier) -> Vec<f32> {
    struct Values(Vec<f32>);
    impl ModuleVisitor for Values {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.extend(param.val().into_data().iter::<f32>());
        }
    }
    let mut values = Values(Vec::new());
    model.visit(&mut values);
    values.0
}

#[test]
fn accumulated_batches_are_equivalent_to_one_large_batch() {
    for objective in [Objective::Head, Objective::Hinge] {
        let (mut large, mut small) = (learner(objective), learner(objective));
        for step in 0..5 {
            let from = 12 * step;
            let expected = large.step(once(batch(from, from + 12)), SETTINGS).unwrap();
            let parts = (0..3).map(|part| batch(from + 4 * part, from + 4 * part + 4));
            let found = small.step(parts, SETTINGS).unwrap();
            assert!((found.loss - expected.loss).abs() < 1e-5, "{found:?} is not {expected:?}");
            assert!((found.angle - expected.angle).abs() < 1e-3, "{found:?} is not {expected:?}");
            assert_eq!((found.accuracy * 12.0).round(), (expected.accuracy * 12.0).round());
        }
        assert_close("weights", &parameters(small.model()), &parameters(large.model()), 1e-5);
    }
}

#[test]
fn clipping_scales_all_gradients_to_the_norm_and_leaves_smaller_ones_unchanged() {
    // Without momentum and decay, a step is the rate times the gradient.
    let moved = |clip_norm: Option<f64>| {
        let sgd = Sgd { momentum: 0.0, weight_decay: 0.0, ..Sgd::default() };
        let model = learner(Objective::Head).model().clone();
        let mut learner =
            Learner::new(model, &sgd.into(), Objective::Head).with_clip_norm(clip_norm);
        let before = parameters(learner.model());
        let mut norm = 0.0;
        let seen = learner.step_with(once(batch(0, 12)), SETTINGS, |model, gradients| {
            norm = gradient_norm(model, gradients);
            Ok(())
        });
        seen.unwrap();
        let after = parameters(learner.model());
        let change = before.iter().zip(&after).map(|(a, b)| f64::from(a - b) / SETTINGS.rate);
        (norm, change.collect::<Vec<_>>())
    };
    let length = |change: &[f64]| change.iter().map(|value| value * value).sum::<f64>().sqrt();
    let (norm, whole) = moved(None);
    assert!((length(&whole) / norm - 1.0).abs() < 1e-3, "{norm}");
    let (_, clipped) = moved(Some(norm / 10.0));
    assert!((length(&clipped) / (norm / 10.0) - 1.0).abs() < 1e-3);
    let scaled: Vec<f64> = whole.iter().map(|value| value / 10.0).collect();
    assert_close("clipped", &clipped, &scaled, 1e-3 * norm);
    assert_eq!(moved(Some(2.0 * norm)).1, whole);
}

#[test]
fn gradients_can_be_changed_before_they_are_applied() {
    let mut learner = learner(Objective::Head);
    let before = parameters(learner.model());
    let emptied = learner.step_with(once(batch(0, 6)), SETTINGS, |_, gradients| {
        *gradients = GradientsParams::new();
        Ok(())
    });
    emptied.unwrap();
    assert_eq!(parameters(learner.model()), before);
    let refused = learner.step_with(once(batch(0, 6)), SETTINGS, |_, _| {
        Err(StepError::NotFinite("a reason".into()))
    });
    assert!(refused.is_err());
    assert_eq!(parameters(learner.model()), before);
}

#[test]
fn a_loss_that_is_not_finite_leaves_the_model_unchanged() {
    for objective in [Objective::Head, Objective::Hinge] {
        let mut learner = learner(objective);
        let before = parameters(learner.model());
        let mut bad = batch(0, 6);
        bad.images = bad.images.mul_scalar(f32::MAX);
        let error = learner.step(once(bad), SETTINGS).unwrap_err();
        assert!(matches!(error, StepError::NotFinite(_)), "{error}");
        assert_eq!(parameters(learner.model()), before);
    }
}

#[test]
fn the_contrastive_objective_is_the_heads_loss_plus_the_weighted_pairs() {
    let contrastive = |weight| Objective::Contrastive { weight, margin: 1.0 };
    let loss = |objective| learner(objective).step(once(batch(0, 12)), SETTINGS).unwrap().loss;
    let (plain, none) = (loss(Objective::Head), loss(contrastive(0.0)));
    assert!((plain - none).abs() < 1e-6, "{none} is not {plain}");
    let (one, two) = (loss(contrastive(1.0)) - plain, loss(contrastive(2.0)) - plain);
    assert!(one > 0.0 && (two / one - 2.0).abs() < 1e-4, "{one}, {two}");
    // With a positive weight, pairs of the same class come closer together.
    let angle = |weight| {
        let mut learner = learner(contrastive(weight));
        for step in 0..40 {
            learner.step(once(batch(12 * step, 12 * step + 12)), SETTINGS).unwrap();
        }
        learner.step(once(batch(0, 12)), SETTINGS).unwrap().angle
    };
    assert!(angle(5.0) < angle(0.0));
}

/// Burn's generator of random numbers belongs to the process.
#[test]
fn initial_weights_depend_on_the_seed_alone_also_with_other_threads() {
    let features = FeaturesConfig::linear(6);
    let network = NetworkConfig { input: [1, 4, 4], stages: vec![], features };
    let head = HeadSettings::l_softmax(Margin::new(2).unwrap());
    let weights = |seed: u64| {
        let (execution, device) = (Execution::new(Precision::F32), Device::flex().autodiff());
        parameters(&Classifier::from_seed(seed, &network, 4, head, execution, &device).unwrap())
    };
    let expected = [1, 2].map(weights);
    assert_ne!(expected[0], expected[1]);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (weights, expected) = (&weights, &expected);
            scope.spawn(move || {
                for round in 0..50 {
                    let seed = (thread + round) % 2;
                    assert_eq!(weights(seed as u64 + 1), expected[seed]);
                }
            });
        }
    });
}

#[test]
fn a_step_on_all_classes_as_a_sample_is_the_step_on_the_whole_head_to_the_bit() {
    // So close to 1 that all classes are drawn, but on the path for sampled ones.
    let rate = SampleRate::new(0.9999).unwrap();
    let clip = Some(0.05);
    let model = learner(Objective::Head).model().clone();
    let mut sampled = model.clone();
    sampled.head.sample_rate = rate;
    let new =
        |model| Learner::new(model, &Optimiser::default(), Objective::Head).with_clip_norm(clip);
    let (mut whole, mut sampled) = (new(model), new(sampled));
    for step in 0..4 {
        let settings = StepSettings { step, ..SETTINGS };
        let batches = || [batch(12 * step as usize, 12 * step as usize + 6), batch(0, 6)];
        let expected = whole.step(batches().into_iter(), settings).unwrap();
        let found = sampled.step(batches().into_iter(), settings).unwrap();
        assert_eq!(found, expected);
        let bits = |learner: &Learner| -> Vec<u32> {
            parameters(learner.model()).into_iter().map(f32::to_bits).collect()
        };
        assert_eq!(bits(&sampled), bits(&whole), "step {step}");
    }
}

#[test]
fn a_step_on_sampled_classes_leaves_the_others_unchanged() {
    let mut model = learner(Objective::Head).model().clone();
    model.head.sample_rate = SampleRate::new(0.5).unwrap();
    let mut learner = Learner::new(model, &Optimiser::default(), Objective::Head).with_seed(3);
    // One image of class 0, and one of the two other classes.
    let weights = |learner: &Learner| -> Vec<f32> {
        learner.model().head.weight.val().into_data().iter::<f32>().collect()
    };
    let mut untouched = [0, 0];
    for step in 0..20 {
        let before = weights(&learner);
        learner.step(once(batch(0, 1)), StepSettings { step, ..SETTINGS }).unwrap();
        let after = weights(&learner);
        let same: Vec<bool> =
            before.chunks(6).zip(after.chunks(6)).map(|(before, after)| before == after).collect();
        assert!(!same[0], "{same:?}");
        assert!(same[1] != same[2], "{same:?}");
        untouched[usize::from(same[2])] += 1;
    }
    assert!(untouched.iter().all(|count| *count >= 4), "{untouched:?}");
}
