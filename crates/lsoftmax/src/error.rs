//! What can go wrong in a head, in sentences.

use lsoftmax_kernels::EngineError;
use lsoftmax_kernels::head::ShapeError;

use crate::LambdaError;

/// Why a head refused a batch.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HeadError {
    /// Sizes that don't fit, or a label that names no class.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The features have another width than the weights.
    #[error("the head was built for {expected} features per sample, but the batch has {found}")]
    Features {
        /// Columns of the weights.
        expected: usize,
        /// Columns of the features.
        found: usize,
    },
    /// There is not one label per sample.
    #[error("there are {samples} samples but {labels} labels")]
    Labels {
        /// Rows of the features.
        samples: usize,
        /// The number of labels.
        labels: usize,
    },
    /// λ is negative or not finite.
    #[error(transparent)]
    Lambda(#[from] LambdaError),
    /// The kernel path asked for is unavailable.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A feature is NaN or infinite.
    #[error(
        "feature {index} of sample {sample} is {value}: the network before the head has diverged, or its input was not finite"
    )]
    Feature {
        /// The first such sample.
        sample: usize,
        /// The first such feature of it.
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
        /// The first such weight of it.
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
    /// The loss of a sample is NaN or infinite though its inputs are finite.
    #[error(
        "the loss of sample {sample} is {value} although features and weights are finite: with |x| = {feature_norm:e} and |W| = {weight_norm:e} its logits leave the range of the number format; rescale the features"
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
    /// Whether a number that should be finite is not: training has diverged.
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
