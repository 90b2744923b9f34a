//! Recipes as TOML.

use std::path::Path;

use toml::de::DeTable;

use super::keys;
use super::{Position, Recipe, RecipeError};

/// Terms in serde's messages, and their replacements.
const SERDE_TERMS: [(&str, &str); 6] = [
    ("expected usize", "expected an integer of at least 0"),
    ("expected u64", "expected an integer of at least 0"),
    ("expected f64", "expected a number"),
    ("expected a boolean", "expected true or false"),
    ("missing field", "missing key"),
    ("unknown variant", "unknown choice"),
];

impl Recipe {
    /// Parses a recipe from TOML; `source_name` identifies it in errors.
    ///
    /// # Errors
    /// When the text is not TOML, a key is unknown or missing, or a value has the wrong type or is out
    /// of range.
    pub fn from_toml(text: &str, source_name: &str) -> Result<Self, RecipeError> {
        let recipe = || source_name.to_owned();
        let position =
            |error: &toml::de::Error| error.span().map(|span| Position::of(text, span.start));

        let table = DeTable::parse(text).map_err(|error| RecipeError::Syntax {
            recipe: recipe(),
            position: position(&error).unwrap_or(Position::of(text, text.len())),
            message: error.message().to_owned(),
        })?;
        let whole_text = table.span();
        let table = table.get_ref();
        if let Some(keys::UnknownKey { key, start, advice }) = keys::first_unknown(table) {
            let position = Position::of(text, start);
            return Err(RecipeError::Key { recipe: recipe(), key, position, advice });
        }
        let mut read: Self = toml::from_str(text).map_err(|error: toml::de::Error| {
            let span = error.span().filter(|span| *span != whole_text);
            let key = span.and_then(|span| keys::key_at(table, span.start));
            let position = key.is_some().then(|| position(&error)).flatten();
            let message =
                SERDE_TERMS.iter().fold(error.message().to_owned(), |message, (word, plain)| {
                    message.replace(word, plain)
                });
            RecipeError::Value { recipe: recipe(), key: key.unwrap_or_default(), position, message }
        })?;
        if read.adamw.is_none() {
            // So that a recipe that is written names its optimiser.
            read.sgd.get_or_insert_default();
        }
        read.check_settings().map_err(|setting| {
            let span = keys::span_of(table, &setting.key);
            setting.into_error(source_name, span.map(|span| Position::of(text, span.start)))
        })?;
        Ok(read)
    }

    /// Reads a recipe from a file.
    ///
    /// # Errors
    /// When the file cannot be read or [`Recipe::from_toml`] fails.
    pub fn from_file(path: &Path) -> Result<Self, RecipeError> {
        let text = std::fs::read_to_string(path).map_err(|error| RecipeError::File {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        Self::from_toml(&text, &path.display().to_string())
    }

    /// The recipe as TOML, readable by [`Recipe::from_toml`].
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every field has a form in TOML")
    }
}
