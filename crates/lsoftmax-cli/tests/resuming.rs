//! Runs with every kind of state resume to the same bits; a run is extended or replaced.

mod program;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use program::run::{
    Reference, TINY, checkpoints, done, ended, metrics, recipe, result, resume, temporary_run,
    text_of, train, undo_the_end,
};
use program::{assert_says, refused};
use serde_json::Value;

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).expect("a file")).expect("JSON")
}

/// A run that learns for 40 steps and is then spoilt by a rate four times as high: of its 60 steps the last
/// are not the best.
fn spoilt() -> String {
    TINY.replace("factor = 0.1, at = [100]", "factor = 4, at = [40]")
        .replace("steps = 120", "steps = 60")
}

/// A run with such options that is killed before its end, resumed, and killed at its last step.
fn assert_resumes(name: &str, text: &str, options: &[&str]) -> Value {
    let (directory, run) = temporary_run();
    let recipe = recipe(directory.path(), text);
    done(train(&[&[recipe.as_str(), "--out", &text_of(&run)], options].concat()));
    let (expected, files) = (result(&run), fs::read(run.join("recipe.toml")).expect("a file"));
    for _ in 0..2 {
        undo_the_end(&run);
        done(resume(&run));
        assert_eq!(result(&run), expected, "{name}");
    }
    assert_eq!(fs::read(run.join("recipe.toml")).expect("a file"), files);
    json(&run.join("summary.json"))
}

#[test]
fn adamw_and_a_cosine_resume_to_the_same_bits() {
    let options = ["--optimiser", "adamw", "--learning-rate", "0.01", "--cosine", "--warmup", "9"];
    assert_resumes("adamw", TINY, &[&options[..], &["--steps", "30"]].concat());
    assert_resumes("nesterov", TINY, &["--optimiser", "nesterov", "--steps", "30"]);
}

#[test]
fn the_best_and_the_averaged_model_resume_to_the_same_bits() {
    let text = spoilt();
    let last = assert_resumes("last", &text, &[]);
    assert_eq!(last["kept"], serde_json::json!({ "model": "last", "step": 60, "averaged": false }));
    let best = assert_resumes("best", &text, &["--keep", "best"]);
    let step = best["kept"]["step"].as_u64().expect("a step");
    assert!(best["kept"]["model"] == "best" && step < 60, "{best}");
    let error = |summary: &Value| summary["validation"]["error"].as_f64().expect("a number");
    assert!(error(&best) < error(&last), "{best}, {last}");
    let averaged = ["--keep", "best", "--average", "0.9"];
    let averaged = assert_resumes("averaged", &text, &averaged);
    assert_eq!(averaged["kept"]["averaged"], true);
    assert_ne!(averaged["validation"], best["validation"]);
}

/// The kept model is the one that was best in the log, and the one that the test images saw.
#[test]
fn the_best_model_is_the_one_of_the_log() {
    let (directory, run) = temporary_run();
    let (recipe, out) = (recipe(directory.path(), &spoilt()), text_of(&run));
    let words = [&recipe, "--keep", "best", "--out", &out];
    let output = done(train(&words));
    let summary = json(&run.join("summary.json"));
    let log = metrics(&run);
    let key = |line: &&Value| {
        let number = |key: &str| line[key].as_f64().expect("a number");
        (number("error"), number("loss"))
    };
    let lines = log.iter().filter(|line| line["kind"] == "validation");
    let best = lines.min_by(|a, b| key(a).partial_cmp(&key(b)).expect("numbers")).expect("lines");
    assert_eq!(summary["kept"]["step"], best["step"]);
    assert_eq!(summary["validation"]["error"], best["error"]);
    let printed = String::from_utf8(output.stdout).expect("text");
    assert_says(
        printed,
        &[&format!(
            "the best model on the held-out images was kept, that of step {}",
            best["step"]
        )],
    );
    // `eval` finds what the summary says; the last model is beside it.
    let found = program::json(program::lsoftmax(&["eval", &out, "--json"]));
    assert_eq!(found["error"], summary["test"]["error"]);
    let read = |name: &str| fs::read(run.join(name)).expect("a file");
    assert!(read("model.safetensors") != read("model.last.safetensors"), "the last model was kept");
}

