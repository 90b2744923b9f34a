//! A tiny training run on the built-in MNIST, and its reproducible results.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

use super::command;

/// The intervals are not multiples of each other, so that a checkpoint falls between two log lines.
pub const TINY: &str = r#"
name = "tiny"
data = "mnist"
validation = 200
network = { input = [1, 28, 28], stages = [{ filters = 8, units = 1 }, { filters = 8, units = 1 }], features = { size = 8 } }
margin = 2
lambda = { schedule = "power", base = 100, gamma = 0.1, power = 2, min = 1 }
batch = 16
steps = 120
learning_rate = { schedule = "steps", rate = 0.05, factor = 0.1, at = [100] }
seed = 3
evaluate_every = 11
log_every = 7
checkpoint_every = 4
"#;

/// A temporary directory, and the path of a run in it.
pub fn temporary_run() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    (directory, run)
}

/// Writes a recipe into a directory; returns its path as an argument for the program.
pub fn recipe(directory: &Path, text: &str) -> String {
    let path = directory.join("recipe-of-the-test.toml");
    fs::write(&path, text).expect("a file");
    text_of(&path)
}

pub fn text_of(path: &Path) -> String {
    path.to_str().expect("text").to_owned()
}

/// `lsoftmax train` with piped output.
pub fn train(arguments: &[&str]) -> Command {
    let mut command = command(&[&["train"], arguments].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub fn resume(run: &Path) -> Command {
    train(&["--resume", &text_of(run)])
}

/// Runs to the end.
#[track_caller]
pub fn done(mut command: Command) -> Output {
    let output = command.output().expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    output
}

/// The exit code and the last line on stderr, which must start with the program's name; log lines may
/// precede it.
#[track_caller]
pub fn ended(output: &Output) -> (Option<i32>, String) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
    let last = stderr.lines().last().unwrap_or_default();
    let ours = stderr.lines().filter(|line| line.starts_with("lsoftmax: ")).count();
    assert_eq!(ours, 1, "{stderr}");
    let sentence = last.strip_prefix("lsoftmax: ").expect("the program's name");
    (output.status.code(), sentence.to_owned())
}

/// Waits until the program has printed a line that contains `words`; `rest` returns the remaining lines.
pub struct Listener(BufReader<std::process::ChildStderr>);

impl Listener {
    pub fn new(child: &mut Child) -> Self {
        Self(BufReader::new(child.stderr.take().expect("it is piped")))
    }

    #[track_caller]
    pub fn wait_for(&mut self, words: &str) {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            let read = self.0.read_line(&mut line).expect("text");
            assert_ne!(read, 0, "the program ended without saying {words:?}");
        }
    }

    pub fn rest(mut self) -> String {
        let mut text = String::new();
        self.0.read_to_string(&mut text).expect("text");
        text
    }
}

/// The results of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Result {
    model: Vec<u8>,
    summary: Value,
    test: Value,
    metrics: Vec<Value>,
}

impl Result {
    /// The results without the log.
    pub fn without_metrics(self) -> Self {
        Self { metrics: Vec::new(), ..self }
    }

    /// Sets the place of the images.
    pub fn moved(&mut self, data: &str) {
        self.summary["data"] = data.into();
    }
}

/// Reads the reproducible results of a run: everything but times and the machine.
#[track_caller]
pub fn result(run: &Path) -> Result {
    let text = |name: &str| fs::read_to_string(run.join(name)).expect("a file");
    let mut summary: Value = serde_json::from_str(&text("summary.json")).expect("JSON");
    let fields = summary.as_object_mut().expect("an object");
    assert!(fields.remove("seconds").is_some() && fields.remove("environment").is_some());
    Result {
        model: fs::read(run.join("model.safetensors")).expect("a file"),
        summary,
        test: serde_json::from_str(&text("test.json")).expect("JSON"),
        metrics: metrics(run),
    }
}

/// The log, without speeds.
#[track_caller]
pub fn metrics(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).expect("a file");
    let line = |line: &str| {
        let mut metric: Value = serde_json::from_str(line).expect("JSON");
        metric.as_object_mut().expect("an object").remove("images_per_second");
        metric
    };
    text.lines().map(line).collect()
}

/// An uninterrupted run.
pub struct Reference {
    pub result: Result,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Reference {
    /// The run of [`TINY`], trained once per test program.
    pub fn get() -> &'static Self {
        static RUN: OnceLock<Reference> = OnceLock::new();
        RUN.get_or_init(|| {
            let directory = tempfile::tempdir().expect("a directory");
            let run = directory.path().join("run");
            done(train(&[&recipe(directory.path(), TINY), "--out", &text_of(&run)]));
            let mut files = BTreeMap::new();
            for folder in ["", "checkpoints"] {
                for entry in fs::read_dir(run.join(folder)).expect("a directory") {
                    let path = entry.expect("an entry").path();
                    if path.is_file() {
                        let name = path.strip_prefix(&run).expect("it is in it").to_owned();
                        files.insert(name, fs::read(&path).expect("a file"));
                    }
                }
            }
            Self { result: result(&run), files }
        })
    }

    /// The run's files in a new directory.
    pub fn put(&self, run: &Path) {
        fs::create_dir_all(run.join("checkpoints")).expect("a directory");
        for (name, bytes) in &self.files {
            fs::write(run.join(name), bytes).expect("a file");
        }
    }

    /// Copies the run as if it had been killed after the last checkpoint.
    pub fn put_unfinished(&self, run: &Path) {
        self.put(run);
        for name in ["summary.json", "test.json", "model.json", "model.safetensors"] {
            fs::remove_file(run.join(name)).expect("it was there");
        }
    }
}

/// Makes a finished run one that was killed before its last checkpoint.
#[track_caller]
pub fn undo_the_end(run: &Path) {
    for name in ["summary.json", "test.json", "model.json", "model.safetensors"] {
        fs::remove_file(run.join(name)).expect("it was there");
    }
    let last = checkpoints(run).pop().expect("a checkpoint");
    fs::remove_file(last).expect("it was there");
}

/// The checkpoints of a run, oldest first.
pub fn checkpoints(run: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(run.join("checkpoints")).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut found: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "checkpoint")).collect();
    found.sort();
    found
}

/// Whether a file is being written.
pub fn is_writing(run: &Path) -> bool {
    let entries = fs::read_dir(run.join("checkpoints")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| path.extension().is_none())
}

/// Whether this process ignores a signal, and what it starts does too.
pub fn is_ignored(signal: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
