//! Why a run ended early.

use lsoftmax::EngineError;
use lsoftmax_data::{DataError, ImagesError, LoaderError};

use crate::evaluate::EvaluateError;
use crate::model::ModelError;
use crate::number_text::{decimals_text, number_text};
use crate::recipe::RecipeError;
use crate::run::RunError;

use super::Divergence;

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The recipe is invalid.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// The files of the run are invalid or could not be written.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The data could not be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The images do not fit the recipe.
    #[error(transparent)]
    Images(#[from] ImagesError),
    /// Batches could not be made.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// The data does not fit the network.
    #[error("the recipe does not fit the data: {0}")]
    Fit(String),
    /// The requested kernel path is unavailable.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The model rejected a batch.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// An evaluation failed.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
    /// Training diverged.
    #[error(transparent)]
    Divergence(#[from] Divergence),
    /// Training diverged again after the last permitted rollback.
    #[error(
        "training diverged at step {step}, and {rollbacks} rollbacks to an earlier checkpoint with λ up to {} did not help; lower the learning rate (it is {})",
        decimals_text(*lambda, 3),
        number_text(*rate)
    )]
    RollbacksExhausted {
        /// The step.
        step: u64,
        /// The number of rollbacks to an earlier checkpoint.
        rollbacks: usize,
        /// The last λ.
        lambda: f64,
        /// The learning rate.
        rate: f64,
    },
    /// A checkpoint could not be made.
    #[error("the checkpoint of step {step} could not be made: {reason}")]
    Checkpoint {
        /// The step.
        step: u64,
        /// Burn's reason.
        reason: String,
    },
    /// A rank differs from the others.
    #[error("{0}")]
    Ranks(String),
    /// The run cannot be resumed.
    #[error("{0}")]
    Resume(String),
}

impl TrainError {
    /// Whether the input is at fault, rather than the system.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Run(error) => error.is_bad_input(),
            Self::Checkpoint { .. } => false,
            _ => true,
        }
    }
}
