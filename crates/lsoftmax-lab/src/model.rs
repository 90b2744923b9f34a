//! A network with its head, and the optimiser that trains both.

use burn::grad_clipping::GradientClipping;
use burn::module::{Module, ModuleVisitor, Param, ParamGroup};
use burn::optim::decay::WeightDecayConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{GradientsParams, ModuleOptimizer, SgdConfig};
use burn::tensor::{Device, Int, Tensor};
use lsoftmax::{HeadError, LSoftmax, LSoftmaxConfig, LSoftmaxOutput, Margin, Precision};
use lsoftmax_nn::{Network, NetworkConfig, NetworkError};
use serde::{Deserialize, Serialize};

/// A network that turns images into features, and the head that classifies them.
#[derive(Module, Debug)]
pub struct Classifier {
    /// Images to features.
    pub network: Network,
    /// Features to classes.
    pub head: LSoftmax,
}

/// Why a classifier could not be built or run.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The head.
    #[error(transparent)]
    Head(#[from] HeadError),
}

impl Classifier {
    /// A new classifier, its weights drawn from the device's random numbers.
    ///
    /// # Errors
    /// When the network's description does not fit together.
    pub fn new(
        network: &NetworkConfig,
        classes: usize,
        margin: Margin,
        precision: Precision,
        device: &Device,
    ) -> Result<Self, NetworkError> {
        let mut head =
            LSoftmaxConfig::new(network.features.size, classes).with_precision(precision);
        head.margin = margin;
        let network = network.init(device)?.with_precision(precision);
        Ok(Self { network, head: head.init(device) })
    }

    /// Whether all its parameters are finite.
    pub fn is_finite(&self) -> bool {
        struct Finite(bool);
        impl ModuleVisitor for Finite {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let finite = || param.val().into_data().iter::<f32>().all(f32::is_finite);
                self.0 = self.0 && finite();
            }
        }
        let mut finite = Finite(true);
        self.visit(&mut finite);
        finite.0
    }

    /// The loss of a batch.
    ///
    /// # Errors
    /// When images or labels don't fit the network, or a number is not finite.
    pub fn loss(
        &self,
        images: Tensor<4>,
        labels: Tensor<1, Int>,
        lambda: f64,
    ) -> Result<LSoftmaxOutput, ModelError> {
        let features = self.network.forward(images)?;
        Ok(self.head.forward(features, labels, lambda)?)
    }
}

/// Stochastic gradient descent with momentum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sgd {
    /// The share of the last step that is kept.
    pub momentum: f64,
    /// Added to the gradient, times the weight: for weights, not for biases, batch norm and slopes.
    pub weight_decay: f64,
}

impl Default for Sgd {
    /// The paper's: 0.9 and 0.0005.
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
        let vectors = ParamGroup::from_any_predicates(vec!["bias", "gamma", "beta", "slope"]);
        let none: Option<GradientClipping> = None;
        with_decay.init().with_group(vectors, without_decay.build(), none)
    }
}

/// One training step: the classifier after it, and what the batch gave before it.
///
/// # Errors
/// As [`Classifier::loss`].
pub fn step(
    model: Classifier,
    optimiser: &mut ModuleOptimizer,
    images: Tensor<4>,
    labels: Tensor<1, Int>,
    lambda: f64,
    learning_rate: f64,
) -> Result<(Classifier, LSoftmaxOutput), ModelError> {
    let output = model.loss(images, labels, lambda)?;
    let gradients = GradientsParams::from_grads(output.loss.backward(), &model);
    Ok((optimiser.step(learning_rate, model, gradients), output))
}
