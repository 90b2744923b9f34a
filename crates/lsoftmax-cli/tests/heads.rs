//! Training with L-Softmax's successors, and using their models.

mod program;

use std::fs;
use std::path::Path;

use program::arrays::{read_npy, read_safetensors};
use program::run::{
    TINY, checkpoints, done, ended, metrics, recipe, result, resume, temporary_run, text_of, train,
};
use program::{assert_says, json, lsoftmax, printed};
use serde_json::{Value, json};

/// Undoes the end of a run: the next to last checkpoint is the newest file.
fn undo_the_end(run: &Path) {
    for name in ["summary.json", "test.json", "model.json", "model.safetensors"] {
        fs::remove_file(run.join(name)).expect("it was there");
    }
    let newest = checkpoints(run).pop().expect("a checkpoint");
    fs::remove_file(newest).expect("it was there");
}

fn read_json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).expect("a file")).expect("JSON")
}

fn length(row: &[f32]) -> f32 {
    row.iter().map(|value| value * value).sum::<f32>().sqrt()
}

/// Trains with a head, and checks everything that its model is used for.
fn is_trained_resumed_and_used(arguments: &[&str], described: Value, learns: bool) {
    let (directory, run) = temporary_run();
    let (recipe, out) = (recipe(directory.path(), TINY), text_of(&run));
    done(train(&[&[&recipe, "--out", &out, "--validation", "500"], arguments].concat()));
    let undisturbed = result(&run);
    let summary = read_json(&run.join("summary.json"));
    assert_eq!(summary["head"], described);
    assert_eq!(read_json(&run.join("model.json"))["head"], described);
    let error = summary["test"]["error"].as_f64().expect("a number");
    assert!(!learns || error < 40.0, "{arguments:?}: {error} % wrong");

    undo_the_end(&run);
    done(resume(&run));
    assert_eq!(result(&run), undisturbed, "{arguments:?}");

    let found = json(lsoftmax(&["eval", &out, "--json"]));
    for (name, value) in summary["test"].as_object().expect("an object") {
        assert_eq!(found[name], *value, "{name}");
    }

    // The exported weights are those of a plain linear layer on features of the stated length.
    let path = |name: &str| text_of(&directory.path().join(name));
    let [x, y, w] = ["x.npy", "y.npy", "w.safetensors"].map(path);
    printed(lsoftmax(&["embed", &out, "mnist", "--out", &x, "--logits", &y]));
    printed(lsoftmax(&["export", &out, "--out", &w]));
    let (features, logits) = (read_npy(Path::new(&x)), read_npy(Path::new(&y)));
    let weights = &read_safetensors(Path::new(&w))["head.weight"];
    let file = fs::read(&w).expect("a file");
    let (_, header) = safetensors::SafeTensors::read_metadata(&file).expect("a header");
    let metadata = header.metadata().clone().unwrap_or_default();
    let scale = metadata.get("feature_length").map(|s| s.parse::<f32>().expect("a number"));
    assert_eq!(scale.is_some(), described["scale"].is_number(), "{metadata:?}");
    if described["name"] != "l-softmax" {
        assert!(weights.rows().all(|row| (length(row) - 1.0).abs() < 1e-5));
    }
    for (x, logits) in features.rows().zip(logits.rows()).step_by(97) {
        let factor = scale.map_or(1.0, |scale| scale / length(x));
        for (w, logit) in weights.rows().zip(logits) {
            let found: f32 = factor * x.iter().zip(w).map(|(x, w)| x * w).sum::<f32>();
            assert!((found - logit).abs() < 1e-3 * factor.max(1.0) * length(x), "{found}, {logit}");
        }
    }
    // The mean angle of the evaluation is that between features and weights.
    let labels = lsoftmax_data::Set::named("mnist").expect("there is MNIST");
    let nowhere = lsoftmax_data::DataDir::find(Some("nowhere".into())).expect("a name is enough");
    let labels = labels.read(&nowhere).expect("it is built in").test.expect("test images");
    let rows: Vec<&[f32]> = weights.rows().collect();
    let angles = features.rows().zip(labels.labels()).map(|(x, label)| {
        let w = rows[*label as usize];
        let dot: f32 = x.iter().zip(w).map(|(x, w)| x * w).sum();
        f64::from(dot / (length(x) * length(w))).clamp(-1.0, 1.0).acos().to_degrees()
    });
    let mean = angles.sum::<f64>() / 1e4;
    let stated = summary["test"]["angle"].as_f64().expect("a number");
    assert!((mean - stated).abs() < 1e-2, "{mean}, {stated}");
}

