//! `lsoftmax train` with accumulated batches, clipped gradients, a contrastive loss and a device; and the
//! curves of runs.

mod program;

use std::fs;

use program::run::{
    TINY, done, ended, metrics, recipe, result, resume, temporary_run, text_of, train,
};
use program::{assert_says, lsoftmax, printed, refused};

#[test]
fn a_run_with_accumulated_batches_and_clipping_is_resumed_to_the_same_bits() {
    let (place, run) = temporary_run();
    let recipe = recipe(place.path(), &TINY.replace("steps = 120", "steps = 24"));
    let recipe_arguments = ["--keep-schedules", "--steps", "24"];
    let text = fs::read_to_string(&recipe).expect("a file").replace("at = [100]", "at = [20]");
    fs::write(&recipe, text).expect("a file");
    let arguments = [&recipe, "--accumulate", "3", "--clip-norm", "0.5", "--out"];
    let whole = text_of(&run);
    done(train(&[&arguments[..], &[&whole], &recipe_arguments].concat()));
    let kept = fs::read_to_string(run.join("recipe.toml")).expect("a file");
    assert_says(&kept, &["accumulate = 3", "clip_norm = 0.5"]);

    // As if it had been killed after its checkpoint of step 20.
    let again = place.path().join("again");
    let copy = text_of(&again);
    done(train(&[&arguments[..], &[&copy], &recipe_arguments].concat()));
    for name in [
        "summary.json",
        "test.json",
        "model.json",
        "model.safetensors",
        "checkpoints/000000024.checkpoint",
    ] {
        fs::remove_file(again.join(name)).expect("a file");
    }
    done(resume(&again));
    assert_eq!(result(&again), result(&run));

    // Three batches of 16 are not one of 16.
    let plain = place.path().join("plain");
    done(train(&[&[recipe.as_str(), "--out", &text_of(&plain)][..], &recipe_arguments].concat()));
    assert_ne!(result(&plain), result(&run));
}

#[test]
fn a_run_with_an_automatic_lambda_and_a_test_curve_is_resumed_to_the_same_bits() {
    let (place, run) = temporary_run();
    let schedule = r#"{ schedule = "power", base = 100, gamma = 0.1, power = 2, min = 1 }"#;
    let text = TINY.replace(schedule, "\"auto\"").replace("log_every = 7", "log_every = 1");
    let recipe = recipe(place.path(), &format!("{text}test_curve = true\n"));
    let output = done(train(&[&recipe, "--out", &text_of(&run)]));
    let log = metrics(&run);
    let lambda = |metric: &serde_json::Value| metric["lambda"].as_f64();
    let lambdas: Vec<f64> = log.iter().filter_map(lambda).collect();
    let factor = (-16f64 / 120.0).exp();
    assert_eq!((lambdas.len(), lambdas[0]), (120, 1000.0));
    for (done, two) in (1..).zip(lambdas.windows(2)) {
        let ratio = two[1] / two[0];
        let (fell, rose) = ((ratio - factor).abs() < 1e-9, (ratio * factor - 1.0).abs() < 1e-9);
        // From 1000 to 2 over the run.
        let bound = 1000.0 * 0.002f64.powf(f64::from(done) / 120.0);
        let bounded = (two[1] / bound - 1.0).abs() < 1e-9;
        assert!(bounded || ((fell || rose) && two[1] < bound), "{done}: {two:?}");
    }
    assert!(lambdas[119] < 100.0, "the margin was introduced: {lambdas:?}");
    // The test images are evaluated with the held-out ones, and the last time for the summary.
    let curve: Vec<_> = log.iter().filter(|metric| metric["kind"] == "test").collect();
    assert_eq!(curve.len(), 11);
    let summary = fs::read_to_string(run.join("summary.json")).expect("a file");
    let summary: serde_json::Value = serde_json::from_str(&summary).expect("JSON");
    assert_eq!(curve[10]["error"], summary["test"]["error"]);
    assert_says(String::from_utf8_lossy(&output.stderr), &["step 110: test ", ", test "]);
    let page = text_of(&place.path().join("curves.html"));
    printed(lsoftmax(&["plot", &text_of(&run), "--out", &page]));
    assert_says(fs::read_to_string(&page).expect("a file"), &["Test error, %"]);

    // As if it had been killed after its checkpoint of step 116.
    let expected = result(&run);
    for name in [
        "summary.json",
        "test.json",
        "model.json",
        "model.safetensors",
        "checkpoints/000000120.checkpoint",
    ] {
        fs::remove_file(run.join(name)).expect("a file");
    }
    done(resume(&run));
    assert_eq!(result(&run), expected);

    // The curve of the test images changes nothing else.
    let without = place.path().join("without");
    fs::write(&recipe, &text).expect("a file");
    done(train(&[&recipe, "--out", &text_of(&without)]));
    let mut log = log;
    log.retain(|metric| metric["kind"] != "test");
    assert_eq!(metrics(&without), log);
    let weights = |run: &std::path::Path| fs::read(run.join("model.safetensors")).expect("a file");
    assert!(weights(&without) == weights(&run));
}

