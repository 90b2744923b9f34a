//! The head as a Burn module.

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::module::linear;
use burn::tensor::{Device, Int, Tensor};
use lsoftmax_flex::{Execution, is_flex};
use lsoftmax_kernels::head::ShapeError;

use crate::composed::{self, ComposedPass};
use crate::fused::{self, HeadPass};
use crate::normalisation::unit_rows;
use crate::weight_copy::WeightCopy;
use crate::{AngularMargin, HeadError, Margin, Normalisation, Report, SampleRate, lambda};

/// The head of the large-margin softmax.
pub type LSoftmax<M = Margin> = MarginHead<M>;

/// A classification head with an angular margin: the weights of the last layer and the loss in one.
///
/// A head is a [`Normalisation`], which decides what the logits are besides cosines, and an
/// [`AngularMargin`], which decides what replaces the label's cosine.
/// [`LSoftmaxConfig`](crate::LSoftmaxConfig) makes the
/// paper's head, [`ASoftmaxConfig`](crate::ASoftmaxConfig), [`CosFaceConfig`](crate::CosFaceConfig),
/// [`ArcFaceConfig`](crate::ArcFaceConfig) and [`NormSoftmaxConfig`](crate::NormSoftmaxConfig) those of
/// its successors; [`MarginHead::with_margin`] and [`MarginHead::with_normalisation`] any other.
///
/// It replaces `Linear` and `CrossEntropyLoss`:
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
pub struct MarginHead<M: AngularMargin = Margin> {
    /// W, one row per class: `[classes, features]`, as in a linear layer of PyTorch.
    pub weight: Param<Tensor<2>>,
    /// b, one per class.
    pub bias: Option<Param<Tensor<1>>>,
    /// The logarithm of the scale s, if it is learned.
    pub log_scale: Option<Param<Tensor<1>>>,
    /// The margin.
    #[module(skip)]
    pub margin: M,
    /// What is normalised.
    #[module(skip)]
    pub normalisation: Normalisation,
    /// How the loss is computed.
    #[module(skip)]
    pub execution: Execution,
    /// The share of the classes that [`MarginHead::sampled`] draws.
    #[module(skip)]
    pub sample_rate: SampleRate,
    /// The weights in bf16, if the execution keeps them.
    #[module(skip)]
    pub weight_copy: WeightCopy,
}

/// The loss of a batch, with access to a [`Report`].
#[derive(Clone, Debug)]
pub struct HeadOutput<M = Margin> {
    /// The mean loss, of shape `[1]`.
    pub loss: Tensor<1>,
    /// The loss of every sample, of shape `[samples]`.
    pub losses: Tensor<1>,
    details: Details,
    /// The features before they were normalised, if they were.
    raw_features: Option<Tensor<2>>,
    margin: M,
    lambda: f64,
}

/// The inputs of a forward pass, fused or composed.
pub(crate) struct HeadTensors {
    pub features: Tensor<2>,
    pub weight: Tensor<2>,
    pub bias: Option<Tensor<1>>,
    pub labels: Tensor<1, Int>,
    pub normalisation: Normalisation,
    pub weight_copy: WeightCopy,
}

#[derive(Clone, Debug)]
enum Details {
    Fused(Arc<HeadPass>),
    Composed(Box<ComposedPass>),
}

impl<M: AngularMargin> MarginHead<M> {
    /// A head with these weights, `[classes, features]`, and this bias, one per class, that normalises
    /// nothing.
    pub fn from_weights(
        weight: Param<Tensor<2>>,
        bias: Option<Param<Tensor<1>>>,
        margin: M,
        execution: Execution,
    ) -> Self {
        let (normalisation, sample_rate) = (Normalisation::None, SampleRate::ALL);
        let weight_copy = WeightCopy::default();
        Self {
            weight,
            bias,
            log_scale: None,
            margin,
            normalisation,
            execution,
            sample_rate,
            weight_copy,
        }
    }

    /// The loss of a batch. λ comes from a [`LambdaSchedule`](crate::LambdaSchedule) at the
    /// optimiser's step; 0 is the full margin.
    ///
    /// By default f32 tensors on the CPU are computed by one fused operation, all others by Burn's
    /// own operations, which materialise all samples-by-classes logits; see
    /// [`with_execution`](MarginHead::with_execution). Both give the same loss.
    ///
    /// # Shapes
    /// - features: `[samples, features]`
    /// - labels: `[samples]`, each from 0 to classes − 1
    ///
    /// # Errors
    /// When shapes do not match or λ is invalid. On the CPU also when a label is out of range and, fused,
    /// when a feature, a weight or the loss is not finite, or the requested kernel path is unavailable.
    /// On other devices, where reading the values would block, [`HeadOutput::report`] checks them.
    pub fn forward(
        &self,
        features: Tensor<2>,
        labels: Tensor<1, Int>,
        lambda: f64,
    ) -> Result<HeadOutput<M>, HeadError> {
        let raw_features =
            self.normalisation.normalises_features().then(|| features.clone().detach());
        let tensors = self.tensors(features, labels, lambda)?;
        let engine = if fused::is_supported(&tensors) { self.execution.engine()? } else { None };
        let (losses, details) = if let Some(engine) = engine {
            let (losses, pass) = fused::losses(tensors, &self.margin, lambda, engine)?;
            (losses, Details::Fused(pass))
        } else {
            if is_flex(&tensors.features) {
                fused::label_indices(tensors.labels.clone(), tensors.weight.dims()[0])?;
            }
            let (losses, pass) = composed::losses(tensors, &self.margin, lambda);
            (losses, Details::Composed(Box::new(pass)))
        };
        let loss = losses.clone().mean();
        Ok(HeadOutput { loss, losses, details, raw_features, margin: self.margin.clone(), lambda })
    }

