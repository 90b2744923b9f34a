//! Recipes as TOML.

use std::path::Path;

use toml::de::DeTable;

use super::keys;
use super::{Position, Recipe, RecipeError};

/// What serde calls things, and what a reader does.
const PLAIN_WORDS: [(&str, &str); 5] = [
    ("expected usize", "expected a whole number of at least 0"),
    ("expected u64", "expected a whole number of at least 0"),
    ("expected f64", "expected a number"),
    ("missing field", "missing key"),
    ("unknown variant", "unknown choice"),
];

impl Recipe {
    /// The recipe of a TOML text; errors call it `source_name`.
    ///
    /// # Errors
    /// When the text is not TOML, a key is unknown or missing, a value is of the wrong kind, or no
    /// run can have it.
    pub fn from_toml(text: &str, source_name: &str) -> Result<Self, RecipeError> {
        let recipe = || source_name.to_owned();
        let place =
            |error: &toml::de::Error| error.span().map(|span| Position::of(text, span.start));

        let table = DeTable::parse(text).map_err(|error| RecipeError::Syntax {
            recipe: recipe(),
            place: place(&error).unwrap_or(Position::of(text, text.len())),
            message: error.message().to_owned(),
        })?;
        let whole = table.span();
        let table = table.get_ref();
        if let Some(keys::Unknown { key, start, advice }) = keys::first_unknown(table) {
            let place = Position::of(text, start);
            return Err(RecipeError::Key { recipe: recipe(), key, place, advice });
        }
        let read: Self = toml::from_str(text).map_err(|error: toml::de::Error| {
            let span = error.span().filter(|span| *span != whole);
            let key = span.and_then(|span| keys::key_at(table, span.start));
            let place = key.is_some().then(|| place(&error)).flatten();
            let message =
                PLAIN_WORDS.iter().fold(error.message().to_owned(), |message, (word, plain)| {
                    message.replace(word, plain)
                });
            RecipeError::Value { recipe: recipe(), key: key.unwrap_or_default(), place, message }
        })?;
        read.faults().map_err(|fault| {
            let span = keys::span_of(table, &fault.key);
            fault.of(source_name, span.map(|span| Position::of(text, span.start)))
        })?;
        Ok(read)
    }

    /// The recipe in a file.
    ///
    /// # Errors
    /// When it cannot be read, or as [`Recipe::from_toml`].
    pub fn from_file(path: &Path) -> Result<Self, RecipeError> {
        let text = std::fs::read_to_string(path).map_err(|error| RecipeError::File {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        Self::from_toml(&text, &path.display().to_string())
    }

    /// The recipe as a TOML text, for [`Recipe::from_toml`].
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every field has a form in TOML")
    }
}
