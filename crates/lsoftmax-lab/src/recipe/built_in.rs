//! The recipes of the paper and of a residual network, compiled into the program.

use super::keys::nearest;
use super::{Recipe, RecipeError};

/// The name of a recipe, its text, and the text of its quick variant.
type BuiltIn = (&'static str, &'static str, &'static str);

macro_rules! row {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../recipes/", $name, ".toml")),
            include_str!(concat!("../../recipes/quick/", $name, ".toml")),
        )
    };
}

const BUILT_IN: [BuiltIn; 17] = [
    row!("mnist"),
    row!("mnist-hinge"),
    row!("mnist-2d"),
    row!("cifar10"),
    row!("cifar10-hinge"),
    row!("cifar10-plus"),
    row!("cifar10-plus-hinge"),
    row!("cifar10-resnet20"),
    row!("cifar100"),
    row!("cifar100-hinge"),
    row!("lfw"),
    row!("lfw-contrastive"),
    row!("cifar100-by-margin"),
    row!("cifar100-filters-32-32-64-128"),
    row!("cifar100-filters-64-64-96-128"),
    row!("cifar100-filters-64-64-128-256"),
    row!("cifar100-filters-96-96-192-384"),
];

/// Runs for the studies, from `recipes/study/NAME.toml`: small ones for λ, heads and faces, and the authors' own.
const STUDIES: [(&str, &str); 9] = [
    ("cifar10-authors", include_str!("../../recipes/study/cifar10-authors.toml")),
    ("cifar10-small", include_str!("../../recipes/study/cifar10-small.toml")),
    ("cifar100-small", include_str!("../../recipes/study/cifar100-small.toml")),
    ("faces-small", include_str!("../../recipes/study/faces-small.toml")),
    ("fashion-mnist-small", include_str!("../../recipes/study/fashion-mnist-small.toml")),
    ("lfw-small", include_str!("../../recipes/study/lfw-small.toml")),
    ("lfw-small-contrastive", include_str!("../../recipes/study/lfw-small-contrastive.toml")),
    ("mnist-small", include_str!("../../recipes/study/mnist-small.toml")),
    ("mnist-plane", include_str!("../../recipes/study/mnist-plane.toml")),
];

impl Recipe {
    /// The names of the built-in recipes, for [`Recipe::built_in`] and [`Recipe::quick`].
    pub const NAMES: [&str; BUILT_IN.len()] = {
        let mut names = [""; BUILT_IN.len()];
        let mut row = 0;
        while row < BUILT_IN.len() {
            names[row] = BUILT_IN[row].0;
            row += 1;
        }
        names
    };

    /// A built-in recipe, from `recipes/NAME.toml`.
    ///
    /// # Errors
    /// When no recipe has this name; the error suggests the nearest name.
    pub fn built_in(name: &str) -> Result<Self, RecipeError> {
        let (name, text, _) = row(name)?;
        Self::from_toml(text, &format!("{name}.toml"))
    }

    /// The quick variant of a recipe, which takes a minute or two, from `recipes/quick/NAME.toml`.
    ///
    /// # Errors
    /// When no recipe has this name; the error suggests the nearest name.
    pub fn quick(name: &str) -> Result<Self, RecipeError> {
        let (name, _, text) = row(name)?;
        Self::from_toml(text, &format!("quick/{name}.toml"))
    }

    /// A run for a study, from `recipes/study/NAME.toml`: a small one for λ (`cifar10-small`, `mnist-small`, …), for heads
    /// (`mnist-plane`) or for faces (`lfw-small`, `lfw-small-contrastive`), or that of the authors' file (`cifar10-authors`).
    ///
    /// # Errors
    /// When no recipe has this name; the error suggests the nearest name.
    pub fn study(name: &str) -> Result<Self, RecipeError> {
        let Some((name, text)) = STUDIES.iter().find(|study| study.0 == name) else {
            let names = || STUDIES.iter().map(|study| study.0);
            let known = names().collect::<Vec<_>>().join(", ");
            return Err(RecipeError::Unknown {
                name: name.to_owned(),
                nearest: nearest(name, names()),
                known,
            });
        };
        Self::from_toml(text, &format!("study/{name}.toml"))
    }
}

fn row(name: &str) -> Result<&'static BuiltIn, RecipeError> {
    if let Some(row) = BUILT_IN.iter().find(|row| row.0 == name) {
        return Ok(row);
    }
    let nearest = nearest(name, Recipe::NAMES.into_iter());
    let known = Recipe::NAMES.join(", ");
    Err(RecipeError::Unknown { name: name.to_owned(), nearest, known })
}