#[test]
fn a_softmax_is_trained_resumed_and_used() {
    let described = json!({ "name": "a-softmax", "margin": 3.0 });
    is_trained_resumed_and_used(&["--head", "a-softmax", "--margin", "3"], described, true);
}

#[test]
fn cosface_is_trained_resumed_and_used() {
    let words = ["--head", "cosface", "--margin", "0.1", "--scale", "8"];
    let described = json!({ "name": "cosface", "margin": 0.1, "scale": 8.0 });
    is_trained_resumed_and_used(&words, described, true);
}

#[test]
fn arcface_with_a_learned_scale_is_trained_resumed_and_used() {
    let words = ["--head", "arcface", "--margin", "0.1", "--scale", "8", "--learned-scale"];
    let described =
        json!({ "name": "arcface", "margin": 0.1, "scale": 8.0, "learned_scale": true });
    is_trained_resumed_and_used(&words, described, true);
}

#[test]
fn normsoftmax_is_trained_resumed_and_used() {
    let described = json!({ "name": "normsoftmax", "scale": 20.0 });
    is_trained_resumed_and_used(&["--head", "normsoftmax"], described, true);
}

#[test]
fn a_learned_scale_moves_and_a_fixed_one_does_not() {
    let (directory, run) = temporary_run();
    let recipe = recipe(directory.path(), TINY);
    let scale = |words: &[&str], run: &Path| {
        let all =
            [&[&recipe, "--out", &text_of(run), "--head", "normsoftmax", "--steps", "8"], words];
        done(train(&all.concat()));
        let tensors = read_safetensors(&run.join("model.safetensors"));
        tensors.get("head.log_scale").map(|log| f64::from(log.values[0]).exp())
    };
    assert_eq!(scale(&[], &run), None);
    let learned = scale(&["--learned-scale"], &run.with_extension("learned")).expect("a scale");
    assert!(learned > 0.0 && (learned - 20.0).abs() > 1e-3, "{learned}");
}

/// Softmax and the hinge loss do not depend on λ, so neither the log nor the progress mentions one.
#[test]
fn lambda_is_logged_only_of_a_loss_with_a_margin() {
    let (directory, run) = temporary_run();
    let hinge = TINY.replace("margin = 2", "margin = 1\nloss = \"hinge\"");
    let of_recipe = |text: &str, words: &[&str], name: &str| {
        let run = run.with_extension(name);
        let recipe = recipe(directory.path(), text);
        let fixed = ["--out", &text_of(&run), "--steps", "12"];
        let ended = done(train(&[&[recipe.as_str()], &fixed[..], words].concat()));
        let log = metrics(&run).into_iter().filter(|metric| metric["kind"] == "training");
        let logged: Vec<bool> = log.map(|metric| metric.get("lambda").is_some()).collect();
        let shown = String::from_utf8(ended.stderr).expect("text").contains("λ");
        assert!(!logged.is_empty() && logged.iter().all(|logged| *logged == shown), "{logged:?}");
        shown
    };
    assert!(of_recipe(TINY, &[], "margin"));
    assert!(!of_recipe(TINY, &["--margin", "1"], "softmax"));
    assert!(!of_recipe(&hinge, &[], "hinge"));
}

