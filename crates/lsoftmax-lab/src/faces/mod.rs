//! Faces with a trained model: features, verification.
//!
//! What needs no model is in `lsoftmax-faces`.

mod error;
mod roc_figure;
mod verification;

pub use error::FaceError;
pub use roc_figure::roc_figure;
pub use verification::{Verified, verify_embeddings};
