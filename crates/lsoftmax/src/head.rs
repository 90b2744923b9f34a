//! The head as a Burn module.

use burn::config::Config;
use burn::module::{Initializer, Module, Param};
use burn::nn::Linear;
use burn::tensor::module::linear;
use burn::tensor::{Device, Int, Tensor};
use lsoftmax_kernels::Precision;
use lsoftmax_kernels::head::ShapeError;
use serde::{Deserialize, Serialize};

use crate::composed::{self, Composed};
use crate::fused::{self, Pass};
use crate::{HeadError, Margin, Report, lambda};
use std::sync::Arc;

/// Configuration of an [`LSoftmax`] head.
///
/// ```
/// use burn::tensor::Device;
/// use lsoftmax::LSoftmaxConfig;
/// let head = LSoftmaxConfig::new(256, 10).with_margin(4).with_bias(true).init(&Device::flex());
/// assert_eq!(head.weight.dims(), [10, 256]);
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LSoftmaxConfig {
    /// Features of a sample, D.
    pub features: usize,
    /// Classes, K.
    pub classes: usize,
    /// The margin m; 4 unless said otherwise.
    #[serde(default = "default_margin")]
    pub margin: Margin,
    /// Whether there is a bias, added outside the margin. The paper leaves it out, and so does this.
    #[serde(default)]
    pub bias: bool,
    /// The precision of matrix products on the CPU.
    #[serde(default)]
    pub precision: Precision,
    /// How the weights start; He's normal initialisation unless said otherwise. A bias starts at 0.
    #[serde(default = "default_initializer")]
    pub initializer: Initializer,
}

impl Config for LSoftmaxConfig {}

fn default_margin() -> Margin {
    Margin::new(4).unwrap_or(Margin::ONE)
}

fn default_initializer() -> Initializer {
    Initializer::KaimingNormal { gain: std::f64::consts::SQRT_2, fan_out_only: false }
}

impl LSoftmaxConfig {
    /// A head for `features` features and `classes` classes, with margin 4 and no bias.
    pub fn new(features: usize, classes: usize) -> Self {
        Self {
            features,
            classes,
            margin: default_margin(),
            bias: false,
            precision: Precision::default(),
            initializer: default_initializer(),
        }
    }

    /// Sets the margin m, whole or not. For a margin from outside use [`Margin::new`] and the field.
    ///
    /// # Panics
    /// When `margin` is not a number from 1 to 1000.
    pub fn with_margin(mut self, margin: impl Into<f64>) -> Self {
        self.margin = Margin::new(margin).unwrap_or_else(|error| panic!("{error}"));
        self
    }

    /// Sets whether there is a bias.
    pub fn with_bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// Sets the precision of matrix products on the CPU.
    pub fn with_precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// Sets how the weights start.
    pub fn with_initializer(mut self, initializer: Initializer) -> Self {
        self.initializer = initializer;
        self
    }

    /// Builds the head; its weights are drawn here and now, not at first use.
    ///
    /// # Panics
    /// When there are no features or no classes.
    pub fn init(&self, device: &Device) -> LSoftmax {
        let Self { features, classes, .. } = *self;
        assert!(features > 0 && classes > 0, "a head needs features and classes");
        let weight: Param<Tensor<2>> =
            self.initializer.init_with([classes, features], Some(features), Some(classes), device);
        weight.val();
        let bias = self.bias.then(|| {
            let bias = Initializer::Zeros.init([classes], device);
            bias.val();
            bias
        });
        LSoftmax { weight, bias, margin: self.margin, precision: self.precision }
    }
}

