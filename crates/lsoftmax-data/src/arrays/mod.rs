//! Arrays of numbers in numpy's `.npy` files.
//!
//! Reading never trusts a header: sizes are multiplied with care and compared with the file before
//! memory is asked for, nothing is unpickled, and every refusal is a sentence that names the file.
//! Byte order and Fortran order are undone on the way in.

mod error;
mod header;
mod read;
mod write;

pub use error::{ArrayError, ArrayProblem, ShapeText};
pub use read::ArrayFile;
pub use write::{StagedArrays, WriteError};

use std::fmt;

/// What an array is to the head: it decides rank and type, and how its entries are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// x, samples x features.
    Features,
    /// W, classes x features.
    Weights,
    /// b, one number a class.
    Bias,
    /// y, one whole number a sample.
    Labels,
}

impl Role {
    /// The number of dimensions.
    pub fn rank(self) -> usize {
        match self {
            Role::Features | Role::Weights => 2,
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
        }
    }

    /// The entry at a row and a column, in words.
    fn place(self, row: usize, column: usize) -> String {
        match self {
            Role::Features => format!("feature {column} of sample {row}"),
            Role::Weights => format!("weight {column} of class {row}"),
            Role::Bias => format!("the bias of class {row}"),
            Role::Labels => format!("the label of sample {row}"),
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
        })
    }
}
