//! Why there is no loss, in sentences.

use std::path::PathBuf;

use lsoftmax::{EngineError, HeadError};

use lsoftmax_data::arrays::{ArrayError, WriteError};

/// Why the loss of files could not be computed.
#[derive(Debug, thiserror::Error)]
pub enum LossError {
    /// One of the arrays.
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// Features and weights of different width.
    #[error("{} has {found} features a sample, but {} has {expected} weights a class; both need the same number of columns", features.display(), weights.display())]
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
    /// Not one label a sample.
    #[error("{} has {found} labels, but {} has {expected} samples; give one label a sample", labels.display(), features.display())]
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
    /// Not one bias a class.
    #[error("{} has {found} values, but {} has {expected} classes; give one bias a class", bias.display(), weights.display())]
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
    /// The head refused the batch.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The kernel path asked for is not to be had.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A gradient beyond f32, though the loss is not.
    #[error(
        "the gradient of the {of} is {value} in row {row}, column {column}: it leaves the range of f32; rescale features or weights"
    )]
    Gradient {
        /// Which gradient.
        of: &'static str,
        /// The first such row.
        row: usize,
        /// The first such column of it.
        column: usize,
        /// The value.
        value: f32,
    },
    /// Something else has the gradient directory's name.
    #[error("{}: gradients go to a directory, and this is none; give another name", .0.display())]
    NotADirectory(PathBuf),
    /// A gradient would take the place of an input.
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
    /// The graph lost a gradient.
    #[error("there is no gradient of the {0}; this is a fault of the program")]
    Untracked(&'static str),
}

impl LossError {
    /// Whether other input would help; otherwise the fault is the machine's or the program's.
    pub fn is_bad_input(&self) -> bool {
        !matches!(self, Self::Write(_) | Self::Untracked(_))
    }
}
