//! The built program, and arrays to give it.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod run;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// How an array lies in its file.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub descr: &'static str,
    pub fortran_order: bool,
}

pub const PLAIN: Layout = Layout { descr: "<f4", fortran_order: false };
pub const LABELS: Layout = Layout { descr: "<i8", fortran_order: false };

/// The bytes of an array, put together by hand. One row makes it one-dimensional if `flat`.
pub fn npy(layout: Layout, rows: &[Vec<f64>], flat: bool) -> Vec<u8> {
    let columns = rows.first().map_or(0, Vec::len);
    let values: Vec<f64> = match layout.fortran_order {
        true => (0..columns).flat_map(|j| rows.iter().map(move |row| row[j])).collect(),
        false => rows.concat(),
    };
    let shape = if flat { format!("({columns},)") } else { format!("({}, {columns})", rows.len()) };
    let data: Vec<u8> = values.iter().flat_map(|value| number(layout.descr, *value)).collect();
    file(&format!("'{}'", layout.descr), layout.fortran_order, &shape, &data)
}

/// A file with a header that may say anything.
pub fn file(descr: &str, fortran_order: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran_order { "True" } else { "False" };
    let header = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n");
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", length.as_slice(), header.as_bytes(), data].concat()
}

fn number(descr: &str, value: f64) -> Vec<u8> {
    match descr {
        "<f4" => (value as f32).to_le_bytes().to_vec(),
        ">f4" => (value as f32).to_be_bytes().to_vec(),
        "<f8" => value.to_le_bytes().to_vec(),
        ">f8" => value.to_be_bytes().to_vec(),
        "|u1" => vec![value as u8],
        "|i1" => (value as i8).to_le_bytes().to_vec(),
        ">i2" => (value as i16).to_be_bytes().to_vec(),
        "<u2" => (value as u16).to_le_bytes().to_vec(),
        "<i4" => (value as i32).to_le_bytes().to_vec(),
        ">u4" => (value as u32).to_be_bytes().to_vec(),
        "<i8" => (value as i64).to_le_bytes().to_vec(),
        ">u8" => (value as u64).to_be_bytes().to_vec(),
        _ => panic!("the tests write no {descr}"),
    }
}

/// A directory with a small batch in it that has a loss: 3 samples, 2 features, 4 classes.
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

/// What the program printed, having seen that it succeeded in silence.
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

/// The sentence that the program refused with, having seen that it is one line and the exit code 2.
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