#[test]
fn a_run_without_improvement_ends_early_also_after_a_kill() {
    let (directory, run) = temporary_run();
    let recipe = recipe(directory.path(), &spoilt());
    let words = [&recipe, "--early-stopping", "2"];
    let output = done(train(&[&words[..], &["--out", &text_of(&run)]].concat()));
    let said = String::from_utf8(output.stdout).expect("text");
    assert_says(said, &["it ended before step 60: the held-out images no longer improved"]);
    let (mut least, mut waited, mut last) = (f64::INFINITY, 0, 0);
    for line in metrics(&run).iter().filter(|line| line["kind"] == "validation") {
        assert!(waited < 2, "the run should have ended at step {last}");
        // The error, and where it is the same, the loss.
        let number = |key: &str| line[key].as_f64().expect("a number");
        let rank = 1e6 * number("error") + number("loss");
        (least, waited) = if rank < least { (rank, 0) } else { (least, waited + 1) };
        last = line["step"].as_u64().expect("a step");
    }
    assert!(waited == 2 && last < 60, "{waited}, {last}");
    assert_eq!(json(&run.join("summary.json"))["steps"], last);
    let expected = result(&run);
    undo_the_end(&run);
    done(resume(&run));
    assert_eq!(result(&run), expected);
    let longer = train(&["--resume", &text_of(&run), "--steps", "150"]).output();
    assert_says(ended(&longer.expect("it starts")).1, &["no longer improved", "start a new run"]);
}

/// The first 120 steps are those of the reference; the others are those of the longer schedules.
#[test]
fn a_finished_run_is_extended() {
    for (options, drops) in [(&["--keep-schedules"][..], "[100]"), (&[], "[125]")] {
        let (_directory, run) = temporary_run();
        Reference::get().put(&run);
        let before = metrics(&run);
        let out = text_of(&run);
        let words = [&["--resume", &out, "--steps", "150"], options].concat();
        done(train(&words));
        assert_eq!(metrics(&run)[..before.len()], before);
        let summary = json(&run.join("summary.json"));
        assert_eq!(
            (&summary["steps"], &summary["extended_from"]),
            (&150.into(), &serde_json::json!([120]))
        );
        let kept = fs::read_to_string(run.join("recipe.toml")).expect("a file");
        assert_says(&kept, &["steps = 150", &format!("at = {drops}")]);
        // λ of the last step, 149, is that of the kept or of the stretched schedule.
        let log = metrics(&run);
        let lambda = log.iter().rev().find_map(|line| line["lambda"].as_f64()).expect("a λ");
        let gamma = if options.is_empty() { 0.1 * 120.0 / 150.0 } else { 0.1 };
        let expected = (100.0 * (1.0 + gamma * 149.0f64).powi(-2)).max(1.0);
        assert!((lambda / expected - 1.0).abs() < 1e-9, "{lambda}, not {expected}");

        // Killed anywhere in it, it resumes to the same bits, also by the same command.
        let expected = result(&run);
        undo_the_end(&run);
        done(resume(&run));
        assert_eq!(result(&run), expected);
        done(train(&words));
        assert_eq!(result(&run), expected);
        let sentence =
            ended(&train(&["--resume", &out, "--steps", "149"]).output().expect("it starts")).1;
        assert_says(sentence, &["already taken 150 steps"]);
    }
}

/// The checkpoint of the new length was written, `recipe.toml` and the results were not yet touched.
/// Its λ depends on the number of steps from the first one on.
#[test]
fn an_automatic_lambda_whose_run_gets_another_length_leaves_a_trace() {
    let (directory, run) = temporary_run();
    let recipe = recipe(directory.path(), TINY);
    let out = text_of(&run);
    let words = [&recipe, "--out", &out, "--lambda", "auto", "--steps", "20", "--keep-schedules"];
    done(train(&words));
    done(train(&["--resume", &out, "--steps", "24", "--keep-schedules"]));
    assert_eq!(json(&run.join("summary.json"))["extended_from"], serde_json::json!([20]));
}

