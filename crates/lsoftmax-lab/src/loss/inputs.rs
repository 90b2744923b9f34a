//! The arrays of a batch, read from files and checked against each other.

use std::path::{Path, PathBuf};

use super::LossError;
use lsoftmax_data::arrays::{ArrayFile, Role};

/// The files of a batch.
#[derive(Clone, Debug)]
pub struct InputFiles {
    /// x, samples x features.
    pub features: PathBuf,
    /// W, classes x features.
    pub weights: PathBuf,
    /// y, one per sample.
    pub labels: PathBuf,
    /// b, one per class.
    pub bias: Option<PathBuf>,
}

impl InputFiles {
    /// All files.
    pub fn all(&self) -> impl Iterator<Item = &Path> {
        let always = [&self.features, &self.weights, &self.labels];
        always.into_iter().chain(&self.bias).map(PathBuf::as_path)
    }
}

/// A validated batch: finite numbers, row by row, matching sizes and labels in range.
#[derive(Clone, Debug)]
pub struct Inputs {
    pub(super) features: Vec<f32>,
    pub(super) weights: Vec<f32>,
    pub(super) labels: Vec<i64>,
    pub(super) bias: Option<Vec<f32>>,
    classes: usize,
}

impl Inputs {
    /// Reads a batch. All sizes are compared before any numbers are read.
    ///
    /// # Errors
    /// When an array is invalid, or two arrays do not match.
    pub fn read(files: &InputFiles) -> Result<Self, LossError> {
        let x = ArrayFile::open(&files.features, Role::Features)?;
        let w = ArrayFile::open(&files.weights, Role::Weights)?;
        let y = ArrayFile::open(&files.labels, Role::Labels)?;
        let b = match &files.bias {
            Some(path) => Some(ArrayFile::open(path, Role::Bias)?),
            None => None,
        };
        let classes = w.rows();
        if x.columns() != w.columns() {
            return Err(LossError::Columns {
                features: x.path().to_owned(),
                found: x.columns(),
                weights: w.path().to_owned(),
                expected: w.columns(),
            });
        }
        if y.rows() != x.rows() {
            return Err(LossError::Labels {
                labels: y.path().to_owned(),
                found: y.rows(),
                features: x.path().to_owned(),
                expected: x.rows(),
            });
        }
        if let Some(b) = b.as_ref().filter(|b| b.rows() != classes) {
            return Err(LossError::Bias {
                bias: b.path().to_owned(),
                found: b.rows(),
                weights: w.path().to_owned(),
                expected: classes,
            });
        }
        Ok(Self {
            labels: y.labels(classes)?,
            features: x.floats()?,
            weights: w.floats()?,
            bias: b.map(ArrayFile::floats).transpose()?,
            classes,
        })
    }

    /// The number of samples.
    pub fn samples(&self) -> usize {
        self.labels.len()
    }

    /// The number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The number of features per sample.
    pub fn depth(&self) -> usize {
        self.weights.len() / self.classes
    }
}
