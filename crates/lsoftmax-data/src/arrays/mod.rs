//! Arrays of numbers in numpy's `.npy` files.
//!
//! Headers are not trusted: sizes are checked for overflow and compared with the size of the file
//! before memory is allocated, nothing is unpickled, and every error names the file. Arrays in any byte
//! order, and in C or Fortran order, are accepted.

mod error;
mod header;
mod read;
mod write;

pub use error::{ArrayError, ArrayProblem, ShapeText};
pub use read::ArrayFile;
pub use write::{StagedArrays, WriteError};

use std::fmt;

/// What an array is used for. It determines the rank and type, and how errors describe an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// x, samples x features.
    Features,
    /// W, classes x features.
    Weights,
    /// b, one number per class.
    Bias,
    /// y, one integer per sample.
    Labels,
    /// Features to compare, one row per image.
    Embeddings,
}

impl Role {
    /// The number of dimensions.
    pub fn rank(self) -> usize {
        match self {
            Role::Features | Role::Weights | Role::Embeddings => 2,
            Role::Bias | Role::Labels => 1,
        }
    }

    /// The dimensions in words.
    fn dimensions(self) -> &'static str {
        match self {
            Role::Features => "two dimensions, samples x features",
            Role::Weights => "two dimensions, classes x features",
            Role::Bias => "one dimension, the classes",
            Role::Labels => "one dimension, the samples",
            Role::Embeddings => "two dimensions, images x features",
        }
    }

    /// A description of the entry at a row and column.
    fn describe_entry(self, row: usize, column: usize) -> String {
        match self {
            Role::Features => format!("feature {column} of sample {row}"),
            Role::Weights => format!("weight {column} of class {row}"),
            Role::Bias => format!("the bias of class {row}"),
            Role::Labels => format!("the label of sample {row}"),
            Role::Embeddings => format!("number {column} of row {row}"),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Features => "features",
            Role::Weights => "weights",
            Role::Bias => "bias",
            Role::Labels => "labels",
            Role::Embeddings => "embeddings",
        })
    }
}
