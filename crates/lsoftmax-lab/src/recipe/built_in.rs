//! The recipes of the paper, compiled into the program.

use super::{Recipe, RecipeError};

/// A recipe's name, its text and that of its quick variant.
type Row = (&'static str, &'static str, &'static str);

macro_rules! row {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../../../recipes/", $name, ".toml")),
            include_str!(concat!("../../../../recipes/quick/", $name, ".toml")),
        )
    };
}

const ROWS: [Row; 15] = [
    row!("mnist"),
    row!("mnist-hinge"),
    row!("mnist-2d"),
    row!("cifar10"),
    row!("cifar10-hinge"),
    row!("cifar10-plus"),
    row!("cifar10-plus-hinge"),
    row!("cifar100"),
    row!("cifar100-hinge"),
    row!("lfw"),
    row!("cifar100-by-margin"),
    row!("cifar100-filters-32-32-64-128"),
    row!("cifar100-filters-64-64-96-128"),
    row!("cifar100-filters-64-64-128-256"),
    row!("cifar100-filters-96-96-192-384"),
];

impl Recipe {
    /// The names of the recipes in the program, for [`Recipe::built_in`] and [`Recipe::quick`].
    pub const NAMES: [&str; ROWS.len()] = {
        let mut names = [""; ROWS.len()];
        let mut row = 0;
        while row < ROWS.len() {
            names[row] = ROWS[row].0;
            row += 1;
        }
        names
    };

    /// A recipe of the paper, as `recipes/NAME.toml` has it.
    ///
    /// # Errors
    /// When there is none of this name; the error says which name is nearest.
    pub fn built_in(name: &str) -> Result<Self, RecipeError> {
        let (name, text, _) = row(name)?;
        Self::from_toml(text, &format!("{name}.toml"))
    }

    /// The recipe's variant of a minute or two, as `recipes/quick/NAME.toml` has it.
    ///
    /// # Errors
    /// When there is none of this name; the error says which name is nearest.
    pub fn quick(name: &str) -> Result<Self, RecipeError> {
        let (name, _, text) = row(name)?;
        Self::from_toml(text, &format!("quick/{name}.toml"))
    }
}

fn row(name: &str) -> Result<&'static Row, RecipeError> {
    if let Some(row) = ROWS.iter().find(|row| row.0 == name) {
        return Ok(row);
    }
    let distance = |known: &&str| strsim::damerau_levenshtein(&name.to_lowercase(), known);
    let nearest = Recipe::NAMES.into_iter().min_by_key(distance);
    let nearest = nearest.filter(|known| 2 * distance(known) <= known.len());
    let known = Recipe::NAMES.join(", ");
    Err(RecipeError::Unknown { name: name.to_owned(), nearest, known })
}
