//! The optimiser of a training run.

use burn::grad_clipping::GradientClipping;
use burn::module::ParamGroup;
use burn::optim::decay::WeightDecayConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamWConfig, ModuleOptimizer, Optimizer, SgdConfig};
use burn::tensor::{Device, Tensor};
use lsoftmax::RowSgd;
use serde::{Deserialize, Serialize};

/// Parameters without weight decay: biases, batch norm, slopes and a learned scale.
const VECTORS: [&str; 5] = ["bias", "gamma", "beta", "slope", "log_scale"];

/// The field of a classifier with its network.
const TRUNK: &str = "network";

/// The field of a classifier with its head.
const HEAD: &str = "head";

/// The optimiser of a training run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimiser {
    /// Stochastic gradient descent.
    Sgd(Sgd),
    /// AdamW.
    AdamW(AdamW),
}

/// Stochastic gradient descent with momentum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sgd {
    /// The momentum coefficient.
    pub momentum: f64,
    /// Whether the momentum is Nesterov's: the step is taken from where the momentum leads.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nesterov: bool,
    /// The weight decay (L2) coefficient, for weights but not for biases, batch norm, slopes and a
    /// learned scale.
    pub weight_decay: f64,
    /// That of the head's weights, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_weight_decay: Option<f64>,
}

impl Default for Sgd {
    /// The paper's values: 0.9 and 0.0005.
    fn default() -> Self {
        Self { momentum: 0.9, nesterov: false, weight_decay: 5e-4, head_weight_decay: None }
    }
}

impl Sgd {
    /// With the weight decay of the head as that of all weights.
    fn of_head(self) -> Self {
        let weight_decay = self.head_weight_decay.unwrap_or(self.weight_decay);
        Self { weight_decay, head_weight_decay: None, ..self }
    }
}

/// Adam with decoupled weight decay (Loshchilov and Hutter, 2019).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdamW {
    /// The decay of the mean of the gradients.
    pub beta1: f64,
    /// The decay of the mean of their squares.
    pub beta2: f64,
    /// Added to the root of that mean.
    pub epsilon: f64,
    /// The weight decay, times the learning rate per step, for weights but not for biases, batch norm,
    /// slopes and a learned scale.
    pub weight_decay: f64,
}

impl Default for AdamW {
    /// PyTorch's values: 0.9, 0.999, 1e-8 and 0.01.
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01 }
    }
}

impl Default for Optimiser {
    fn default() -> Self {
        Self::Sgd(Sgd::default())
    }
}

impl From<Sgd> for Optimiser {
    fn from(sgd: Sgd) -> Self {
        Self::Sgd(sgd)
    }
}

impl From<AdamW> for Optimiser {
    fn from(adamw: AdamW) -> Self {
        Self::AdamW(adamw)
    }
}

impl Optimiser {
    /// The optimiser of the head's weights if a step uses only some of its classes; only SGD with plain
    /// momentum has one.
    pub fn init_rows(&self) -> Option<RowSgd> {
        match self {
            Self::Sgd(sgd @ Sgd { momentum, nesterov: false, .. }) => {
                Some(RowSgd::new(*momentum, sgd.of_head().weight_decay))
            }
            _ => None,
        }
    }

    /// The optimiser of the head's weights where they are not part of a [`Classifier`](crate::model::Classifier).
    pub fn of_head(&self) -> Self {
        match self {
            Self::Sgd(sgd) => Self::Sgd(sgd.of_head()),
            Self::AdamW(_) => *self,
        }
    }

    /// Burn's optimiser for a [`Classifier`](crate::model::Classifier), without state. The learning rate of its
    /// network is multiplied by `trunk_rate`.
    pub fn init(&self, trunk_rate: f64) -> ModuleOptimizer {
        match self {
            Self::Sgd(sgd @ Sgd { momentum, nesterov, .. }) => {
                // Burn's default dampening is 0.1.
                let momentum = MomentumConfig::new()
                    .with_momentum(*momentum)
                    .with_dampening(0.0)
                    .with_nesterov(*nesterov);
                let without_decay = SgdConfig::new().with_momentum(Some(momentum));
                let [weights, head] = [sgd.weight_decay, sgd.of_head().weight_decay].map(|decay| {
                    let decay = WeightDecayConfig::new(decay as f32);
                    without_decay.clone().with_weight_decay(Some(decay)).build()
                });
                by_group(weights, head, without_decay.build(), trunk_rate)
            }
            Self::AdamW(AdamW { beta1, beta2, epsilon, weight_decay }) => {
                let without_decay = AdamWConfig::new()
                    .with_beta_1(*beta1 as f32)
                    .with_beta_2(*beta2 as f32)
                    .with_epsilon(*epsilon as f32)
                    .with_weight_decay(0.0);
                let weights = without_decay.clone().with_weight_decay(*weight_decay as f32).build();
                by_group(weights.clone(), weights, without_decay.build(), trunk_rate)
            }
        }
    }
}

/// One optimiser for the network's weights, one for the head's and one for [`VECTORS`], in the network at another rate.
fn by_group<O: Optimizer>(weights: O, head: O, vectors: O, trunk_rate: f64) -> ModuleOptimizer {
    let no_clipping = || -> Option<GradientClipping> { None };
    // The last group that matches counts.
    let group = ParamGroup::from_any_predicates(VECTORS.into());
    let all = ModuleOptimizer::from(weights.clone())
        .with_group(ParamGroup::from_predicate(HEAD), head, no_clipping())
        .with_group(group, vectors.clone(), no_clipping());
    if trunk_rate == 1.0 {
        return all;
    }
    let trunk = ParamGroup::from_predicate(TRUNK);
    let all = all.with_group(trunk, AtRate(weights, trunk_rate), no_clipping());
    VECTORS.into_iter().fold(all, |all, vector| {
        let group = ParamGroup::from_predicates(vec![TRUNK, vector]);
        all.with_group(group, AtRate(vectors.clone(), trunk_rate), no_clipping())
    })
}

/// An optimiser with a multiple of the learning rate.
#[derive(Clone)]
struct AtRate<O>(O, f64);

impl<O: Optimizer> Optimizer for AtRate<O> {
    type State<const D: usize> = O::State<D>;

    fn step<const D: usize>(
        &self,
        rate: f64,
        tensor: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        self.0.step(rate * self.1, tensor, gradient, state)
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device) -> Self::State<D> {
        O::to_device(state, device)
    }
}
