//! Why a run ended early.

use lsoftmax::EngineError;
use lsoftmax_data::{DataError, ImagesError, LoaderError};

use crate::evaluate::EvaluateError;
use crate::model::ModelError;
use crate::recipe::RecipeError;
use crate::run::RunError;

use super::Divergence;

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The recipe.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// Its files.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Its data.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The images and the recipe do not fit.
    #[error(transparent)]
    Images(#[from] ImagesError),
    /// The batches.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// The network and the data do not fit.
    #[error("the recipe does not fit the data: {0}")]
    Fit(String),
    /// The requested kernel path is unavailable.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The model refused a batch.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// An evaluation.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
    /// Training diverged.
    #[error(transparent)]
    Divergence(#[from] Divergence),
    /// It diverges whatever λ is.
    #[error(
        "training diverged at step {step}, and {rollbacks} rollbacks to an earlier checkpoint with λ up to {lambda:.3} did not help: lower the learning rate (it is {rate})"
    )]
    Hopeless {
        /// The step.
        step: u64,
        /// Rollbacks to an earlier checkpoint.
        rollbacks: usize,
        /// The last λ.
        lambda: f64,
        /// The learning rate.
        rate: f64,
    },
    /// The run cannot be resumed.
    #[error("{0}")]
    Resume(String),
}

impl TrainError {
    /// Whether other arguments or data would help; else the machine failed.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Run(error) => error.is_bad_input(),
            _ => true,
        }
    }
}
