//! The log of a run: one JSON object per line.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::RunError;
use crate::objective::BatchMetrics;

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Metric {
    /// The mean of the steps since the last such line.
    Training {
        /// The number of steps done.
        step: u64,
        /// Loss, accuracies, angle and norm.
        #[serde(flatten)]
        means: BatchMetrics,
        /// λ, if the loss has a margin. Older logs have it of every loss.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lambda: Option<f64>,
        /// The learning rate.
        learning_rate: f64,
        /// Images per second.
        images_per_second: f64,
    },
    /// An evaluation on the held-out images.
    Validation {
        /// The number of steps done.
        step: u64,
        /// The mean cross-entropy, without the margin.
        loss: f64,
        /// The error rate in percent.
        error: f64,
    },
    /// An evaluation on the test images, for a picture only: see
    /// [`Recipe::test_curve`](crate::recipe::Recipe::test_curve).
    Test {
        /// The number of steps done.
        step: u64,
        /// The mean cross-entropy, without the margin.
        loss: f64,
        /// The error rate in percent.
        error: f64,
    },
    /// A return to an earlier checkpoint with a larger λ.
    Rollback(Rollback),
}

/// A return to an earlier checkpoint with a larger λ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rollback {
    /// The step at which training diverged.
    pub step: u64,
    /// The step from which it continues.
    pub to: u64,
    /// The lower bound of λ from now on.
    pub lambda_floor: f64,
    /// What went wrong.
    pub reason: String,
}

/// The log, open at its end.
#[derive(Debug)]
pub struct Metrics {
    path: PathBuf,
    file: File,
    length: u64,
}

impl Metrics {
    /// Opens the log at its end, creating it if necessary.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let open =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path);
        let mut file = open.map_err(RunError::io(path, "opened"))?;
        let length = file.seek(SeekFrom::End(0)).map_err(RunError::io(path, "read"))?;
        Ok(Self { path: path.to_owned(), file, length })
    }

    /// Truncates the log to the complete lines among its first `length` bytes, which are all of them
    /// unless the log was changed by others. Returns the new length.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn truncate(&mut self, length: u64) -> Result<u64, RunError> {
        let length = self.complete_lines(length).map_err(RunError::io(&self.path, "read"))?;
        self.file.set_len(length).map_err(RunError::io(&self.path, "truncated"))?;
        self.file.seek(SeekFrom::End(0)).map_err(RunError::io(&self.path, "read"))?;
        self.length = length;
        Ok(length)
    }

    /// The length of the complete lines among the first `length` bytes.
    fn complete_lines(&mut self, length: u64) -> std::io::Result<u64> {
        let mut lines = Vec::new();
        self.file.rewind()?;
        (&self.file).take(length).read_to_end(&mut lines)?;
        let last = lines.iter().rposition(|byte| *byte == b'\n');
        Ok(last.map_or(0, |last| last as u64 + 1))
    }

    /// Adds a line.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add(&mut self, metric: &Metric) -> Result<(), RunError> {
        let mut line = serde_json::to_string(metric).expect("plain values become JSON");
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(RunError::io(&self.path, "written"))?;
        self.length += line.len() as u64;
        Ok(())
    }

    /// Syncs the log to disk and returns its length in bytes.
    ///
    /// # Errors
    /// When the file cannot be synced.
    pub fn sync(&mut self) -> Result<u64, RunError> {
        self.file.sync_data().map_err(RunError::io(&self.path, "written"))?;
        Ok(self.length)
    }

    /// All lines of a log. An incomplete last line, as a killed process may leave it, is ignored.
    ///
    /// # Errors
    /// When it cannot be read, or a line is invalid.
    pub fn read(path: &Path) -> Result<Vec<Metric>, RunError> {
        let file = File::open(path).map_err(RunError::io(path, "read"))?;
        let mut reader = BufReader::new(file);
        let mut metrics = Vec::new();
        let mut line = String::new();
        while reader.read_line(&mut line).map_err(RunError::io(path, "read"))? > 0 {
            if !line.ends_with('\n') {
                break;
            }
            metrics.push(serde_json::from_str(&line).map_err(|error| {
                let number = metrics.len() + 1;
                RunError::damaged(path, format!("line {number} is invalid: {error}"))
            })?);
            line.clear();
        }
        Ok(metrics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_an_older_version_is_read() {
        let line = r#"{"kind":"training","step":7,"loss":1.5,"accuracy":0.5,"angle":80.0,"feature_norm":2.0,"lambda":3.0,"learning_rate":0.1,"images_per_second":9.0}"#;
        let Metric::Training { means, lambda, .. } = serde_json::from_str(line).unwrap() else {
            panic!("it is a training line")
        };
        let expected = BatchMetrics {
            loss: 1.5,
            accuracy: 0.5,
            margin_accuracy: 0.0,
            angle: 80.0,
            feature_norm: 2.0,
        };
        assert_eq!((means, lambda), (expected, Some(3.0)));
    }

    #[test]
    fn a_log_is_truncated_to_complete_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
        let mut log = Metrics::open(&path).unwrap();
        for (length, expected) in [(99, 14), (14, 14), (8, 8), (7, 4), (3, 0), (0, 0)] {
            assert_eq!(log.truncate(length).unwrap(), expected);
            assert_eq!(std::fs::metadata(&path).unwrap().len(), expected);
        }
    }
}
