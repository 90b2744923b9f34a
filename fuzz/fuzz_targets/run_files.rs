//! The log and the summary of a run, as `lsoftmax runs` reads them.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use lsoftmax_fuzz::{Directory, parts};
use lsoftmax_lab::recipe::Recipe;
use lsoftmax_lab::runs::RunListing;

static DIRECTORY: LazyLock<Directory> = LazyLock::new(|| {
    let directory = Directory::new();
    let recipe = Recipe::quick("mnist").expect("a built-in recipe");
    directory.write("recipe.toml", recipe.to_toml().as_bytes());
    directory
});

fuzz_target!(|bytes: &[u8]| {
    let [log, summary] = parts::<2>(bytes);
    DIRECTORY.write("metrics.jsonl", log);
    DIRECTORY.write("summary.json", summary);
    let listing = RunListing::of(DIRECTORY.path());
    assert!(listing.setup.is_some());
});
