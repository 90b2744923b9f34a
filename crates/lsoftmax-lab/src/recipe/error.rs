//! Errors in recipes.

use std::path::PathBuf;

/// Why a recipe could not be found, read or run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecipeError {
    /// No built-in recipe has this name.
    #[error(
        "there is no recipe called \"{name}\"{} The recipes are {known}; a file of your own must end in .toml",
        nearest.map_or(".".to_owned(), |nearest| format!(": did you mean {nearest}?"))
    )]
    Unknown {
        /// The requested name.
        name: String,
        /// The most similar name, if there is one.
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
    #[error("the recipe {recipe} is not TOML at {position}: {message}")]
    Syntax {
        /// Which recipe.
        recipe: String,
        /// The position of the error.
        position: Position,
        /// What is wrong.
        message: String,
    },
    /// An unknown key.
    #[error("the recipe {recipe} has the unknown key `{key}` at {position}: {advice}")]
    Key {
        /// Which recipe.
        recipe: String,
        /// The full path of the key.
        key: String,
        /// The position of the key.
        position: Position,
        /// A suggestion.
        advice: String,
    },
    /// A missing key, or a value of the wrong type.
    #[error("the recipe {recipe} is invalid{}: {message}", at(key, position))]
    Value {
        /// Which recipe.
        recipe: String,
        /// The full path of the key; empty if the error concerns the recipe as a whole.
        key: String,
        /// The position of the value.
        position: Option<Position>,
        /// What is wrong.
        message: String,
    },
    /// A setting out of range.
    #[error("the recipe {recipe} cannot be run: `{key}`{} {problem}", in_brackets(position))]
    Setting {
        /// Which recipe.
        recipe: String,
        /// The full path of the key.
        key: String,
        /// The position of the value, if the recipe was parsed from a text.
        position: Option<Position>,
        /// The constraint, and the value that violates it.
        problem: String,
    },
}

/// A position in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
}

impl Position {
    /// The position of a byte offset in `text`.
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

fn at(key: &str, position: &Option<Position>) -> String {
    let key = if key.is_empty() { String::new() } else { format!(" in `{key}`") };
    let position = position.map_or(String::new(), |position| format!(" at {position}"));
    key + &position
}

fn in_brackets(position: &Option<Position>) -> String {
    position.map_or(String::new(), |position| format!(" ({position})"))
}
