//! Training as its user would run it: killed, resumed, interrupted, damaged, used.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// A run of a second or two on real MNIST.
const RECIPE: &str = r#"
name = "tiny"
source = "a test"
data = "mnist"
validation = 200
margin = 2
batch = 16
steps = 60
seed = 3
precision = "bf16"
evaluate_every = 20
log_every = 5
checkpoint_every = 7
lambda = { schedule = "power", base = 100, gamma = 0.01, power = 10, min = 1 }
learning_rate = { schedule = "steps", rate = 0.05, factor = 0.1, at = [40] }

[network]
input = [1, 28, 28]
stages = [{ filters = 8, units = 1 }, { filters = 8, units = 1 }]
features = { size = 8 }
"#;

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a directory"));
        fs::write(place.path("tiny.toml"), RECIPE).expect("a recipe");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lsoftmax"));
        command.args(words).current_dir(self.0.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the program runs")
    }

    fn ok(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {stderr}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// One sentence on stderr, which may follow lines of progress, and an exit code.
    fn refused(&self, words: &[&str], code: i32) -> String {
        let output = self.run(words);
        let stderr = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(code), "{words:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
        let last = stderr.lines().last().unwrap_or_default().to_owned();
        assert!(last.starts_with("lsoftmax: "), "{stderr}");
        last
    }

    fn model(&self, run: &str) -> Vec<u8> {
        fs::read(self.path(run).join("model.safetensors")).expect("a model")
    }

    fn json(&self, file: &str) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path(file)).expect("a file")).expect("JSON")
    }

    /// The log without what depends on the machine.
    fn log(&self, run: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(run).join("metrics.jsonl")).expect("a log");
        let mut lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        for line in &mut lines {
            line.as_object_mut().expect("an object").remove("images_per_second");
        }
        lines
    }

    fn checkpoints(&self, run: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path(run).join("checkpoints")).expect("checkpoints");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        // One that is being written has another name.
        let whole = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "checkpoint");
        let mut paths: Vec<_> = paths.filter(whole).collect();
        paths.sort();
        paths
    }

    /// Starts a command and waits until the run has a checkpoint.
    fn under_way(&self, words: &[&str], run: &str) -> Child {
        let child = self.command(words).spawn().expect("the program starts");
        let folder = self.path(run).join("checkpoints");
        for _ in 0..3000 {
            if fs::read_dir(&folder).is_ok_and(|entries| entries.count() > 0) {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        child
    }
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(status.expect("kill runs").success());
}

#[test]
fn a_run_killed_twenty_times_ends_with_the_same_bits() {
    let place = Place::new();
    place.ok(&["train", "tiny.toml", "--out", "whole"]);
    let mut killed = 0;
    let mut words = vec!["train", "tiny.toml", "--out", "killed"];
    // Moments spread over start, steps, evaluations and checkpoints; a run lasts longer than any.
    for attempt in 0.. {
        assert!(attempt < 60, "only {killed} of {attempt} attempts were killed before their end");
        let mut command = place.command(&words);
        command.env("RAYON_NUM_THREADS", if attempt % 2 == 0 { "1" } else { "2" });
        let mut child = command.spawn().expect("the program starts");
        let wait = 120 + (attempt * 37) % 170;
        std::thread::sleep(Duration::from_millis(wait));
        let was_running = child.try_wait().expect("a status").is_none();
        child.kill().ok();
        child.wait().expect("an end");
        if was_running {
            killed += 1;
        }
        if place.path("killed/recipe.toml").is_file() {
            words = vec!["train", "--resume", "killed"];
        } else {
            let _ = fs::remove_dir_all(place.path("killed"));
        }
        if killed >= 20 {
            break;
        }
        if place.path("killed/summary.json").is_file() {
            // Done before it was killed often enough: once more from the start, in another place.
            assert_eq!(place.model("killed"), place.model("whole"));
            fs::remove_dir_all(place.path("killed")).expect("removed");
            words = vec!["train", "tiny.toml", "--out", "killed"];
        }
    }
    place.ok(&words);
    assert_eq!(place.model("killed"), place.model("whole"));
    assert_eq!(place.log("killed"), place.log("whole"));
    for part in ["test", "validation"] {
        let of = |run: &str| place.json(&format!("{run}/summary.json"))[part].clone();
        assert_eq!(of("killed"), of("whole"), "{part}");
    }
}

#[test]
fn an_interrupted_run_says_how_to_go_on_and_does() {
    let place = Place::new();
    place.ok(&["train", "tiny.toml", "--out", "whole"]);
    for name in ["INT", "TERM"] {
        let child = place.under_way(&["train", "tiny.toml", "--out", name], name);
        signal(&child, name);
        let output = child.wait_with_output().expect("an end");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(130), "{stderr}");
        assert!(stderr.contains(&format!("`lsoftmax train --resume {name}` goes on")), "{stderr}");
        place.ok(&["train", "--resume", name]);
        assert_eq!(place.model(name), place.model("whole"));
    }
}

