//! Recipes as text, for tests that change a line of one.

#![allow(dead_code, reason = "each test file uses its part")]

use lsoftmax_lab::recipe::{Recipe, RecipeError};

pub fn file(name: &str, directory: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/recipes/");
    std::fs::read_to_string(format!("{root}{directory}{name}.toml")).unwrap()
}

/// The text of MNIST's recipe, with a schedule of λ instead of the automatic one, and with a line of it replaced.
pub fn with(line: &str, new: &str) -> String {
    let text = file("mnist", "").replace("\"auto\"", LAMBDA);
    assert_eq!(text.matches(line).count(), 1, "{line}");
    text.replace(line, new)
}

pub fn refused(text: &str) -> RecipeError {
    Recipe::from_toml(text, "mine.toml").unwrap_err()
}

/// λ at a step.
pub fn lambda(recipe: &Recipe, step: u64) -> f64 {
    recipe.lambda.schedule().expect("a schedule").at(step)
}

/// λ in the text.
pub const LAMBDA: &str =
    "{ schedule = \"power\", base = 1000, gamma = 1.04e-5, power = 35, min = 0 }";