#[test]
fn a_contrastive_loss_trains() {
    let (place, run) = temporary_run();
    let loss = "margin = 1\nloss = { contrastive = { weight = 1, margin = 1 } }";
    let recipe = recipe(place.path(), &TINY.replace("margin = 2", loss));
    done(train(&[&recipe, "--device", "cpu", "--out", &text_of(&run)]));
    let log = metrics(&run);
    let last = log.iter().rfind(|metric| metric["kind"] == "validation").expect("an evaluation");
    assert!(last["error"].as_f64().expect("a number") < 40.0, "{last}");
}

#[test]
fn a_run_with_two_features_keeps_a_sample_of_them_for_a_picture() {
    let (place, run) = temporary_run();
    let recipe = recipe(place.path(), &TINY.replace("size = 8", "size = 2"));
    done(train(&[&recipe, "--steps", "3", "--out", &text_of(&run)]));
    let text = fs::read_to_string(run.join("test.json")).expect("a file");
    assert!(text.len() < 100_000, "{} bytes", text.len());
    let details: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let count = |key: &str| details["plane"][key].as_array().map(Vec::len);
    assert_eq!(
        [count("weights"), count("labels"), count("features")],
        [Some(10), Some(2000), Some(2000)]
    );
}

#[test]
fn settings_that_no_run_can_have_are_refused() {
    for arguments in [
        ["--accumulate", "0"],
        ["--clip-norm", "0"],
        ["--clip-norm", "-1"],
        ["--clip-norm", "x"],
        ["--lambda", "-1"],
        ["--lambda", "nan"],
        ["--lambda", "five"],
    ] {
        let sentence = refused(lsoftmax(&["train", "mnist", arguments[0], arguments[1]]));
        let name = arguments[0].trim_start_matches("--");
        assert!(
            sentence.contains(name) || sentence.contains(&name.replace('-', "_")),
            "{sentence}"
        );
    }
}

#[test]
fn the_cpu_is_a_device_and_others_need_their_feature() {
    let sentence = refused(lsoftmax(&["train", "mnist", "--device", "tpu"]));
    assert_says(&sentence, &["tpu", "choose cpu, wgpu or cuda"]);
    if cfg!(not(feature = "wgpu")) {
        let sentence = refused(lsoftmax(&["train", "mnist", "--device", "wgpu"]));
        assert_says(&sentence, &["built without", "--features wgpu"]);
    }
}

#[test]
fn the_curves_of_runs_are_on_one_page() {
    let (place, run) = temporary_run();
    let recipe = recipe(place.path(), &TINY.replace("steps = 120", "steps = 110"));
    done(train(&[&recipe, "--out", &text_of(&run)]));
    let page = text_of(&place.path().join("curves.html"));
    assert_says(printed(lsoftmax(&["plot", &text_of(&run), "--out", &page])), &["curves.html"]);
    let html = fs::read_to_string(&page).expect("a file");
    assert_eq!(html.matches("<svg").count(), 1, "training loss and held-out error, side by side");
    assert_says(&html, &["Training loss", "Held-out error"]);
    let output = lsoftmax(&["plot", &text_of(place.path()), "--out", &page]);
    let (code, sentence) = ended(&output);
    assert_eq!(code, Some(2));
    assert_says(&sentence, &["does not contain a run", "recipe.toml"]);
}
