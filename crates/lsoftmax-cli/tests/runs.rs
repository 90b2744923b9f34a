//! `lsoftmax runs` and `lsoftmax compare`.

mod program;

use std::fs;
use std::path::Path;

use program::run::{
    Reference, TINY, checkpoints, done, recipe, resume, temporary_run, text_of, train,
};
use program::{assert_says, json, lsoftmax_in, printed, refused};
use serde_json::Value;

#[test]
fn runs_are_listed_with_state_and_result() {
    let directory = tempfile::tempdir().expect("a directory");
    let runs = directory.path().join("runs");
    let reference = Reference::get();
    reference.put(&runs.join("b-done"));
    reference.put_unfinished(&runs.join("deep/er/a-stopped"));
    reference.put(&runs.join("c-damaged"));
    fs::write(runs.join("c-damaged/summary.json"), "{").expect("a file");
    fs::create_dir_all(runs.join("no-run")).expect("a directory");

    let listed = json(lsoftmax_in(directory.path(), &["runs", "--json"]));
    let states: Vec<(&str, &str)> = listed
        .as_array()
        .expect("a list")
        .iter()
        .map(|run| (run["run"].as_str().expect("a path"), run["state"].as_str().expect("a state")))
        .collect();
    let expected = [
        ("runs/b-done", "done"),
        ("runs/c-damaged", "damaged"),
        ("runs/deep/er/a-stopped", "stopped"),
    ];
    assert_eq!(states, expected);
    let summary = fs::read_to_string(runs.join("b-done/summary.json")).expect("a file");
    let summary: Value = serde_json::from_str(&summary).expect("JSON");
    let finished = &listed[0];
    assert_eq!(finished["test_error"], summary["test"]["error"]);
    assert_eq!(finished["validation_error"], summary["validation"]["error"]);
    assert_eq!((&finished["step"], &finished["steps"]), (&120.into(), &120.into()));
    assert_eq!((&finished["recipe"], &finished["seed"]), (&"tiny".into(), &3.into()));
    assert!(listed[1]["problem"].as_str().is_some_and(|text| text.contains("summary.json")));
    assert!(listed[2]["test_error"].is_null() && listed[2]["loss"].is_number());

    // A run that was killed has lost the steps after its last checkpoint.
    let killed = runs.join("deep/er/a-stopped");
    fs::remove_file(checkpoints(&killed).pop().expect("a checkpoint")).expect("it was there");
    let step = json(lsoftmax_in(&killed, &["runs", ".", "--json"]))[0]["step"].clone();
    let said = String::from_utf8(done(resume(&killed)).stderr).expect("text");
    assert_says(&said, &[&format!("resuming after step {step} of 120")]);
    assert_eq!(step, 116);

    let text = printed(lsoftmax_in(directory.path(), &["runs"]));
    assert_says(&text, &["held out, %", "runs/b-done", "l-softmax, m = 2", "stopped", "damaged"]);
    assert_says(refused(lsoftmax_in(directory.path(), &["runs", "nowhere"])), &["nowhere"]);
    assert_says(printed(lsoftmax_in(directory.path(), &["runs", "runs/no-run"])), &["no runs"]);
}

#[test]
fn a_run_that_is_training_is_running() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("runs/long");
    let recipe = recipe(directory.path(), TINY);
    let mut child = train(&[&recipe, "--steps", "100000", "--out", &text_of(&run)])
        .spawn()
        .expect("the program starts");
    while !run.join("metrics.jsonl").is_file() && child.try_wait().expect("a status").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let listed = json(lsoftmax_in(directory.path(), &["runs", "--json"]));
    child.kill().expect("it can be killed");
    child.wait().expect("a status");
    assert_eq!(listed[0]["state"], "running");
    let listed = json(lsoftmax_in(directory.path(), &["runs", "--json"]));
    assert_eq!(listed[0]["state"], "stopped");
}

#[test]
fn runs_are_compared_as_a_table_and_a_page() {
    let directory = tempfile::tempdir().expect("a directory");
    Reference::get().put(&directory.path().join("one"));
    Reference::get().put_unfinished(&directory.path().join("two"));
    let text =
        printed(lsoftmax_in(directory.path(), &["compare", "one", "two", "--page", "page.html"]));
    assert_eq!(text.lines().count(), 4, "{text}");
    assert_says(&text, &["one", "done", "two", "stopped", "page.html"]);
    let page = fs::read_to_string(directory.path().join("page.html")).expect("a page");
    assert_says(
        &page,
        &[
            "data-series=\"one\"",
            "data-series=\"two\"",
            "lsoftmax compare one two --page page.html",
        ],
    );
    let compared = json(lsoftmax_in(directory.path(), &["compare", "one", "two", "--json"]));
    assert_eq!(compared.as_array().map(Vec::len), Some(2));
    let sentence = refused(lsoftmax_in(directory.path(), &["compare", "one", "nowhere"]));
    assert_says(sentence, &["nowhere", "does not contain a run"]);
}

/// What commands write may not take the place of what they read.
#[test]
fn a_file_of_a_run_is_never_written_by_another_command() {
    let (directory, run) = temporary_run();
    Reference::get().put(&run);
    let files = |run: &Path| -> Vec<(String, Vec<u8>)> {
        ["recipe.toml", "model.json", "model.safetensors", "metrics.jsonl"]
            .map(|name| (name.to_owned(), fs::read(run.join(name)).expect("a file")))
            .into()
    };
    let before = files(&run);
    for arguments in [
        &["export", "run", "--out", "run/model.safetensors"][..],
        &["embed", "run", "mnist", "--out", "run/model.npy"],
        &["embed", "run", "mnist", "--out", "run/recipe.toml"],
        &["plot", "run", "--out", "run/recipe.toml"],
        &["compare", "run", "--page", "run/metrics.jsonl"],
        &["eval", "run", "--page", "./run/../run/model.json"],
    ] {
        let sentence = refused(lsoftmax_in(directory.path(), arguments));
        assert!(sentence.contains("run/"), "{arguments:?}: {sentence}");
    }
    assert!(files(&run) == before);
    // Beside them there is room.
    printed(lsoftmax_in(directory.path(), &["plot", "run", "--out", "run/curves.html"]));
}

#[test]
fn runs_of_one_name_are_told_apart_and_one_without_a_log_has_no_curve() {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["a/run", "b/run", "c"] {
        Reference::get().put(&directory.path().join(name));
    }
    fs::remove_file(directory.path().join("c/metrics.jsonl")).expect("it was there");
    let plot = ["plot", "a/run", "b/run", "c", "--out", "page.html"];
    printed(lsoftmax_in(directory.path(), &plot));
    let page = fs::read_to_string(directory.path().join("page.html")).expect("a page");
    for name in ["a/run", "b/run"] {
        assert!(page.contains(&format!("data-series=\"{name}\"")), "{name}");
    }
    assert!(!page.contains("data-series=\"c\"") && !page.contains("data-series=\"run\""));
    printed(lsoftmax_in(directory.path(), &["plot", "c", "--out", "page.html"]));
}
