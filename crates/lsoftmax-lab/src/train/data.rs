//! The images of a training run, split as its recipe says.

use std::sync::Arc;

use lsoftmax_data::{DataDir, Dataset, HoldOut, Images, Loader, Mean, Sampling, Shape};

use super::TrainError;
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
}

impl TrainingData {
    pub fn read(recipe: &Recipe, data: &DataDir) -> Result<Self, TrainError> {
        let [channels, height, width] = recipe.network_config()?.input;
        let shape = Shape { channels, height, width };
        let set = recipe.data.read(data, shape)?;
        let digest = set.digest();
        let Dataset { classes, class_names, train, test, name } =
            set.with_test(HoldOut::OfAll, recipe.seed)?;
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
                let (train, validation) = train.hold_out(held_out, recipe.seed)?;
                (train, Some(Arc::new(validation)))
            }
        };
        let mean = Mean::of(&train);
        let sampling = Sampling::training(recipe.batch, recipe.seed, recipe.augment);
        let loader = Arc::new(Loader::new(train, mean, sampling)?);
        Ok(Self { classes, class_names, loader, validation, test: test.map(Arc::new), digest })
    }
}