    /// This head with another margin, which need not be a [`Margin`]: see [`AngularMargin`].
    pub fn with_margin<N: AngularMargin>(self, margin: N) -> MarginHead<N> {
        let Self {
            weight,
            bias,
            log_scale,
            normalisation,
            execution,
            sample_rate,
            weight_copy,
            ..
        } = self;
        MarginHead {
            weight,
            bias,
            log_scale,
            margin,
            normalisation,
            execution,
            sample_rate,
            weight_copy,
        }
    }

    /// This head with another normalisation, and a scale that is not learned.
    ///
    /// # Panics
    /// When the scale is not above 0 and finite.
    pub fn with_normalisation(mut self, normalisation: Normalisation) -> Self {
        normalisation.check();
        (self.normalisation, self.log_scale) = (normalisation, None);
        self
    }

    /// This head with a scale that is learned. Its logarithm is the parameter, so that it stays above 0.
    /// Without normalised features there is no scale, and nothing changes.
    pub fn with_learned_scale(mut self) -> Self {
        let learned = self.normalisation.learned_scale(&self.weight.device());
        self.log_scale = learned.or(self.log_scale);
        self
    }

    /// This head with another share of the classes for [`MarginHead::sampled`].
    pub fn with_sample_rate(mut self, rate: SampleRate) -> Self {
        self.sample_rate = rate;
        self
    }

    /// The scale s: `None` unless features are normalised.
    pub fn scale(&self) -> Option<f64> {
        match (self.normalisation, &self.log_scale) {
            (Normalisation::Both { .. }, Some(log)) => {
                Some(f64::from(log.val().into_scalar::<f32>()).exp())
            }
            (Normalisation::Both { scale }, None) => Some(scale),
            _ => None,
        }
    }

    /// This head with another execution. [`Execution::Composed`] uses Burn's own operations on the CPU
    /// too: the readable definition of the loss, for comparison.
    pub fn with_execution(mut self, execution: Execution) -> Self {
        (self.execution, self.weight_copy) = (execution, WeightCopy::default());
        self
    }

    /// The plain scores without label or margin, for inference: W·x + b, of normalised vectors if the head
    /// normalises them.
    ///
    /// # Shapes
    /// - features: `[…, features]`
    /// - output: `[…, classes]`
    pub fn logits<const D: usize>(&self, features: Tensor<D>) -> Tensor<D> {
        let shape = features.shape();
        let features = match self.normalisation.normalises_features() {
            true => {
                let width = shape[D - 1];
                let rows = features.reshape([shape.num_elements() / width.max(1), width]);
                self.normalised(rows).reshape(shape)
            }
            false => features,
        };
        let weight = self.effective_weight().transpose();
        linear(features, weight, self.bias.as_ref().map(Param::val))
    }

    /// W, normalised if the head does so.
    fn effective_weight(&self) -> Tensor<2> {
        let weight = self.weight.val();
        if self.normalisation.normalises_weights() { unit_rows(weight) } else { weight }
    }

    /// Features of length s, if the head normalises them.
    fn normalised(&self, features: Tensor<2>) -> Tensor<2> {
        self.normalisation.of_features(features, self.log_scale.as_ref())
    }

    /// The class with the largest score, for every sample.
    ///
    /// # Shapes
    /// - features: `[samples, features]`
    /// - output: `[samples]`
    pub fn predict(&self, features: Tensor<2>) -> Tensor<1, Int> {
        self.logits(features).argmax(1).squeeze_dim(1)
    }

    /// A plain linear layer with the same weights, normalised if the head does so. If the head normalises
    /// features, the layer must be given features of length s.
    pub fn to_linear(&self) -> Linear {
        // Detached, so that the layer's parameters are leaves and not part of this head's graph.
        let bias = self.bias.as_ref().map(|bias| Param::from_tensor(bias.val().detach()));
        Linear { weight: Param::from_tensor(self.effective_weight().transpose().detach()), bias }
    }

    /// This head with the weights of a plain linear layer.
    ///
    /// # Errors
    /// When the sizes of the layer differ from those of the head.
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

    /// The inputs of a forward pass, with checked shapes.
    fn tensors(
        &self,
        features: Tensor<2>,
        labels: Tensor<1, Int>,
        lambda: f64,
    ) -> Result<HeadTensors, HeadError> {
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
        let features = self.normalised(features);
        let (normalisation, weight_copy) = (self.normalisation, self.weight_copy.clone());
        Ok(HeadTensors { features, weight, bias, labels, normalisation, weight_copy })
    }
}

/// A contiguous copy of a tensor as a parameter; a transposed view would be copied at every step.
fn copied<const D: usize>(value: Tensor<D>, device: &Device) -> Param<Tensor<D>> {
    let dtype = value.dtype();
    Param::from_tensor(Tensor::from_data(value.into_data(), (device, dtype)))
}

impl<M: AngularMargin> HeadOutput<M> {
    /// Angles, norms and margins of the batch.
    ///
    /// After a fused forward this costs microseconds. After a composed one it reads the batch back
    /// from the device.
    ///
    /// # Errors
    /// When a label is out of range, or a feature, a weight or the loss is not finite.
    pub fn report(&self) -> Result<Report<M>, HeadError> {
        let (margin, lambda) = (self.margin.clone(), self.lambda);
        let report = match &self.details {
            Details::Fused(pass) => pass.report(margin, lambda),
            Details::Composed(pass) => pass.report(margin, lambda, self.losses.clone())?,
        };
        Ok(match &self.raw_features {
            Some(features) => report.with_features(features),
            None => report,
        })
    }
}
