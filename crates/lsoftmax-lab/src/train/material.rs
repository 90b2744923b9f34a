//! What a recipe is trained on: images split as it says, and the network that fits them.

use std::path::Path;
use std::sync::Arc;

use lsoftmax_nn::NetworkConfig;

use super::TrainError;
use crate::data::{DataDir, Dataset, Images, Loader, Mean, Sampling, Set, Shape, read_folder};
use crate::recipe::Recipe;

#[derive(Debug)]
pub(super) struct Material {
    pub network: NetworkConfig,
    pub classes: usize,
    pub class_names: Option<Vec<String>>,
    pub loader: Arc<Loader>,
    pub validation: Option<Images>,
    pub test: Option<Images>,
    /// Of all these images, see [`Dataset::digest`].
    pub digest: String,
}

impl Material {
    pub fn new(recipe: &Recipe, data: &DataDir) -> Result<Self, TrainError> {
        let fit = |error: lsoftmax_nn::NetworkError| TrainError::Fit(error.to_string());
        let network = recipe.network.config().map_err(fit)?;
        network.stack().map_err(fit)?;
        let [channels, height, width] = network.input;
        let shape = Shape { channels, height, width };
        let set = read(&recipe.data, data, shape)?;
        let digest = set.digest();
        let Dataset { classes, class_names, train, test, name } = set.with_test(recipe.seed)?;
        if classes < 2 {
            return Err(TrainError::Fit(format!(
                "{name} has one class, but a classifier needs two at least: make a directory for each"
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
                (train, Some(validation))
            }
        };
        let mean = Mean::of(&train);
        let sampling = Sampling::training(recipe.batch, recipe.seed, recipe.augment);
        let loader = Arc::new(Loader::new(train, mean, sampling)?);
        Ok(Self { network, classes, class_names, loader, validation, test, digest })
    }
}

/// Steps of a short run on a folder of images: a minute or two on two cores.
const QUICK_STEPS: u64 = 100;

/// A recipe for a folder of images, or the recipe that is called as a set is; or their short variants.
///
/// # Errors
/// When the folder cannot be read.
pub fn recipe_for(data_name: &str, quick: bool, data: &DataDir) -> Result<Recipe, TrainError> {
    if Set::named(data_name).is_some() {
        // Fashion-MNIST is made to be trained as MNIST is.
        let name = if data_name == "fashion-mnist" { "mnist" } else { data_name };
        return Ok(if quick { Recipe::quick(name)? } else { Recipe::built_in(name)? });
    }
    let set = read(data_name, data, Recipe::FOLDER_SHAPE)?;
    let recipe = Recipe::for_folder(data_name, set.classes, set.train.len(), Recipe::FOLDER_SHAPE);
    Ok(if quick { recipe.scaled(QUICK_STEPS) } else { recipe })
}

/// The recipe in a file.
///
/// # Errors
/// When it cannot be read, or is none.
pub fn recipe_from_file(path: &Path) -> Result<Recipe, TrainError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| TrainError::RecipeFile { path: path.to_owned(), source })?;
    Ok(Recipe::from_toml(&text, &path.display().to_string())?)
}

/// Reads a set by its name, or a folder.
fn read(name: &str, data: &DataDir, shape: Shape) -> Result<Dataset, TrainError> {
    match Set::named(name) {
        Some(set) => Ok(set.read(data)?),
        None => Ok(read_folder(Path::new(name), shape)?),
    }
}