#[test]
fn lambda_of_cosface_is_0_unless_given_and_can_be_automatic() {
    let (directory, run) = temporary_run();
    let recipe = recipe(directory.path(), TINY);
    let lambdas = |words: &[&str], run: &Path| {
        let fixed = ["--head", "cosface", "--scale", "8", "--steps", "12", "--keep-schedules"];
        done(train(&[&[&recipe, "--out", &text_of(run)], &fixed[..], words].concat()));
        let log = metrics(run).into_iter().filter(|metric| metric["kind"] == "training");
        log.map(|metric| metric["lambda"].as_f64().expect("a number")).collect::<Vec<_>>()
    };
    assert!(lambdas(&[], &run).iter().all(|lambda| *lambda == 0.0));
    let five = lambdas(&["--lambda", "5"], &run.with_extension("five"));
    assert!(five.iter().all(|lambda| *lambda == 5.0), "{five:?}");
    let auto = lambdas(&["--lambda", "auto"], &run.with_extension("auto"));
    assert!(auto.iter().all(|lambda| *lambda > 0.0) && auto[0] != auto[1], "{auto:?}");
}

#[test]
fn a_diverging_arcface_rolls_back_to_a_larger_lambda() {
    let (directory, run) = temporary_run();
    let text = TINY.replace("factor = 0.1, at = [100]", "factor = 1e30, at = [10]");
    let recipe = recipe(directory.path(), &text);
    let words = [&recipe, "--head", "arcface", "--on-divergence", "rollback"];
    let output = train(&[&words[..], &["--out", &text_of(&run)]].concat()).output();
    let (code, sentence) = ended(&output.expect("it starts"));
    assert_eq!(code, Some(2));
    assert_says(&sentence, &["5 rollbacks", "λ"]);
    let log = metrics(&run);
    let floors: Vec<f64> =
        log.iter().filter_map(|metric| metric["lambda_floor"].as_f64()).collect();
    assert_eq!(floors, [1.0, 4.0, 16.0, 64.0, 256.0]);
}

#[test]
fn arguments_that_a_head_does_not_have_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let recipe = recipe(directory.path(), TINY);
    for (words, said) in [
        (&["--head", "a-softmax", "--scale", "64"][..], ["--scale", "a-softmax has no scale"]),
        (&["--scale", "64"], ["--scale", "l-softmax has no scale"]),
        (&["--learned-scale"], ["--scale", "l-softmax has no scale"]),
        (&["--head", "normsoftmax", "--margin", "2"], ["--margin", "has no margin"]),
        (&["--head", "arcface", "--margin", "4"], ["--margin", "below π"]),
        (&["--head", "cosface", "--scale", "-1"], ["--scale", "above 0"]),
    ] {
        let output = train(&[&[recipe.as_str()], words].concat()).output().expect("it starts");
        let (code, sentence) = ended(&output);
        assert_eq!(code, Some(2), "{words:?}");
        assert_says(sentence, &said);
    }
}

#[test]
fn sampled_classes_are_trained_and_resumed_to_the_same_bits() {
    let (directory, run) = temporary_run();
    let (recipe, out) = (recipe(directory.path(), TINY), text_of(&run));
    let words = ["--sample-rate", "0.5", "--batch", "4", "--accumulate", "2", "--clip-norm", "5"];
    done(train(&[&[&recipe, "--out", &out][..], &words].concat()));
    let undisturbed = result(&run);
    let described = json!({ "name": "l-softmax", "margin": 2.0, "sample_rate": 0.5 });
    let summary = read_json(&run.join("summary.json"));
    assert_eq!(summary["head"], described);
    assert!(summary["test"]["error"].as_f64().expect("a number") < 60.0, "{summary}");
    undo_the_end(&run);
    done(resume(&run));
    assert_eq!(result(&run), undisturbed);
    for rate in ["0", "1.5", "-1", "nan", "half"] {
        let output = train(&[&recipe, "--sample-rate", rate]).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{rate}");
        assert_says(String::from_utf8_lossy(&output.stderr), &["--sample-rate", "at most 1"]);
    }
}
