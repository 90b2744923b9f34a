//! The recipe for some data, or for other data than its own.

use lsoftmax_data::{DataDir, DataError, DataSource};

use super::{Recipe, RecipeError};

/// Steps of a short run on a folder of images: a minute or two on two cores.
const QUICK_STEPS: u64 = 100;

/// Why there is no recipe for some data.
#[derive(Debug, thiserror::Error)]
pub enum ForDataError {
    /// The folder.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The recipe.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
}

impl Recipe {
    /// The recipe that has the name of a set, or one for a folder of images; or their short variants.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn for_data(
        source: &DataSource,
        quick: bool,
        data: &DataDir,
    ) -> Result<Self, ForDataError> {
        if let DataSource::Set(set) = source {
            // Fashion-MNIST was made to be trained as MNIST is.
            let name = if set.name == "fashion-mnist" { "mnist" } else { set.name };
            return Ok(if quick { Self::quick(name)? } else { Self::built_in(name)? });
        }
        let set = source.read(data, Self::FOLDER_SHAPE)?;
        let recipe =
            Self::for_folder(source.clone(), set.classes, set.train.len(), Self::FOLDER_SHAPE);
        Ok(if quick { recipe.scaled(QUICK_STEPS) } else { recipe })
    }

    /// The recipe for other data than its own, without an expected result, under another name.
    pub fn with_data(mut self, data: DataSource) -> Self {
        let name = data.name();
        // A recipe that has the name of its data takes that of the new data.
        self.name =
            if self.name == self.data.name() { name } else { format!("{}-{name}", self.name) };
        self.data = data;
        self.expected.clear();
        self
    }
}
