//! Errors of the head.

use lsoftmax_kernels::EngineError;
use lsoftmax_kernels::head::ShapeError;

use crate::LambdaError;

/// Why a head rejected a batch.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HeadError {
    /// Sizes that do not match, or a label out of range.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The number of features differs from that of the weights.
    #[error("the head was built for {expected} features per sample, but the batch has {found}")]
    Features {
        /// The number of columns of the weights.
        expected: usize,
        /// The number of columns of the features.
        found: usize,
    },
    /// The number of labels differs from that of the samples.
    #[error("there are {samples} samples but {labels} labels")]
    Labels {
        /// The number of samples.
        samples: usize,
        /// The number of labels.
        labels: usize,
    },
    /// λ is negative or not finite.
    #[error(transparent)]
    Lambda(#[from] LambdaError),
    /// The requested kernel path is unavailable.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A divided head on another device than the CPU, or of another type than f32.
    #[error(
        "a head whose classes are divided is computed by the CPU kernels: it needs f32 tensors on `Device::flex`"
    )]
    NotOnCpu,
    /// A feature is NaN or infinite.
    #[error(
        "feature {index} of sample {sample} is {value}: the network before the head has diverged, or its input was not finite"
    )]
    Feature {
        /// The first such sample.
        sample: usize,
        /// The index of the first such feature.
        index: usize,
        /// The value.
        value: f64,
    },
    /// A weight is NaN or infinite.
    #[error(
        "weight {index} of class {class} is {value}: the last update was not finite; lower the learning rate or raise λ"
    )]
    Weight {
        /// The first such class.
        class: usize,
        /// The index of the first such weight.
        index: usize,
        /// The value.
        value: f64,
    },
    /// A bias is NaN or infinite.
    #[error(
        "the bias of class {class} is {value}: the last update was not finite; lower the learning rate or raise λ"
    )]
    Bias {
        /// The first such class.
        class: usize,
        /// The value.
        value: f64,
    },
    /// The loss of a sample is NaN or infinite although its inputs are finite.
    #[error(
        "the loss of sample {sample} is {value} although features and weights are finite: with |x| = {feature_norm:e} and |W| = {weight_norm:e} its logits exceed the range of the number format; rescale the features"
    )]
    Loss {
        /// The first such sample.
        sample: usize,
        /// The value.
        value: f64,
        /// |x| of the sample.
        feature_norm: f64,
        /// |W_y| of its class.
        weight_norm: f64,
    },
}

impl HeadError {
    /// Whether a number is not finite, which means that training has diverged.
    pub fn is_not_finite(&self) -> bool {
        use HeadError::{Bias, Feature, Loss, Weight};
        matches!(self, Feature { .. } | Weight { .. } | Bias { .. } | Loss { .. })
    }
}

/// The first number that is not finite in rows of `width`, as (row, column, value).
pub(crate) fn first_not_finite(values: &[f64], width: usize) -> Option<(usize, usize, f64)> {
    let index = values.iter().position(|value| !value.is_finite())?;
    Some((index / width, index % width, values[index]))
}
