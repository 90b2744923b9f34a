//! Errors while the loss of arrays is computed.

use std::path::PathBuf;

use lsoftmax::{EngineError, HeadError};

use lsoftmax_data::arrays::{ArrayError, WriteError};

/// Why the loss of files could not be computed.
#[derive(Debug, thiserror::Error)]
pub enum LossError {
    /// One of the arrays is invalid.
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// Features and weights have different numbers of columns.
    #[error("{} has {found} features per sample, but {} has {expected} weights per class; both need the same number of columns", features.display(), weights.display())]
    Columns {
        /// The features' file.
        features: PathBuf,
        /// Its columns.
        found: usize,
        /// The weights' file.
        weights: PathBuf,
        /// Its columns.
        expected: usize,
    },
    /// The numbers of labels and samples differ.
    #[error("{} has {found} labels, but {} has {expected} samples; give one label per sample", labels.display(), features.display())]
    Labels {
        /// The labels' file.
        labels: PathBuf,
        /// Its length.
        found: usize,
        /// The features' file.
        features: PathBuf,
        /// Its rows.
        expected: usize,
    },
    /// The numbers of biases and classes differ.
    #[error("{} has {found} values, but {} has {expected} classes; give one bias per class", bias.display(), weights.display())]
    Bias {
        /// The bias's file.
        bias: PathBuf,
        /// Its length.
        found: usize,
        /// The weights' file.
        weights: PathBuf,
        /// Its rows.
        expected: usize,
    },
    /// The head rejected the batch.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The requested kernel path is unavailable.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A gradient that overflows f32, although the loss does not.
    #[error(
        "the gradient of the {of} is {value} in row {row}, column {column}, which exceeds the range of f32; rescale features or weights"
    )]
    Gradient {
        /// Which gradient.
        of: &'static str,
        /// The row of the first such entry.
        row: usize,
        /// The column of the first such entry.
        column: usize,
        /// The value.
        value: f32,
    },
    /// The gradient directory is not a directory.
    #[error("{}: gradients are written to a directory, but this is not one; give another path", .0.display())]
    NotADirectory(PathBuf),
    /// A gradient would overwrite an input.
    #[error("{}: writing gradients to {} would overwrite this input; give another directory", input.display(), directory.display())]
    Overwrite {
        /// The input.
        input: PathBuf,
        /// The gradient directory.
        directory: PathBuf,
    },
    /// The gradients could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A gradient is missing from the autodiff graph.
    #[error("there is no gradient of the {0}; this is a bug in lsoftmax, please report it")]
    Untracked(&'static str),
}

impl LossError {
    /// Whether the input is at fault, rather than the system or the program.
    pub fn is_bad_input(&self) -> bool {
        !matches!(self, Self::Write(_) | Self::Untracked(_))
    }
}
