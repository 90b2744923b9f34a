//! Runs the built program, with a batch as input.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod arrays;
pub mod run;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use arrays::{LABELS, PLAIN, npy};
use tempfile::TempDir;

/// A directory with a small valid batch: 3 samples, 2 features, 4 classes.
pub struct Batch {
    pub directory: TempDir,
}

impl Batch {
    pub fn new() -> Self {
        let batch = Self { directory: tempfile::tempdir().expect("a directory") };
        let x = [vec![1.0, 2.0], vec![-1.0, 0.5], vec![0.25, -3.0]];
        let w = [vec![1.0, 0.0], vec![0.0, 1.0], vec![-1.0, 0.0], vec![0.5, -1.0]];
        batch.write("x.npy", &npy(PLAIN, &x, false));
        batch.write("w.npy", &npy(PLAIN, &w, false));
        batch.write("y.npy", &npy(LABELS, &[vec![1.0, 2.0, 3.0]], true));
        batch.write("b.npy", &npy(PLAIN, &[vec![0.5, -0.5, 0.0, 1.0]], true));
        batch
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).expect("a file");
    }

    /// `lsoftmax loss` on the batch, with more arguments.
    pub fn loss(&self, more: &[&str]) -> Output {
        let files = ["loss", "--features", "x.npy", "--weights", "w.npy", "--labels", "y.npy"];
        lsoftmax_in(self.directory.path(), &[files.as_slice(), more].concat())
    }
}

/// Runs the program.
pub fn lsoftmax(arguments: &[&str]) -> Output {
    lsoftmax_in(Path::new("."), arguments)
}

pub fn lsoftmax_in(directory: &Path, arguments: &[&str]) -> Output {
    command(arguments).current_dir(directory).output().expect("the program starts")
}

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lsoftmax"));
    command.args(arguments).stdin(Stdio::null()).env_remove("LSOFTMAX_KERNEL");
    command
}

/// The standard output of a program that must have succeeded with an empty stderr.
#[track_caller]
pub fn printed(output: Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{}: {stderr}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

#[track_caller]
pub fn json(output: Output) -> serde_json::Value {
    let text = printed(output);
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).expect("one JSON object")
}

/// The error message of a program that must have failed with exit code 2 and one line on stderr.
#[track_caller]
pub fn refused(output: Output) -> String {
    failed(output, 2)
}

#[track_caller]
pub fn failed(output: Output, code: i32) -> String {
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(output.stdout.is_empty(), "something was printed: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    stderr.trim_end().strip_prefix("lsoftmax: ").expect("the program's name").to_owned()
}

/// Asserts that the message contains each of the phrases.
#[track_caller]
pub fn assert_says(sentence: impl AsRef<str>, words: &[&str]) {
    let sentence = sentence.as_ref();
    for word in words {
        assert!(sentence.contains(word), "no {word:?} in {sentence:?}");
    }
}