/// A classification head with an angular margin: the weights of the last layer and the loss in one.
///
/// In place of `Linear` and `CrossEntropyLoss`:
///
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use lsoftmax::LSoftmaxConfig;
///
/// let device = Device::flex().autodiff();
/// let head = LSoftmaxConfig::new(64, 10).with_margin(4).init(&device);
/// let features = Tensor::random([8, 64], Distribution::Normal(0.0, 1.0), &device);
/// let labels = Tensor::from_ints([0, 1, 2, 3, 4, 5, 6, 7], &device);
/// let out = head.forward(features.clone(), labels, 5.0)?; // λ = 5
/// let gradients = out.loss.backward();
/// assert!(head.weight.val().grad(&gradients).is_some());
/// let scores = head.logits(features); // inference: no label, no margin
/// assert_eq!(scores.dims(), [8, 10]);
/// # Ok::<(), lsoftmax::HeadError>(())
/// ```
#[derive(Module, Debug)]
pub struct LSoftmax {
    /// W, one row a class: `[classes, features]`, as in a linear layer of PyTorch.
    pub weight: Param<Tensor<2>>,
    /// b, one a class.
    pub bias: Option<Param<Tensor<1>>>,
    /// The margin m.
    #[module(skip)]
    pub margin: Margin,
    /// The precision of matrix products on the CPU.
    #[module(skip)]
    pub precision: Precision,
}

/// The loss of a batch, and how to learn more about it.
#[derive(Clone, Debug)]
pub struct LSoftmaxOutput {
    /// The mean loss, of shape `[1]`.
    pub loss: Tensor<1>,
    /// The loss of every sample, of shape `[samples]`.
    pub losses: Tensor<1>,
    details: Details,
    margin: Margin,
    lambda: f64,
}

/// What a forward pass takes, fused or composed.
pub(crate) struct Inputs {
    pub features: Tensor<2>,
    pub weight: Tensor<2>,
    pub bias: Option<Tensor<1>>,
    pub labels: Tensor<1, Int>,
}

#[derive(Clone, Debug)]
enum Details {
    Fused(Arc<Pass>),
    Composed(Box<Composed>),
}

impl LSoftmax {
    /// The loss of a batch. λ comes from a [`LambdaSchedule`](crate::LambdaSchedule) at the
    /// optimiser's step; 0 is the whole margin.
    ///
    /// On Burn's CPU backend in f32 this is one fused operation; everywhere else it is
    /// [composed](LSoftmax::forward_composed) of ordinary ones. The two give the same loss.
    ///
    /// # Shapes
    /// - features: `[samples, features]`
    /// - labels: `[samples]`, each from 0 to classes − 1
    ///
    /// # Errors
    /// When shapes don't fit or λ is negative. On the CPU also when a label names no class and, fused,
    /// when a feature, a weight or the loss is not finite; other devices, which would have to wait for
    /// the values, leave that to [`LSoftmaxOutput::report`].
    pub fn forward(
        &self,
        features: Tensor<2>,
        labels: Tensor<1, Int>,
        lambda: f64,
    ) -> Result<LSoftmaxOutput, HeadError> {
        let inputs = self.inputs(features, labels, lambda)?;
        if !fused::serves(&inputs) {
            return self.compose(inputs, lambda);
        }
        let (losses, pass) = fused::losses(inputs, self.margin, lambda, self.precision)?;
        Ok(self.output(losses, lambda, Details::Fused(pass)))
    }

    /// The same loss, composed of ordinary tensor operations: on every backend and float type, and
    /// the readable definition. It holds all samples-by-classes logits.
    ///
    /// # Errors
    /// When shapes don't fit or λ is negative; on the CPU also when a label names no class.
    pub fn forward_composed(
        &self,
        features: Tensor<2>,
        labels: Tensor<1, Int>,
        lambda: f64,
    ) -> Result<LSoftmaxOutput, HeadError> {
        self.compose(self.inputs(features, labels, lambda)?, lambda)
    }

    /// The plain scores W·x + b, without label or margin: what inference uses.
    ///
    /// # Shapes
    /// - features: `[…, features]`
    /// - output: `[…, classes]`
    pub fn logits<const D: usize>(&self, features: Tensor<D>) -> Tensor<D> {
        linear(features, self.weight.val().transpose(), self.bias.as_ref().map(Param::val))
    }

