//! Faces, from photographs with landmarks to verified and identified people. Plain mathematics and files: no
//! network, no training.
//!
//! | | |
//! |---|---|
//! | [`Landmarks`], [`Template`], [`Similarity`], [`align`](mod@align) | five points → an aligned crop |
//! | [`list`](mod@list) | a training list without the people of the evaluation, without duplicates |
//! | [`Pairs`], [`verify`](fn@verify), [`Protocol`] | the accuracy on pairs of faces, by the conventions in use |
//! | [`Roc`] | false and true accept rates, area, equal error rate |
//! | [`Gallery`] | the nearest identities, exactly |
//!
//! # Pixels
//!
//! Whole coordinates are the centres of pixels: (0, 0) is the centre of the upper left one, as in OpenCV and
//! scikit-image. An image of width w reaches from −0.5 to w − 0.5.

pub mod align;
mod delimited;
mod embeddings;
mod error;
mod gallery;
mod landmarks;
pub mod list;
mod names;
mod pairs;
mod pca;
mod perceptual_hash;
mod protocol;
mod roc;
mod similarity;
mod template;
mod thresholds;
mod warp;

pub use embeddings::{Embeddings, EmbeddingsError};
pub use error::FacesError;
pub use gallery::{Gallery, Identification, Match};
pub use landmarks::{FivePoints, Landmarks};
pub use names::{NameMatch, NormalisedName};
pub use pairs::{Pair, Pairs};
pub use perceptual_hash::PerceptualHash;
pub use protocol::{
    FoldResult, PcaReport, Protocol, Verification, VerifyError, verify, verify_with_pca,
};
pub use roc::{Roc, TarAtFar};
pub use similarity::Similarity;
pub use template::Template;
pub use warp::warp;