#[test]
fn a_run_killed_while_it_is_extended_has_the_new_length() {
    let (directory, run) = temporary_run();
    Reference::get().put(&run);
    let whole = directory.path().join("whole");
    Reference::get().put(&whole);
    done(train(&["--resume", &text_of(&whole), "--steps", "130"]));
    // Interrupted at its first step, after the change.
    let mut command = train(&["--resume", &text_of(&run), "--steps", "130"]);
    let recipe = fs::read(run.join("recipe.toml")).expect("a file");
    let mut child = command.spawn().expect("it starts");
    let mut listener = program::run::Listener::new(&mut child);
    listener.wait_for("step");
    child.kill().expect("it can be killed");
    child.wait().expect("a status");
    // As it was before the change, but for the checkpoint and the summary, which goes first.
    for path in checkpoints(&run).iter().skip(1) {
        fs::remove_file(path).expect("it was there");
    }
    fs::write(run.join("recipe.toml"), recipe).expect("a file");
    let stale = run.join("model.json");
    fs::write(&stale, "stale").expect("a file");
    done(resume(&run));
    assert_eq!(result(&run), result(&whole));
    let kept = fs::read_to_string(run.join("recipe.toml")).expect("a file");
    assert_says(kept, &["steps = 130"]);
}

#[test]
fn a_run_is_replaced_only_when_asked_and_other_files_stay() {
    let (directory, run) = temporary_run();
    Reference::get().put(&run);
    fs::write(run.join("notes.txt"), "mine").expect("a file");
    let (recipe, out) = (recipe(directory.path(), TINY), text_of(&run));
    let words = [&recipe, "--steps", "6", "--seed", "9", "--out", &out];
    let sentence = refused(train(&words).output().expect("it starts"));
    assert_says(sentence, &["already contains a run", "--overwrite"]);
    // An argument that no run can have leaves the old one as it is.
    let wrong = [&words[..], &["--overwrite", "--batch", "0"]].concat();
    refused(train(&wrong).output().expect("it starts"));
    assert!(result(&run) == Reference::get().result, "it was not touched");
    done(train(&[&words[..], &["--overwrite"]].concat()));
    let fresh = directory.path().join("fresh");
    done(train(&[recipe.as_str(), "--steps", "6", "--seed", "9", "--out", &text_of(&fresh)]));
    assert_eq!(result(&run), result(&fresh));
    assert_eq!(checkpoints(&run).len(), checkpoints(&fresh).len());
    assert_eq!(fs::read_to_string(run.join("notes.txt")).expect("a file"), "mine");
}

/// Optimiser, average, best model, initial weights and augmentation, killed at any moment.
#[test]
fn a_run_with_every_kind_of_state_killed_repeatedly_ends_with_the_same_bits() {
    let (directory, run) = temporary_run();
    let base = directory.path().join("base");
    Reference::get().put(&base);
    let augment = "augment = { pad = 2, crop = {}, colour = { brightness = 0.5 }, erase = {} }";
    let text = TINY.replace("data = \"mnist\"", &format!("data = \"mnist\"\n{augment}"));
    let recipe = recipe(directory.path(), &text);
    let base = text_of(&base);
    let words = [&recipe, "--optimiser", "adamw", "--learning-rate", "0.01", "--cosine"];
    let more = ["--warmup", "9", "--keep", "best", "--early-stopping", "9", "--average", "0.9"];
    let init = ["--init", &base, "--freeze", "1", "--trunk-rate", "0.5", "--out"];
    let start = |out: &Path| train(&[&words[..], &more, &init, &[&text_of(out)]].concat());
    let whole = directory.path().join("whole");
    done(start(&whole));
    let mut kills = 0;
    loop {
        let begun = run.join("recipe.toml").is_file();
        let mut command = if begun { resume(&run) } else { start(&run) };
        let mut child = command.stderr(Stdio::null()).spawn().expect("the program starts");
        // Longer each time, so that it makes progress on a busy machine, too.
        sleep(Duration::from_millis(40 + 37 * kills));
        let ended = child.try_wait().expect("a status");
        if let Some(status) = ended {
            assert!(status.success(), "{status}");
            break;
        }
        child.kill().expect("it can be killed");
        child.wait().expect("a status");
        kills += 1;
    }
    assert!(kills >= 3, "it was killed {kills} times");
    assert_eq!(result(&run), result(&whole));
    let last = |run: &Path| fs::read(run.join("model.last.safetensors")).expect("a file");
    assert_eq!(last(&run), last(&whole));
}
