//! A head that is divided by class, on one rank: trained, saved, resumed, evaluated. Several ranks are in `mpi.rs`.

mod program;

use std::fs;
use std::path::{Path, PathBuf};

use program::run::{
    TINY, checkpoints, done, ended, recipe, result, resume, temporary_run, text_of, train,
    undo_the_end,
};
use program::{assert_says, refused};
use serde_json::Value;

/// A short run of ten classes in eight shards.
fn sharded() -> String {
    TINY.replace("steps = 120", "steps = 60\nshard_classes = true").replace("[100]", "[50]")
}

fn summary(run: &Path) -> Value {
    let text = fs::read_to_string(run.join("summary.json")).expect("a file");
    serde_json::from_str(&text).expect("JSON")
}

/// Trains for so many steps and returns the directory, too.
fn trained(text: &str, options: &[&str]) -> (tempfile::TempDir, PathBuf, String) {
    let (directory, run) = temporary_run();
    let recipe = recipe(directory.path(), text);
    let output = done(train(&[&[recipe.as_str(), "--out", &text_of(&run)], options].concat()));
    (directory, run, String::from_utf8(output.stderr).expect("text"))
}

#[test]
fn a_divided_head_learns_as_a_whole_one_does_and_its_model_is_one_as_any_other() {
    let error = |run: &Path| summary(run)["test"]["error"].as_f64().expect("a number");
    let (_whole, whole, _) = trained(&sharded().replace("shard_classes = true\n", ""), &[]);
    let (directory, run, stderr) = trained(&sharded(), &[]);
    assert_says(&stderr, &["the 10 classes are divided into 8 shards; this rank has all of them"]);
    // Other initial weights of the head, the same problem.
    assert!(error(&run) < 60.0 && (error(&run) - error(&whole)).abs() < 15.0, "{}", error(&run));
    let out = text_of(&run);
    let found = program::json(program::lsoftmax(&["eval", &out, "--json"]));
    let wrong = |value: &Value| value["wrong"].as_u64().expect("a number");
    // Sums in another order: an image may be between two classes.
    assert!(wrong(&found).abs_diff(wrong(&summary(&run)["test"])) <= 1, "{found}");
    for key in ["loss", "angle"] {
        let number = |value: &Value| value[key].as_f64().expect("a number");
        let (found, expected) = (number(&found), number(&summary(&run)["test"]));
        assert!((found - expected).abs() < 1e-4 * expected, "{key}: {found}, {expected}");
    }
    let features = text_of(&directory.path().join("features.npy"));
    program::printed(program::lsoftmax(&["embed", &out, "mnist", "--out", &features]));
    let weights = text_of(&directory.path().join("weights.safetensors"));
    program::printed(program::lsoftmax(&["export", &out, "--out", &weights]));
}

#[test]
fn every_head_and_optimiser_of_a_divided_head_resumes_to_the_same_bits() {
    let head = |head: &str| sharded().replace("margin = 2", &format!("head = {head}"));
    let sampled = head("{ name = \"cosface\", margin = 0.2, scale = 16, sample_rate = 0.5 }");
    let learned = head("{ name = \"arcface\", margin = 0.2, scale = 16, learned_scale = true }");
    let adamw = ["--optimiser", "adamw", "--learning-rate", "0.01"];
    let clipped = ["--accumulate", "2", "--clip-norm", "0.5"];
    let pairs = sharded()
        .replace("seed = 3", "seed = 3\nloss = { contrastive = { weight = 0.1, margin = 1 } }");
    for (text, options) in [
        (sharded(), &[][..]),
        (sampled, &[]),
        (learned, &[]),
        (head("\"a-softmax\""), &adamw),
        (head("\"normsoftmax\""), &clipped),
        (pairs, &[]),
    ] {
        let (_directory, run, _) = trained(&text, &[options, &["--steps", "22"]].concat());
        let expected = result(&run);
        undo_the_end(&run);
        done(resume(&run));
        assert!(result(&run) == expected, "{text}");
        // Two checkpoints, each with its shards, and nothing else.
        let kept = fs::read_dir(run.join("checkpoints")).expect("a directory").count();
        assert_eq!((checkpoints(&run).len(), kept), (2, 4));
    }
}

#[test]
fn a_corrupt_or_missing_shard_is_named_and_the_older_checkpoint_is_used() {
    let (_directory, run, _) = trained(&sharded(), &["--steps", "22"]);
    let expected = result(&run);
    let shard = |checkpoint: usize, name: &str| {
        checkpoints(&run)[checkpoint].with_extension("shards").join(name)
    };
    for name in ["summary.json", "test.json", "model.json", "model.safetensors"] {
        fs::remove_file(run.join(name)).expect("it was there");
    }
    let (spoilt, missing) = (shard(1, "05"), shard(0, "02"));
    let mut bytes = fs::read(&spoilt).expect("a file");
    bytes[100] ^= 1;
    fs::write(&spoilt, bytes).expect("a file");
    let copy = fs::read(&missing).expect("a file");
    fs::remove_file(&missing).expect("it was there");
    let (code, sentence) = ended(&resume(&run).output().expect("the program starts"));
    assert_eq!(code, Some(2));
    assert_says(&sentence, &["no valid checkpoint", "shards/05: is corrupt", "shards/02", "read"]);
    // With the older one whole, the run goes on to the same bits.
    fs::write(&missing, copy).expect("a file");
    let output = done(resume(&run));
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_says(&stderr, &["shards/05: is corrupt", "an older checkpoint is used"]);
    assert!(result(&run) == expected);
}

#[test]
fn what_a_divided_head_cannot_do_is_refused_with_a_sentence() {
    let (directory, run) = temporary_run();
    let out = text_of(&run);
    let with = |line: &str| sharded().replace("seed = 3", &format!("seed = 3\n{line}"));
    for (text, words) in [
        (with("keep = \"best\""), ["`shard_classes`", "keep the last model"]),
        (with("average = 0.9"), ["`shard_classes`", "second copy of the head"]),
        (with("loss = \"hinge\""), ["`shard_classes`", "hinge"]),
        (
            with("accumulate = 2")
                .replace("margin = 2\n", "head = { name = \"cosface\", sample_rate = 0.5 }\n"),
            ["`shard_classes`", "larger batches"],
        ),
    ] {
        let recipe = recipe(directory.path(), &text);
        let output = program::lsoftmax(&["train", &recipe, "--out", &out]);
        assert_says(refused(output), &words);
    }
    assert!(!run.exists());
}
