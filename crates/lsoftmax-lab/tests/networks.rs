//! The first ten training steps of every named network against PyTorch
//! (reference/networks.py wrote the fixture).

mod pytorch;

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use lsoftmax_lab::learner::{Learner, StepSettings, gradient_norm};
use lsoftmax_lab::model::Classifier;
use lsoftmax_lab::objective::Objective;
use lsoftmax_lab::optimiser::Sgd;
use lsoftmax_nn::NetworkConfig;
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    batch: usize,
    classes: usize,
    margin: f64,
    lambda: f64,
    learning_rate: f64,
    momentum: f64,
    weight_decay: f64,
    parameters: u64,
    multiply_adds: u64,
    losses_f64: Vec<f64>,
    gradient_norms_f64: Vec<f64>,
    eval_features_f64: Vec<Vec<f64>>,
}

/// The norm of every parameter's gradient: layer by layer weight, bias, γ, β and slopes, then the head.
fn gradient_norms(model: &Classifier, gradients: &GradientsParams) -> Vec<f64> {
    fn norm<const D: usize>(parameter: &Param<Tensor<D>>, gradients: &GradientsParams) -> f64 {
        let gradient = gradients.get::<D>(parameter.id).unwrap().into_data();
        gradient.iter::<f64>().map(|value| value * value).sum::<f64>().sqrt()
    }
    let mut norms = Vec::new();
    for unit in &model.network.units {
        norms.push(norm(&unit.weight, gradients));
        let vectors = [&unit.bias, &unit.gamma, &unit.beta, &unit.slope];
        norms.extend(vectors.into_iter().flatten().map(|vector| norm(vector, gradients)));
    }
    norms.push(norm(&model.head.weight, gradients));
    norms
}

fn check(name: &str) {
    let cases: Vec<Case> = pytorch::cases("networks.json");
    let case = cases.into_iter().find(|case| case.name == name).unwrap();
    let config = NetworkConfig::named(name).unwrap();
    let summary = config.summary().unwrap();
    assert_eq!(summary.parameters, case.parameters);
    assert_eq!(summary.multiply_adds, case.multiply_adds);

    let device = Device::flex().autodiff();
    let (momentum, weight_decay) = (case.momentum, case.weight_decay);
    let sgd = Sgd { momentum, weight_decay, ..Sgd::default() };
    let model = pytorch::model(&config, case.classes, case.margin, &device);
    let mut learner = Learner::new(model, &sgd.into(), Objective::Head);
    let settings = StepSettings { lambda: case.lambda, rate: case.learning_rate, step: 0 };
    for (index, expected) in case.losses_f64.iter().enumerate() {
        let step = index as u64;
        let batch = pytorch::batch(&config, (case.batch, case.classes), step, &device);
        let mut norms = Vec::new();
        let metrics = learner.step_with(std::iter::once(batch), settings, |model, gradients| {
            norms = gradient_norms(model, gradients);
            let squares = norms.iter().map(|norm| norm * norm).sum::<f64>();
            let all = gradient_norm(model, gradients);
            assert!((all / squares.sqrt() - 1.0).abs() < 1e-6, "{all}");
            Ok(())
        });
        let loss = metrics.unwrap().loss;
        let apart = (loss - expected).abs() / expected.abs();
        assert!(apart < 1e-4, "{name}, step {step}: {loss} is not {expected} ({apart:e})");
        if step == 0 {
            check_norms(name, &norms, &case.gradient_norms_f64);
        }
    }
    let plain = Device::flex();
    let model = learner.model().clone().valid();
    let features = model.network.forward(pytorch::images(&config, case.batch, 10, &plain)).unwrap();
    let features: Vec<f32> = features.into_data().iter::<f32>().collect();
    let rows = features.chunks_exact(config.features.size).zip(&case.eval_features_f64);
    for (found, expected) in rows {
        let largest = expected.iter().fold(0.0f64, |most, value| most.max(value.abs()));
        for (found, expected) in found.iter().zip(expected) {
            let apart = (f64::from(*found) - expected).abs() / largest;
            assert!(apart < 1e-3, "{name}: feature {found} is not {expected} ({apart:e})");
        }
    }
}

fn check_norms(name: &str, norms: &[f64], expected: &[f64]) {
    assert_eq!(norms.len(), expected.len());
    for (index, (found, expected)) in norms.iter().zip(expected).enumerate() {
        let apart = (found - expected).abs() / expected;
        // Where two inputs of a maximum are nearly equal, rounding decides: PyTorch's own f32 and f64
        // results differ by 2e-3.
        assert!(apart < 5e-3, "{name}, gradient {index}: {found} is not {expected} ({apart:e})");
    }
}

#[test]
fn mnist_2d_trains_as_in_pytorch() {
    check("mnist-2d");
}

#[test]
fn mnist_trains_as_in_pytorch() {
    check("mnist");
}

#[test]
fn cifar10_trains_as_in_pytorch() {
    check("cifar10");
}

#[test]
fn cifar100_trains_as_in_pytorch() {
    check("cifar100");
}

#[test]
fn lfw_trains_as_in_pytorch() {
    check("lfw");
}

#[test]
fn resnet20_trains_as_in_pytorch() {
    check("resnet20");
}

#[test]
fn sphereface20_trains_as_in_pytorch() {
    check("sphereface20");
}
