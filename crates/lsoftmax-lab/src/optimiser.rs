//! The optimiser of a training run.

use burn::grad_clipping::GradientClipping;
use burn::module::ParamGroup;
use burn::optim::decay::WeightDecayConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{ModuleOptimizer, SgdConfig};
use serde::{Deserialize, Serialize};

/// Stochastic gradient descent with momentum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sgd {
    /// The momentum coefficient.
    pub momentum: f64,
    /// The weight decay (L2) coefficient, for weights but not for biases, batch norm, slopes and a
    /// learned scale.
    pub weight_decay: f64,
}

impl Default for Sgd {
    /// The paper's values: 0.9 and 0.0005.
    fn default() -> Self {
        Self { momentum: 0.9, weight_decay: 5e-4 }
    }
}

impl Sgd {
    /// The optimiser.
    pub fn init(&self) -> ModuleOptimizer {
        let momentum = MomentumConfig::new().with_momentum(self.momentum).with_dampening(0.0);
        let without_decay = SgdConfig::new().with_momentum(Some(momentum));
        let with_decay = without_decay
            .clone()
            .with_weight_decay(Some(WeightDecayConfig::new(self.weight_decay as f32)));
        let vectors =
            ParamGroup::from_any_predicates(vec!["bias", "gamma", "beta", "slope", "log_scale"]);
        let none: Option<GradientClipping> = None;
        with_decay.init().with_group(vectors, without_decay.build(), none)
    }
}
