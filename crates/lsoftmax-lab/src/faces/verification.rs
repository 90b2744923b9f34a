//! The accuracy on pairs of faces.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Device;
use lsoftmax_comm::Communicator;
use lsoftmax_data::arrays::{ArrayFile, Role};
use lsoftmax_data::{Shape, read_images};
use lsoftmax_faces::{
    Embeddings, Pair, Pairs, Protocol, Verification, VerifyError, verify, verify_with_pca,
};

use super::FaceError;
use crate::features::{Features, Flip};
use crate::figures::{Picture, Thumbnail, contact_sheet};
use crate::inference::{InferenceError, input_shape};
use crate::model_file::TrainedModel;

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

impl Verified {
    /// The pairs that a result got most wrong, worst first: at most `count` false accepts and `count` false rejects.
    fn worst(&self, result: &Verification, count: usize) -> [Vec<usize>; 2] {
        let mut wrong: [Vec<usize>; 2] = [false, true].map(|same| {
            let of_kind = (0..self.pairs.len()).filter(|pair| self.pairs[*pair].same == same);
            of_kind.filter(|pair| result.accepts(*pair, self.pairs[*pair].fold) != same).collect()
        });
        let score = |pair: &usize| result.scores[*pair];
        wrong[0].sort_by(|one, other| score(other).total_cmp(&score(one)));
        wrong[1].sort_by(|one, other| score(one).total_cmp(&score(other)));
        wrong.iter_mut().for_each(|pairs| pairs.truncate(count));
        wrong
    }
}

/// The number of pairs of each kind in a picture.
const WORST: usize = 9;
/// The size of a face in it.
const FACE: Shape = Shape { channels: 3, height: 112, width: 96 };

impl Verified {
    /// A picture of the pairs that a result got most wrong, false accepts first.
    ///
    /// # Errors
    /// When an image cannot be read, or there is no wrong pair.
    pub fn picture_of_worst(&self, result: &Verification) -> Result<Picture, FaceError> {
        let [accepted, rejected] = self.worst(result, WORST);
        let pairs: Vec<usize> = accepted.into_iter().chain(rejected).collect();
        let files: Vec<PathBuf> = pairs
            .iter()
            .map(|pair| &self.pairs[*pair])
            .flat_map(|pair| [pair.left, pair.right].map(|image| self.files[image].clone()))
            .collect();
        let images = read_images(&files, FACE).map_err(InferenceError::from)?;
        let thumbnail = |(index, file): (usize, &PathBuf)| {
            let pair = pairs[index / 2];
            let kind = if self.pairs[pair].same { "rejected" } else { "accepted" };
            let score = result.scores[pair];
            let score = if result.protocol.is_distance() { -score } else { score };
            let name = file.file_stem().unwrap_or_default().to_string_lossy().replace('_', " ");
            let captions = vec![format!("{kind}, {score:.2}")];
            Thumbnail { pixels: images.image(index), title: name, captions }
        };
        let thumbnails: Vec<Thumbnail<'_>> = files.iter().enumerate().map(thumbnail).collect();
        Ok(contact_sheet(&thumbnails, FACE)?)
    }
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

/// Verifies pairs of rows of an `.npy` file; [`Pairs::read_table`] says what the file of pairs contains. `pca` is the
/// number of components of the paper's protocol.
///
/// # Errors
/// When a file is invalid, or the pairs do not fit the protocol.
pub fn verify_embeddings(
    embeddings: &Path,
    pairs: &Path,
    protocols: &[Protocol],
    pca: Option<usize>,
) -> Result<Verified, FaceError> {
    let embeddings = read_embeddings(embeddings)?;
    let Pairs { pairs, .. } = Pairs::read_table(pairs, embeddings.rows())?;
    let results = protocols.iter().map(|protocol| by(*protocol, &embeddings, &pairs, pca));
    let results = results.collect::<Result<_, _>>()?;
    Ok(Verified { pairs, files: Vec::new(), results })
}

/// Aligned images, and pairs of them in the format of LFW's `pairs.txt`.
#[derive(Clone, Copy, Debug)]
pub struct PairsOfImages<'a> {
    /// The directory of the images.
    pub images: &'a Path,
    /// The file of pairs.
    pub pairs: &'a Path,
}

/// Verifies pairs of images with the model of a run. Each protocol has its own features: the image's and its mirror
/// image's, concatenated for SphereFace, added for InsightFace and the best threshold; the image's alone for the paper.
///
/// # Errors
/// When the model, the pairs or the images cannot be read, or do not fit together.
pub fn verify_images(
    run: &Path,
    source: PairsOfImages<'_>,
    protocols: &[Protocol],
    pca: Option<usize>,
    device: &Device,
    ranks: &Arc<dyn Communicator>,
) -> Result<Verified, FaceError> {
    let model = TrainedModel::read(run, device).map_err(InferenceError::from)?.with_ranks(ranks);
    let pairs = Pairs::read_lfw(source.pairs)?;
    let files = pairs.files(source.images)?;
    let shape = input_shape(&model.description.network.input);
    let images = read_images(&files, shape).map_err(InferenceError::from)?;
    let features = Features::of(&model, Arc::new(images), true).map_err(InferenceError::from)?;
    let Pairs { pairs, .. } = pairs;
    let result = |protocol: &Protocol| -> Result<Verification, FaceError> {
        let flip = match protocol {
            Protocol::SphereFace => Some(Flip::Concat),
            Protocol::InsightFace | Protocol::BestThreshold => Some(Flip::Sum),
            Protocol::Paper => None,
        };
        let (columns, rows) = features.rows(flip);
        Ok(by(*protocol, &Embeddings::new(columns, rows)?, &pairs, pca)?)
    };
    let results = protocols.iter().map(result).collect::<Result<_, _>>()?;
    Ok(Verified { pairs, files, results })
}

fn by(
    protocol: Protocol,
    embeddings: &Embeddings,
    pairs: &[Pair],
    pca: Option<usize>,
) -> Result<Verification, VerifyError> {
    match (protocol, pca) {
        (Protocol::Paper, Some(dimension)) => verify_with_pca(embeddings, pairs, dimension),
        _ => verify(embeddings, pairs, protocol),
    }
}