    /// The class with the largest score, for every sample.
    ///
    /// # Shapes
    /// - features: `[samples, features]`
    /// - output: `[samples]`
    pub fn predict(&self, features: Tensor<2>) -> Tensor<1, Int> {
        self.logits(features).argmax(1).squeeze_dim(1)
    }

    /// A plain linear layer with the same weights.
    pub fn to_linear(&self) -> Linear {
        // Detached: the layer's parameters are its own, not nodes of this head's graph.
        let bias = self.bias.as_ref().map(|bias| Param::from_tensor(bias.val().detach()));
        Linear { weight: Param::from_tensor(self.weight.val().transpose().detach()), bias }
    }

    /// This head with the weights of a plain linear layer.
    ///
    /// # Errors
    /// When the layer has other sizes than the head.
    pub fn with_linear(mut self, layer: &Linear) -> Result<Self, HeadError> {
        let [classes, features] = self.weight.dims();
        let [found, layer_classes] = layer.weight.dims();
        if found != features {
            return Err(HeadError::Features { expected: features, found });
        }
        if layer_classes != classes {
            let what = "the layer's weights";
            let (expected, found) = (classes * features, layer_classes * features);
            return Err(ShapeError::Length { what, expected, found }.into());
        }
        let device = self.weight.device();
        self.weight = copied(layer.weight.val().transpose(), &device);
        self.bias = layer.bias.as_ref().map(|bias| copied(bias.val(), &device));
        Ok(self)
    }

    /// What a forward pass takes, with shapes that fit.
    fn inputs(
        &self,
        features: Tensor<2>,
        labels: Tensor<1, Int>,
        lambda: f64,
    ) -> Result<Inputs, HeadError> {
        lambda::checked(lambda)?;
        let [samples, found] = features.dims();
        let [classes, expected] = self.weight.dims();
        let [named] = labels.dims();
        if found != expected {
            return Err(HeadError::Features { expected, found });
        }
        if named != samples {
            return Err(HeadError::Labels { samples, labels: named });
        }
        if samples == 0 {
            return Err(ShapeError::Empty { samples, features: found, classes }.into());
        }
        let (weight, bias) = (self.weight.val(), self.bias.as_ref().map(Param::val));
        Ok(Inputs { features, weight, bias, labels })
    }

    fn compose(&self, inputs: Inputs, lambda: f64) -> Result<LSoftmaxOutput, HeadError> {
        if fused::on_cpu(&inputs.features) {
            fused::checked_labels(inputs.labels.clone(), inputs.weight.dims()[0])?;
        }
        let (losses, composed) = composed::losses(inputs, self.margin, lambda);
        Ok(self.output(losses, lambda, Details::Composed(Box::new(composed))))
    }

    fn output(&self, losses: Tensor<1>, lambda: f64, details: Details) -> LSoftmaxOutput {
        let loss = losses.clone().mean();
        LSoftmaxOutput { loss, losses, details, margin: self.margin, lambda }
    }
}

/// A parameter with this value, laid out as it is read: a transposed view would be copied at every step.
fn copied<const D: usize>(value: Tensor<D>, device: &Device) -> Param<Tensor<D>> {
    let dtype = value.dtype();
    Param::from_tensor(Tensor::from_data(value.into_data(), (device, dtype)))
}

impl LSoftmaxOutput {
    /// Angles, norms and margins of the batch.
    ///
    /// After a fused forward this costs microseconds. After a composed one it reads the batch back
    /// from the device.
    ///
    /// # Errors
    /// When a label names no class, or a feature, a weight or the loss is not finite.
    pub fn report(&self) -> Result<Report, HeadError> {
        match &self.details {
            Details::Fused(pass) => Ok(pass.report(self.margin, self.lambda)),
            Details::Composed(composed) => {
                composed.report(self.margin, self.lambda, self.losses.clone())
            }
        }
    }
}
