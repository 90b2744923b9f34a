//! What can be wrong with a recipe, in sentences.

use std::path::PathBuf;

/// Why a recipe could not be found, read or run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecipeError {
    /// There is no recipe of this name in the program.
    #[error(
        "there is no recipe called \"{name}\"{} The recipes are {known}; a file of your own must end in .toml",
        nearest.map_or(".".to_owned(), |nearest| format!(": did you mean {nearest}?"))
    )]
    Unknown {
        /// What was asked for.
        name: String,
        /// The most similar name, if one is similar.
        nearest: Option<&'static str>,
        /// All names.
        known: String,
    },
    /// The file cannot be read.
    #[error("{}: the recipe cannot be read ({reason}); check the path", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: String,
    },
    /// The text is not TOML.
    #[error("the recipe {recipe} is not TOML at {place}: {message}")]
    Syntax {
        /// Which recipe.
        recipe: String,
        /// Where in it.
        place: Position,
        /// What is wrong there.
        message: String,
    },
    /// A key that recipes don't have.
    #[error("the recipe {recipe} has the unknown key `{key}` at {place}: {advice}")]
    Key {
        /// Which recipe.
        recipe: String,
        /// The key, after those of the tables that it is in.
        key: String,
        /// Where it is.
        place: Position,
        /// Which key may be meant.
        advice: String,
    },
    /// A key that is missing, or a value that is not of the key's kind.
    #[error("the recipe {recipe} is wrong{}: {message}", at(key, place))]
    Value {
        /// Which recipe.
        recipe: String,
        /// The key, after those of the tables that it is in; empty if it is the recipe as a whole.
        key: String,
        /// Where the value is.
        place: Option<Position>,
        /// What is wrong there.
        message: String,
    },
    /// A setting that no run can have.
    #[error("the recipe {recipe} cannot be run: `{key}`{} {problem}", in_brackets(place))]
    Setting {
        /// Which recipe.
        recipe: String,
        /// The key, after those of the tables that it is in.
        key: String,
        /// Where the value is, if the recipe was read from a text.
        place: Option<Position>,
        /// What it must be, and what it is.
        problem: String,
    },
}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The character of the line, from 1.
    pub column: usize,
}

impl Position {
    /// The place of a byte of `text`.
    pub(super) fn of(text: &str, byte: usize) -> Self {
        let before = text.get(..byte).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        Self { line: before.matches('\n').count() + 1, column: before[start..].chars().count() + 1 }
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

fn at(key: &str, place: &Option<Position>) -> String {
    let key = if key.is_empty() { String::new() } else { format!(" in `{key}`") };
    let place = place.map_or(String::new(), |place| format!(" at {place}"));
    key + &place
}

fn in_brackets(place: &Option<Position>) -> String {
    place.map_or(String::new(), |place| format!(" ({place})"))
}
