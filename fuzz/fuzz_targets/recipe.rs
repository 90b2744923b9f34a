//! Recipes. What is accepted is written as the same recipe.

#![no_main]

use libfuzzer_sys::fuzz_target;
use lsoftmax_lab::recipe::Recipe;

fuzz_target!(|text: &str| {
    match Recipe::from_toml(text, "a recipe") {
        Ok(recipe) => {
            let written = recipe.to_toml();
            let again = Recipe::from_toml(&written, "the same");
            assert_eq!(again.as_ref(), Ok(&recipe), "{written}");
            let _ = recipe.network_config().map(|network| network.summary());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
