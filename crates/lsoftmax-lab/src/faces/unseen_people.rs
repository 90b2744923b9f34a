//! How well a model tells people apart whom it was not trained on.

use std::path::Path;
use std::sync::Arc;

use lsoftmax_data::{Dataset, read_folder};
use lsoftmax_faces::{Embeddings, FacesError, Pair, Protocol, verify};
use serde::{Deserialize, Serialize};

use super::FaceError;
use crate::features::{Features, Flip};
use crate::inference::{InferenceError, input_shape};
use crate::model_file::TrainedModel;

/// The verification of all pairs of images of people whom a model was not trained on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnseenPeople {
    /// The number of people.
    pub people: usize,
    /// The number of their images.
    pub images: usize,
    /// The area under the ROC curve of the cosines, over all pairs of images; features are those of the image and its mirror image,
    /// concatenated.
    pub auc: f64,
}

impl UnseenPeople {
    /// Verifies all pairs of images of a folder with one directory per person; none if all pairs are of one kind.
    ///
    /// # Errors
    /// When the images cannot be read, or do not fit the model.
    pub fn of(model: &TrainedModel, folder: &Path) -> Result<Option<Self>, FaceError> {
        let shape = input_shape(&model.description.network.input);
        let Dataset { train: images, classes, .. } =
            read_folder(folder, shape).map_err(FacesError::from)?;
        let pairs = Pair::all(images.labels());
        let count = images.len();
        let features = Features::of(model, Arc::new(images), true).map_err(InferenceError::from)?;
        let (columns, rows) = features.rows(Some(Flip::Concat));
        let result = verify(&Embeddings::new(columns, rows)?, &pairs, Protocol::BestThreshold)?;
        Ok(result.auc.map(|auc| Self { people: classes, images: count, auc }))
    }
}