/// Damages a file in one of several ways.
fn damage(path: &Path, way: usize) {
    let mut bytes = fs::read(path).expect("a checkpoint");
    match way {
        0 => bytes[5000] ^= 1,
        1 => bytes.truncate(3000),
        2 => bytes.clear(),
        3 => bytes = b"not a checkpoint at all, but long enough to be looked at in full\n".to_vec(),
        _ => bytes[14] = b'9',
    }
    fs::write(path, bytes).expect("written");
}

#[test]
fn a_damaged_checkpoint_is_passed_over_for_the_one_before() {
    let place = Place::new();
    place.ok(&["train", "tiny.toml", "--out", "whole"]);
    for way in 0..5 {
        let run = format!("damaged{way}");
        let mut child = place.under_way(&["train", "tiny.toml", "--out", &run], &run);
        while place.checkpoints(&run).len() < 2 && child.try_wait().expect("a status").is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().ok();
        child.wait().expect("an end");
        let _ = fs::remove_file(place.path(&run).join("summary.json"));
        let checkpoints = place.checkpoints(&run);
        damage(checkpoints.last().expect("a checkpoint"), way);
        let output = place.run(&["train", "--resume", &run]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        assert!(stderr.contains("an older checkpoint is used"), "way {way}: {stderr}");
        assert_eq!(place.model(&run), place.model("whole"));

        let _ = fs::remove_file(place.path(&run).join("summary.json"));
        place.checkpoints(&run).iter().for_each(|path| damage(path, way));
        let sentence = place.refused(&["train", "--resume", &run], 2);
        assert!(sentence.contains("no checkpoint of"), "{sentence}");
    }
}

#[test]
fn a_directory_is_one_runs_and_one_programs() {
    let place = Place::new();
    let mut child = place.under_way(&["train", "tiny.toml", "--out", "run"], "run");
    let sentence = place.refused(&["train", "--resume", "run"], 2);
    assert!(sentence.contains("another program is using run"), "{sentence}");
    child.kill().ok();
    child.wait().expect("an end");
    let sentence = place.refused(&["train", "tiny.toml", "--out", "run"], 2);
    assert!(sentence.contains("holds a run already: go on with"), "{sentence}");
    let sentence = place.refused(&["train", "--resume", "nowhere"], 2);
    assert!(sentence.contains("holds no run"), "{sentence}");

    // Another network than the checkpoint's.
    let other = RECIPE.replace("features = { size = 8 }", "features = { size = 9 }");
    fs::write(place.path("run/recipe.toml"), other).expect("written");
    let sentence = place.refused(&["train", "--resume", "run"], 2);
    assert!(sentence.contains("is of another network than the recipe"), "{sentence}");
}

#[test]
fn a_full_disk_costs_nothing_that_was_kept() {
    let place = Place::new();
    place.ok(&["train", "tiny.toml", "--out", "whole"]);
    let mut child = place.under_way(&["train", "tiny.toml", "--out", "full"], "full");
    child.kill().ok();
    child.wait().expect("an end");
    let _ = fs::remove_file(place.path("full/summary.json"));
    // No file may grow beyond 8 KiB: the next checkpoint cannot be written.
    let program = env!("CARGO_BIN_EXE_lsoftmax");
    let limited = format!("trap '' XFSZ; ulimit -f 8; exec {program} train --resume full");
    let mut command = Command::new("bash");
    let output = command.args(["-c", &limited]).current_dir(place.0.path()).output();
    let output = output.expect("bash runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("cannot be written"), "{stderr}");
    }
    place.ok(&["train", "--resume", "full"]);
    assert_eq!(place.model("full"), place.model("whole"));
}

#[test]
fn divergence_is_explained_and_rolled_back_from() {
    let place = Place::new();
    let words = ["train", "tiny.toml", "--learning-rate", "1e9", "--out"];
    let sentence = place.refused(&[&words[..], &["stop"]].concat(), 2);
    assert!(sentence.contains("diverged at step"), "{sentence}");
    assert!(sentence.contains("Lower the learning rate"), "{sentence}");
    let words = [&words[..], &["back", "--on-divergence", "rollback"]].concat();
    let sentence = place.refused(&words, 2);
    assert!(sentence.contains("diverged"), "{sentence}");
    let rollbacks = place.log("back").into_iter().filter(|line| line["kind"] == "rollback");
    assert!(rollbacks.count() >= 1);
}

#[test]
fn a_new_users_way_from_training_to_export() {
    let place = Place::new();
    let summary: Value =
        serde_json::from_str(&place.ok(&["train", "tiny.toml", "--out", "run", "--json"])).unwrap();
    assert!(summary["test"]["error"].as_f64().unwrap() < 40.0, "{summary}");
    let found: Value = serde_json::from_str(&place.ok(&["eval", "run", "--json"])).unwrap();
    assert_eq!(found["wrong"], summary["test"]["wrong"]);
    assert_eq!(found["loss"], summary["test"]["loss"]);

    place.ok(&["embed", "run", "mnist", "--out", "e.npy", "--normalise"]);
    let bytes = fs::read(place.path("e.npy")).expect("an array");
    let array = npyz::NpyFile::new(&bytes[..]).expect("an array");
    assert_eq!(array.shape(), [10_000, 8]);
    let values: Vec<f32> = array.into_vec().expect("numbers");
    for row in values.chunks_exact(8) {
        let length: f32 = row.iter().map(|value| value * value).sum();
        assert!((length - 1.0).abs() < 1e-5 || length == 0.0);
    }
    place.ok(&["export", "run", "--out", "out.safetensors"]);
    assert_eq!(fs::read(place.path("out.safetensors")).unwrap(), place.model("run"));

    fs::write(place.path("text.png"), "not an image").expect("written");
    let sentence = place.refused(&["predict", "run", "text.png"], 2);
    assert!(sentence.contains("text.png"), "{sentence}");
    let again = place.ok(&["train", "--resume", "run"]);
    assert!(again.contains("test:"), "{again}");
}

#[test]
fn what_cannot_be_trained_is_told_in_a_sentence() {
    let place = Place::new();
    let sentence = place.refused(&["train", "mnits"], 2);
    assert!(sentence.contains("mnist"), "{sentence}");
    fs::write(place.path("typo.toml"), RECIPE.replace("margin = 2", "margn = 2")).unwrap();
    let sentence = place.refused(&["train", "typo.toml"], 2);
    assert!(sentence.contains("did you mean `margin`?"), "{sentence}");
    let empty = place.path("empty");
    fs::create_dir(&empty).expect("made");
    let directory = empty.to_str().expect("text");
    let sentence = place.refused(&["train", "cifar10", "--data-dir", directory], 2);
    assert!(sentence.contains("lsoftmax data fetch cifar10"), "{sentence}");
    place.refused(&["train", "--data", directory], 2);
    place.refused(&["train", "tiny.toml", "--margin", "-1"], 2);
    place.refused(&["train", "tiny.toml", "--batch", "0"], 2);
    place.refused(&["train"], 2);
    place.refused(&["eval", "nowhere"], 2);
}
