//! The cross-entropy of a linear classifier whose label logit is the caller's.
//!
//! For sample i with label y the logits are z_j = W_j·x_i + b_j. [`forward`] walks the classes in
//! tiles and returns, for every sample, what a margin needs: the angle's parts (x·W_y, |x|, |W_y|),
//! the plain logit z_y, and the log-sum-exp over all *other* classes. The caller decides on the
//! label's logit f_y and its derivatives ([`LabelGradient`]); [`backward`] returns the gradients.
//! Logits are kept between the two only as far as [`STASH_BYTES`] goes and computed again beyond.

mod backward;
mod forward;
mod label;
mod tiles;

pub use backward::{Gradients, Wanted, backward};
pub use forward::{Forward, Sample, forward};
pub use label::{Geometry, LabelGradient};

/// Logits kept from the forward pass for the backward pass, at most.
pub const STASH_BYTES: usize = 24 << 20;

/// What is wrong with the arguments of a head.
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
    /// A slice is not as long as the sizes say.
    #[error("{what} must hold {expected} numbers but holds {found}")]
    Length {
        /// Which slice.
        what: &'static str,
        /// What the sizes ask for.
        expected: usize,
        /// What is there.
        found: usize,
    },
    /// A label names no class.
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

/// Checked inputs of a head: x is `samples` x `features`, W is `classes` x `features`, both row by row.
#[derive(Clone, Copy, Debug)]
pub struct Problem<'a> {
    features: &'a [f32],
    weights: &'a [f32],
    bias: Option<&'a [f32]>,
    labels: &'a [u32],
    depth: usize,
    classes: usize,
}

impl<'a> Problem<'a> {
    /// Checks sizes and labels.
    ///
    /// `depth` is the number of features of a sample, and of weights of a class.
    ///
    /// # Errors
    /// When a size does not fit another, or a label names no class.
    pub fn new(
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
        if let Some(sample) = labels.iter().position(|label| *label as usize >= classes) {
            let label = labels[sample].into();
            return Err(ShapeError::Label { sample, label, classes });
        }
        Ok(Self { features, weights, bias, labels, depth, classes })
    }

    /// The number of samples.
    pub fn samples(&self) -> usize {
        self.labels.len()
    }

    /// The number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    fn feature(&self, sample: usize) -> &'a [f32] {
        &self.features[sample * self.depth..][..self.depth]
    }

    fn weight(&self, class: usize) -> &'a [f32] {
        &self.weights[class * self.depth..][..self.depth]
    }

    /// Multiply-adds of one product of the head.
    fn work(&self) -> usize {
        self.samples().saturating_mul(self.depth).saturating_mul(self.classes)
    }
}
