//! The accuracy on pairs of faces.

use std::path::{Path, PathBuf};

use lsoftmax_data::arrays::{ArrayFile, Role};
use lsoftmax_faces::{Embeddings, Pair, Pairs, Protocol, Verification, verify};

use super::FaceError;

/// Pairs verified by some protocols.
#[derive(Debug)]
pub struct Verified {
    /// The pairs.
    pub pairs: Vec<Pair>,
    /// The image files that the pairs are of; none if there were only embeddings.
    pub files: Vec<PathBuf>,
    /// The results, one per protocol.
    pub results: Vec<Verification>,
}

/// Embeddings from an `.npy` file.
///
/// # Errors
/// When the file is not an array of finite numbers.
pub fn read_embeddings(path: &Path) -> Result<Embeddings, FaceError> {
    let file = ArrayFile::open(path, Role::Embeddings)?;
    let columns = file.columns();
    Ok(Embeddings::new(columns, file.floats()?)?)
}

/// Verifies pairs of rows of an `.npy` file; [`Pairs::read_table`] says what the file of pairs contains.
///
/// # Errors
/// When a file is invalid, or the pairs do not fit the protocol.
pub fn verify_embeddings(
    embeddings: &Path,
    pairs: &Path,
    protocols: &[Protocol],
) -> Result<Verified, FaceError> {
    let embeddings = read_embeddings(embeddings)?;
    let Pairs { pairs, .. } = Pairs::read_table(pairs, embeddings.rows())?;
    let results = protocols.iter().map(|protocol| verify(&embeddings, &pairs, *protocol));
    let results = results.collect::<Result<_, _>>()?;
    Ok(Verified { pairs, files: Vec::new(), results })
}
