//! Choosing a recipe for a data set, and changing the data set of a recipe.

use lsoftmax_data::{DataDir, DataError, DataSource, Shape, count_folder};

use super::{Recipe, RecipeError};

/// The number of steps of a quick run on a folder of images: a minute or two on two cores.
const QUICK_STEPS: u64 = 100;

/// Sets of such images, as Fashion-MNIST, are drop-in replacements for MNIST.
const MNIST_SHAPE: Shape = Shape { channels: 1, height: 28, width: 28 };

/// Why no recipe could be chosen for a data set.
#[derive(Debug, thiserror::Error)]
pub enum ForDataError {
    /// The folder could not be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The recipe is invalid.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
}

impl Recipe {
    /// The recipe with the name of a set, or the default recipe for a folder of images or another set; with
    /// `quick`, its quick variant.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn for_data(
        source: &DataSource,
        quick: bool,
        data: &DataDir,
    ) -> Result<Self, ForDataError> {
        let named = |name| if quick { Self::quick(name) } else { Self::built_in(name) };
        let (classes, images, shape) = match source {
            DataSource::Set(set) if Self::NAMES.contains(&set.name) => return Ok(named(set.name)?),
            DataSource::Set(set) => {
                let set = set.read(data)?;
                let shape = set.train.shape();
                if shape == MNIST_SHAPE {
                    return Ok(named("mnist")?);
                }
                (set.classes, set.train.len(), shape)
            }
            DataSource::Folder(path) => {
                let (classes, images) = count_folder(path)?;
                (classes, images, Self::FOLDER_SHAPE)
            }
        };
        let recipe = Self::for_folder(source.clone(), classes, images, shape);
        Ok(if quick { recipe.scaled(QUICK_STEPS) } else { recipe })
    }

    /// The recipe with other data, another name and no expected results.
    pub fn with_data(mut self, data: DataSource) -> Self {
        let name = data.name();
        // A recipe named after its data is named after the new data.
        self.name =
            if self.name == self.data.name() { name } else { format!("{}-{name}", self.name) };
        self.data = data;
        self.expected.clear();
        self
    }
}
