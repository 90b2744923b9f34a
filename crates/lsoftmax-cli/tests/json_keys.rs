//! docs/reference.md lists the keys that the program prints. (Those of a run's files and results are compared
//! with their types, in the tests of `lsoftmax-lab`.)

mod program;

use std::collections::BTreeSet;
use std::fs;

use lsoftmax_testing::{assert_documented, key_paths, undocumented_keys};
use program::run::{Reference, TINY, done, recipe, temporary_run, text_of, train};
use program::{Batch, json, lsoftmax, lsoftmax_in};
use serde_json::Value;

const DOCUMENT: &str = include_str!("../../../docs/reference.md");

#[track_caller]
fn check(heading: &str, values: &[Value]) {
    let found: BTreeSet<String> = values.iter().flat_map(key_paths).collect();
    assert_documented(DOCUMENT, heading, &found);
}

#[test]
fn the_keys_of_commands_are_documented() {
    let loss = Batch::new().loss(&["--reduction", "none", "--head", "arcface", "--json"]);
    check("## loss --json", &[json(loss)]);
    check("## data list --json", &[json(lsoftmax(&["data", "list", "--json"]))]);
    check("## data check --json", &[json(lsoftmax(&["data", "check", "mnist", "--json"]))]);
    check("## data fetch --json", &[json(lsoftmax(&["data", "fetch", "mnist", "--json"]))]);
    let head = [
        "bench",
        "head",
        "--classes",
        "10",
        "--samples",
        "4",
        "--features",
        "8",
        "--steps",
        "1",
        "--json",
    ];
    check("## bench head --json", &[json(lsoftmax(&head))]);
    let train = ["bench", "train", "--network", "mnist", "--batch", "2", "--steps", "1", "--json"];
    check("## bench train --json", &[json(lsoftmax(&train))]);
    let scale = ["bench", "scale", "--network", "mnist", "--batch", "2", "--steps", "1", "--json"];
    check("## bench scale --json", &[json(lsoftmax(&scale))]);
    let shards = ["bench", "shards", "--classes", "9", "--features", "8", "--steps", "1", "--json"];
    check("## bench shards --json", &[json(lsoftmax(&shards))]);

    let sizes = ["--images", "2", "--pairs", "20", "--gallery", "10", "--features", "4"];
    let faces = [&["bench", "faces"], &sizes[..], &["--json"]].concat();
    check("## bench faces --json", &[json(lsoftmax(&faces))]);

    check("## network --json", &[json(lsoftmax(&["network", "mnist", "--json"]))]);

    let (directory, run) = temporary_run();
    Reference::get().put(&run);
    let inside = |words: &[&str]| json(lsoftmax_in(directory.path(), words));
    let exported = inside(&["export", "run", "--out", "model.safetensors", "--json"]);
    check("## export --json", &[exported]);
    inside(&["embed", "run", "mnist", "--out", "features.npy", "--json"]);
    let rows = fs::read_to_string(directory.path().join("features.json")).expect("a file");
    check("## rows of embed", &[serde_json::from_str(&rows).expect("JSON")]);
}

#[test]
fn the_files_of_a_real_run_have_no_other_keys() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    done(train(&[&recipe(directory.path(), TINY), "--steps", "12", "--out", &text_of(&run)]));
    for (file, heading) in [
        ("summary.json", "## summary.json"),
        ("environment.json", "## environment.json"),
        ("model.json", "## model.json"),
    ] {
        let text = fs::read_to_string(run.join(file)).expect("a file");
        let found = key_paths(&serde_json::from_str(&text).expect("JSON"));
        let other = undocumented_keys(DOCUMENT, heading, &found);
        assert!(found.len() > 5 && other.is_empty(), "{file}: {other:?}");
    }
}
