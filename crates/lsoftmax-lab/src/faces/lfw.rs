//! The evaluation of Table 5: the pairs of LFW, by all protocols, and unseen people from the sources of the training images.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Device;
use lsoftmax_comm::{Alone, Communicator};
use lsoftmax_data::{DataDir, DataSource, count_folder};
use lsoftmax_faces::{FacesError, Protocol, Roc, Verification};
use serde::{Deserialize, Serialize};

use super::{FaceError, PairsOfImages, UnseenPeople, verify_images};
use crate::inference::InferenceError;
use crate::model_file::TrainedModel;
use crate::recipe::Recipe;
use crate::run::RECIPE;

/// Where the evaluation is, in the directory of data sets: LFW aligned by `lsoftmax faces align`, its pairs, and the people that
/// `lsoftmax faces list` held out.
#[derive(Clone, Debug)]
pub struct LfwData {
    /// The aligned images.
    pub images: PathBuf,
    /// The pairs.
    pub pairs: PathBuf,
    /// The people who were held out. They are the same for all models, so that these can be compared.
    pub held_out: PathBuf,
}

/// The number of points of a recorded curve.
const CURVE_POINTS: usize = 200;

/// The accuracy of a model on LFW's pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LfwResult {
    /// The number of people that the model was trained on.
    pub people: usize,
    /// The number of their images, with those held out for validation.
    pub images: usize,
    /// By every protocol.
    pub protocols: Vec<Verification>,
    /// False and true accept rates by the paper's protocol, thinned.
    pub roc: Vec<(f64, f64)>,
    /// The people who were held out, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen: Option<UnseenPeople>,
}

impl LfwResult {
    /// The result of a protocol.
    pub fn of(&self, protocol: Protocol) -> Option<&Verification> {
        self.protocols.iter().find(|result| result.protocol == protocol)
    }
}

impl LfwData {
    /// Its place in the directory of data sets.
    pub fn new(data: &DataDir) -> Self {
        let path = data.path();
        Self {
            images: path.join("lfw-aligned"),
            pairs: path.join("lfw/pairs.txt"),
            held_out: path.join("faces-list/held-out"),
        }
    }

    /// What is missing, if anything, and how to make it.
    pub fn missing(&self) -> Option<String> {
        let missing = [&self.pairs, &self.images].into_iter().find(|path| !path.exists())?;
        Some(format!(
            "{}: not found; docs/faces.md says how to prepare the evaluation on LFW",
            missing.display()
        ))
    }

    /// Verifies the pairs, and those of the people who were held out, with the model of a run.
    ///
    /// # Errors
    /// When the model or the images cannot be read, or do not fit together.
    pub fn verify(&self, run: &Path, device: &Device) -> Result<LfwResult, FaceError> {
        let source = PairsOfImages { images: &self.images, pairs: &self.pairs };
        let protocols = Protocol::ALL.map(|(_, protocol)| protocol);
        let alone: Arc<dyn Communicator> = Arc::new(Alone);
        let verified = verify_images(run, source, &protocols, None, device, &alone)?;
        let same: Vec<bool> = verified.pairs.iter().map(|pair| pair.same).collect();
        let paper = verified.results.iter().find(|result| result.protocol == Protocol::Paper);
        let roc = paper.and_then(|result| Roc::of(&result.scores, &same));
        let roc = roc.map_or(Vec::new(), |roc| thinned(&roc.points));
        let recipe = Recipe::from_file(&run.join(RECIPE)).map_err(FaceError::from)?;
        let (people, images) = match &recipe.data {
            DataSource::Folder(folder) => count_folder(folder).map_err(FacesError::from)?,
            DataSource::Set(_) => (0, 0),
        };
        let unseen = match self.held_out.is_dir() {
            true => {
                let model = TrainedModel::read(run, device).map_err(InferenceError::from)?;
                UnseenPeople::of(&model, &self.held_out)?
            }
            false => None,
        };
        Ok(LfwResult { people, images, protocols: verified.results, roc, unseen })
    }
}

/// The first points of a curve at evenly spaced logarithms of the false accept rate.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let least = points.iter().map(|(far, _)| *far).find(|far| *far > 0.0).unwrap_or(1.0).ln();
    let mut kept: Vec<(f64, f64)> = (0..=CURVE_POINTS)
        .map(|index| (least * (1.0 - index as f64 / CURVE_POINTS as f64)).exp())
        .map(|rate| points[points.partition_point(|(far, _)| *far <= rate).saturating_sub(1)])
        .collect();
    kept.dedup();
    kept
}
