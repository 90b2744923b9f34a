//! The cross-entropy of a linear classifier whose label logit is supplied by the caller.
//!
//! For sample i with label y the logits are z_j = W_j·x_i + b_j. [`forward()`] processes the classes in
//! blocks and returns, for every sample, what a margin needs: the parts of the angle (x·W_y, |x|,
//! |W_y|), the logit z_y, and the log-sum-exp over all *other* classes. The caller computes the
//! label's logit f_y and its derivatives ([`LabelGradient`]); [`backward()`] returns the gradients.
//! Up to [`SAVED_LOGITS_BYTES`] of logits are saved for the backward pass; it recomputes the others.
//!
//! With [normalised weights](HeadProblem::with_normalised_weights) W_j is replaced by W_j/|W_j|, without
//! a copy of W: logits are scaled by class, and the gradient is scaled and projected, in blocks that are
//! in cache.
//!
//! A head whose classes are divided over several problems is computed by [`HeadProblem::of_shard`]: a sample
//! whose class is in another one has the label [`ELSEWHERE`] and only competitors here. The caller merges the
//! log-sum-exps of all problems, and adds their features' gradients.

use std::ops::Range;
use std::sync::Arc;

use crate::engine::Engine;

mod backward;
mod bf16_weights;
mod blocking;
mod forward;
mod label;

pub use backward::{HeadGradients, WantedGradients, backward};
pub use bf16_weights::Bf16Weights;
pub use forward::{HeadForward, HeadSample, forward};
pub use label::{Geometry, LabelGradient};

/// The most bytes of logits that the forward pass saves for the backward pass.
pub const SAVED_LOGITS_BYTES: usize = 24 << 20;

/// The label of a sample whose class is not among those of the problem; see [`HeadProblem::of_shard`].
pub const ELSEWHERE: u32 = u32::MAX;

/// Why the arguments of a head are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// No samples, no classes or no features.
    #[error(
        "the head needs at least one sample, feature and class, but got {samples} x {features} features and {classes} classes"
    )]
    Empty {
        /// Rows of the features.
        samples: usize,
        /// Columns of the features.
        features: usize,
        /// Rows of the weights.
        classes: usize,
    },
    /// The length of a slice does not match the sizes.
    #[error("expected {expected} numbers for {what}, but got {found}")]
    Length {
        /// Which slice.
        what: &'static str,
        /// The length that the sizes require.
        expected: usize,
        /// The actual length.
        found: usize,
    },
    /// A label is not a class.
    #[error("the label of sample {sample} is {label}, but there are only {classes} classes (0 to {})", classes - 1)]
    Label {
        /// The first such sample.
        sample: usize,
        /// Its label.
        label: i64,
        /// The number of classes.
        classes: usize,
    },
}

/// Validated inputs of a head: x is `samples` x `features`, W is `classes` x `features`, both
/// row-major.
#[derive(Clone, Copy, Debug)]
pub struct HeadProblem<'a> {
    features: &'a [f32],
    weights: &'a [f32],
    bias: Option<&'a [f32]>,
    labels: &'a [u32],
    depth: usize,
    classes: usize,
    normalised_weights: bool,
    bf16_weights: Option<&'a Arc<Bf16Weights>>,
}

impl<'a> HeadProblem<'a> {
    /// Validates sizes and labels.
    ///
    /// `depth` is the number of features per sample, and of weights per class.
    ///
    /// # Errors
    /// When sizes do not match, or a label is not a class.
    pub fn new(
        features: &'a [f32],
        weights: &'a [f32],
        bias: Option<&'a [f32]>,
        labels: &'a [u32],
        depth: usize,
        classes: usize,
    ) -> Result<Self, ShapeError> {
        let problem = Self::of_shard(features, weights, bias, labels, depth, classes)?;
        match labels.iter().position(|label| *label == ELSEWHERE) {
            Some(sample) => Err(ShapeError::Label { sample, label: ELSEWHERE.into(), classes }),
            None => Ok(problem),
        }
    }

