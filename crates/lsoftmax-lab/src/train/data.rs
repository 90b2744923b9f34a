//! The images of a training run, split as its recipe says.

use std::sync::Arc;

use lsoftmax_data::{
    DataError, DataProblem, Dataset, HoldOut, Images, Loader, Mean, Reading, Sampling, Shape,
};
use lsoftmax_nn::{BatchShare, NetworkError};

use super::journal::Observer;
use super::{Options, Phase, TrainError};
use crate::model::ModelError;
use crate::recipe::Recipe;

/// Training images as batches, and the images to evaluate on.
#[derive(Debug)]
pub(super) struct TrainingData {
    pub classes: usize,
    pub class_names: Vec<String>,
    pub loader: Arc<Loader>,
    pub validation: Option<Arc<Images>>,
    pub test: Option<Arc<Images>>,
    /// The [digest](Dataset::digest) of all these images.
    pub digest: String,
    /// How the images to evaluate on were chosen.
    pub hold_out: HoldOut,
}

impl TrainingData {
    /// Reads the images and divides them. The mean of the training images is subtracted, unless there is
    /// another. Returns `None` if it was interrupted.
    pub fn read(
        recipe: &Recipe,
        hold_out: HoldOut,
        mean: Option<&Mean>,
        options: &Options,
        observe: &mut Observer<'_>,
    ) -> Result<Option<Self>, TrainError> {
        let [channels, height, width] = recipe.network_config()?.input;
        let shape = Shape { channels, height, width };
        let mut watch =
            |Reading { read, total }| Phase::Reading.report((read, total), &options.stop, observe);
        let set = match recipe.data.read_watched(&options.data, shape, &mut watch) {
            Err(DataError { problem: DataProblem::Interrupted, .. }) => return Ok(None),
            set => set?,
        };
        let digest = set.digest();
        let Dataset { classes, class_names, train, test, name } =
            set.with_test(hold_out, recipe.seed)?;
        if classes < 2 {
            return Err(TrainError::Fit(format!(
                "{name} has one class, but a classifier needs at least two; create a directory for each"
            )));
        }
        if train.shape() != shape {
            return Err(TrainError::Fit(format!(
                "the network takes images of {shape}, but those of {name} are {}",
                train.shape()
            )));
        }
        let (train, validation) = match recipe.validation {
            0 => (train, None),
            held_out => {
                let (train, validation) = hold_out.divide(&train, held_out, recipe.seed)?;
                (train, Some(Arc::new(validation)))
            }
        };
        let mean = mean.cloned().unwrap_or_else(|| Mean::of(&train));
        let sampling = Sampling {
            images_per_class: recipe.images_per_class,
            ..Sampling::training(recipe.batch, recipe.seed, recipe.augment)
        };
        let mut loader = Loader::new(train, mean, sampling)?;
        if options.ranks.size() > 1 {
            let share = BatchShare::new(Arc::clone(&options.ranks), recipe.batch);
            let share = share.map_err(|error| ModelError::from(NetworkError::from(error)))?;
            loader = loader.with_share(share.images());
        }
        let loader = Arc::new(loader);
        let test = test.map(Arc::new);
        Ok(Some(Self { classes, class_names, loader, validation, test, digest, hold_out }))
    }
}
