//! Twenty steps with every optimiser and schedule against PyTorch's own (reference/optimisers.py wrote
//! the fixture).

mod pytorch;

use burn::module::Param;
use burn::tensor::{Device, Tensor};
use lsoftmax_lab::learner::{Learner, StepSettings};
use lsoftmax_lab::model::Classifier;
use lsoftmax_lab::objective::Objective;
use lsoftmax_lab::optimiser::{AdamW, Sgd};
use lsoftmax_lab::recipe::{LearningRate, Recipe};
use lsoftmax_lab::train::{Rate, RateState};
use lsoftmax_nn::{FeaturesConfig, NetworkConfig, StageConfig};
use lsoftmax_testing::assert_close;
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    sgd: Option<Sgd>,
    adamw: Option<AdamW>,
    learning_rate: LearningRate,
    warmup: u64,
    batch: usize,
    classes: usize,
    margin: f64,
    lambda: f64,
    rates: Vec<f64>,
    losses: Vec<f64>,
    parameters: Vec<Vec<f64>>,
}

impl Case {
    fn recipe(&self) -> Recipe {
        let recipe = Recipe {
            sgd: self.sgd,
            adamw: self.adamw,
            learning_rate: self.learning_rate.clone(),
            warmup: self.warmup,
            steps: self.losses.len() as u64,
            expected: Default::default(),
            ..Recipe::built_in("mnist").unwrap()
        };
        recipe.check().unwrap();
        recipe
    }
}

fn network() -> NetworkConfig {
    let (input, stages) = ([1, 6, 6], vec![StageConfig::new(4, 1)]);
    NetworkConfig { input, stages, features: FeaturesConfig::new(5) }
}

/// Weight, γ, β and slopes of every unit, then the head.
fn parameters(model: &Classifier) -> Vec<Vec<f64>> {
    fn values<const D: usize>(parameter: &Param<Tensor<D>>) -> Vec<f64> {
        parameter.val().into_data().iter::<f64>().collect()
    }
    let mut found = Vec::new();
    for unit in &model.network.units {
        found.push(values(&unit.weight));
        let vectors = [&unit.gamma, &unit.beta, &unit.slope];
        found.extend(vectors.into_iter().flatten().map(values));
    }
    found.push(values(&model.head.weight));
    found
}

#[test]
fn optimisers_and_schedules_are_those_of_pytorch() {
    let cases: Vec<Case> = pytorch::cases("optimisers.json");
    assert_eq!(cases.len(), 4);
    let (config, device) = (network(), Device::flex().autodiff());
    for case in cases {
        let (name, recipe) = (&case.name, case.recipe());
        let model = pytorch::model(&config, case.classes, case.margin, &device);
        for (before, after) in parameters(&model).iter().zip(&case.parameters) {
            let moved = before.iter().zip(after).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(moved > 1e-3, "{name}: the steps are too small for a comparison");
        }
        let mut learner = Learner::new(model, &recipe.optimiser(), Objective::Head);
        for (index, (loss, expected_rate)) in case.losses.iter().zip(&case.rates).enumerate() {
            let step = index as u64;
            let rate = Rate::new(&recipe, RateState::default()).at(step);
            assert!((rate - expected_rate).abs() < 1e-12, "{name}, step {step}: {rate}");
            let batch = pytorch::batch(&config, (case.batch, case.classes), step, &device);
            let settings = StepSettings { lambda: case.lambda, rate, step };
            let found = learner.step(std::iter::once(batch), settings).unwrap().loss;
            let apart = (found / loss - 1.0).abs();
            assert!(apart < 2e-5, "{name}, step {step}: {found} is not {loss} ({apart:e})");
        }
        for (found, expected) in parameters(learner.model()).iter().zip(&case.parameters) {
            assert_close(name, found, expected, 2e-5);
        }
    }
}
