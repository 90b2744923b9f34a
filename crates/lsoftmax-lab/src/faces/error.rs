//! Why faces could not be verified or identified.

use lsoftmax_data::arrays::{ArrayError, WriteError};
use lsoftmax_faces::{EmbeddingsError, FacesError, VerifyError};

use crate::figures::FigureError;
use crate::inference::InferenceError;
use crate::recipe::RecipeError;

/// Why faces could not be verified or identified.
#[derive(Debug, thiserror::Error)]
pub enum FaceError {
    /// Pairs, images or a gallery.
    #[error(transparent)]
    Faces(#[from] FacesError),
    /// A file of embeddings.
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// Embeddings.
    #[error(transparent)]
    Embeddings(#[from] EmbeddingsError),
    /// Pairs and protocol.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// The model.
    #[error(transparent)]
    Inference(#[from] InferenceError),
    /// The recipe of a run.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// A figure.
    #[error(transparent)]
    Figure(#[from] FigureError),
    /// An array that could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl FaceError {
    /// Whether the input is at fault, rather than the system.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Faces(error) => error.is_bad_input(),
            Self::Inference(error) => error.is_bad_input(),
            Self::Figure(error) => error.is_bad_input(),
            Self::Write(_) => false,
            Self::Array(_) | Self::Embeddings(_) | Self::Verify(_) | Self::Recipe(_) => true,
        }
    }
}
