//! The configuration of the paper's head, and what all configurations have in common.

use burn::config::Config;
use burn::module::{Initializer, Param};
use burn::tensor::{Device, Tensor};
use lsoftmax_flex::Execution;
use lsoftmax_kernels::Precision;
use serde::{Deserialize, Serialize};

use crate::{LSoftmax, Margin, MarginHead, SampleRate};

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
    /// The number of features per sample, D.
    pub features: usize,
    /// The number of classes, K.
    pub classes: usize,
    /// The margin m; 4 by default.
    #[serde(default = "default_margin")]
    pub margin: Margin,
    /// Whether there is a bias, added outside the margin; as in the paper, there is none by default.
    #[serde(default)]
    pub bias: bool,
    /// The precision of matrix products on the CPU.
    #[serde(default)]
    pub precision: Precision,
    /// The initialisation of the weights; He's normal initialisation by default. A bias starts at 0.
    #[serde(default = "default_initializer")]
    pub initializer: Initializer,
    /// The share of the classes that [`MarginHead::sampled`] draws; all by default.
    #[serde(default)]
    pub sample_rate: SampleRate,
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
            sample_rate: SampleRate::ALL,
        }
    }

    /// Sets the margin m. For untrusted input, use [`Margin::new`] and set the field.
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

    /// Builds the head with an execution that was chosen before; it decides the precision. The weights are
    /// initialised eagerly, not at first use.
    ///
    /// # Panics
    /// When there are no features or no classes.
    pub fn init_with(&self, execution: Execution, device: &Device) -> LSoftmax {
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
        MarginHead::from_weights(weight, bias, self.margin, execution)
            .with_sample_rate(self.sample_rate)
    }
}

/// Declares the setters that all configurations of heads have in common, and `init`.
macro_rules! common_setters {
    ($name:ident, $margin:ty) => {
        impl $name {
            /// Sets the precision of matrix products on the CPU.
            pub fn with_precision(mut self, precision: lsoftmax_kernels::Precision) -> Self {
                self.precision = precision;
                self
            }

            /// Sets the initialisation of the weights.
            pub fn with_initializer(mut self, initializer: burn::module::Initializer) -> Self {
                self.initializer = initializer;
                self
            }

            /// Sets the share of the classes that [`MarginHead::sampled`](crate::MarginHead::sampled)
            /// draws. For untrusted input, use [`SampleRate::new`](crate::SampleRate::new) and set the
            /// field.
            ///
            /// # Panics
            /// When `rate` is not above 0 and at most 1.
            pub fn with_sample_rate(mut self, rate: f64) -> Self {
                self.sample_rate =
                    crate::SampleRate::new(rate).unwrap_or_else(|error| panic!("{error}"));
                self
            }

            /// Builds the head. Its weights are initialised eagerly, not at first use, and its
            /// [`Execution`](crate::Execution) is determined by the precision and the environment
            /// variable `LSOFTMAX_KERNEL`.
            ///
            /// # Panics
            /// When there are no features or no classes, or the scale is not above 0 and finite.
            pub fn init(&self, device: &burn::tensor::Device) -> crate::MarginHead<$margin> {
                self.init_with(crate::Execution::new(self.precision), device)
            }
        }
    };
}

pub(crate) use common_setters;

common_setters!(LSoftmaxConfig, Margin);
