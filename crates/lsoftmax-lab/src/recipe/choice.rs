//! Choosing a recipe for a data set, and changing the data set of a recipe.

use lsoftmax_data::{DataDir, DataError, DataSource};

use super::{Recipe, RecipeError};

/// The number of steps of a quick run on a folder of images: a minute or two on two cores.
const QUICK_STEPS: u64 = 100;

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
    /// The recipe with the name of a set, or the default recipe for a folder of images; with `quick`,
    /// its quick variant.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn for_data(
        source: &DataSource,
        quick: bool,
        data: &DataDir,
    ) -> Result<Self, ForDataError> {
        if let DataSource::Set(set) = source {
            // Fashion-MNIST is a drop-in replacement for MNIST.
            let name = if set.name == "fashion-mnist" { "mnist" } else { set.name };
            return Ok(if quick { Self::quick(name)? } else { Self::built_in(name)? });
        }
        let set = source.read(data, Self::FOLDER_SHAPE)?;
        let recipe =
            Self::for_folder(source.clone(), set.classes, set.train.len(), Self::FOLDER_SHAPE);
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