    /// Some of the classes of a head: as [`HeadProblem::new`], but a label may also be [`ELSEWHERE`]. The forward
    /// pass then has, of that sample, the log-sum-exp and the largest of all logits, and nothing else; the
    /// backward pass adds no label term.
    ///
    /// # Errors
    /// As [`HeadProblem::new`].
    pub fn of_shard(
        features: &'a [f32],
        weights: &'a [f32],
        bias: Option<&'a [f32]>,
        labels: &'a [u32],
        depth: usize,
        classes: usize,
    ) -> Result<Self, ShapeError> {
        let samples = labels.len();
        if samples == 0 || depth == 0 || classes == 0 {
            return Err(ShapeError::Empty { samples, features: depth, classes });
        }
        let expect = |what, expected, found| match expected == found {
            true => Ok(()),
            false => Err(ShapeError::Length { what, expected, found }),
        };
        expect("the features", samples * depth, features.len())?;
        expect("the weights", classes * depth, weights.len())?;
        if let Some(bias) = bias {
            expect("the bias", classes, bias.len())?;
        }
        let is_other = |label: &u32| *label as usize >= classes && *label != ELSEWHERE;
        if let Some(sample) = labels.iter().position(is_other) {
            let label = labels[sample].into();
            return Err(ShapeError::Label { sample, label, classes });
        }
        Ok(Self {
            features,
            weights,
            bias,
            labels,
            depth,
            classes,
            normalised_weights: false,
            bf16_weights: None,
        })
    }

    /// The same with logits W_j·x/|W_j| + b_j. A class whose weights are all zero has the logit b_j, and
    /// its weights the gradient 0.
    ///
    /// [`Geometry`] still describes W itself. [`LabelGradient`] is that of W/|W|: its `across` must
    /// contain the factor 1/|W_y|, and its `along_weight`, which does not change the direction, is 0.
    pub fn with_normalised_weights(mut self) -> Self {
        self.normalised_weights = true;
        self
    }

    /// The same with a copy of the weights in bf16, which an earlier forward pass made of the same weights. It
    /// is not used if its engine or its sizes are others.
    ///
    /// The kernels cannot see whether the weights have changed since; the caller must know.
    pub fn with_bf16_weights(mut self, copy: &'a Arc<Bf16Weights>) -> Self {
        self.bf16_weights = Some(copy);
        self
    }

    /// The number of samples.
    pub fn samples(&self) -> usize {
        self.labels.len()
    }

    /// The number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The same classes with some of the samples.
    fn of_samples(&self, samples: &Range<usize>) -> Self {
        Self {
            features: &self.features[samples.start * self.depth..samples.end * self.depth],
            labels: &self.labels[samples.clone()],
            ..*self
        }
    }

    /// The copy of the weights, if it fits.
    fn bf16_weights(&self, engine: Engine) -> Option<&'a Arc<Bf16Weights>> {
        self.bf16_weights.filter(|copy| copy.is_for(engine, self.classes, self.depth))
    }

    /// The weights of some classes.
    fn weights_of(&self, classes: &Range<usize>) -> &'a [f32] {
        &self.weights[classes.start * self.depth..classes.end * self.depth]
    }

    /// The class of a sample, if it is one of these.
    fn label(&self, sample: usize) -> Option<usize> {
        Some(self.labels[sample]).filter(|label| *label != ELSEWHERE).map(|label| label as usize)
    }

    fn feature(&self, sample: usize) -> &'a [f32] {
        &self.features[sample * self.depth..][..self.depth]
    }

    fn weight(&self, class: usize) -> &'a [f32] {
        &self.weights[class * self.depth..][..self.depth]
    }

    /// Multiply-adds of one of the head's products.
    fn work(&self) -> usize {
        self.samples().saturating_mul(self.depth).saturating_mul(self.classes)
    }
}
