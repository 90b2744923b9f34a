//! Faces with a trained model: verification of pairs, identification in a gallery.
//!
//! What needs no model is in `lsoftmax-faces`.

mod error;
mod identify;
mod lfw;
mod roc_figure;
mod unseen_people;
mod verification;

pub use error::FaceError;
pub use identify::{FaceSource, IdentifyReport, IdentifySettings, Probe, identify};
pub use lfw::{LfwData, LfwResult};
pub use roc_figure::roc_figure;
pub use unseen_people::UnseenPeople;
pub use verification::{
    PairsOfImages, Verified, read_embeddings, verify_embeddings, verify_images,
};
