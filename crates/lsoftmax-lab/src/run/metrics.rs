//! The log of a run: one JSON object per line.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
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
        /// Steps done.
        step: u64,
        /// Loss, accuracy, angle and norm.
        #[serde(flatten)]
        means: BatchMetrics,
        /// λ.
        lambda: f64,
        /// The learning rate.
        learning_rate: f64,
        /// Images per second.
        images_per_second: f64,
    },
    /// An evaluation on the held-out images.
    Validation {
        /// Steps done.
        step: u64,
        /// The mean cross-entropy, without the margin.
        loss: f64,
        /// The share of samples that were classified incorrectly, in percent.
        error: f64,
    },
    /// A return to an earlier checkpoint with a larger λ.
    Rollback(Rollback),
}

/// A return to an earlier checkpoint with a larger λ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rollback {
    /// Where training diverged.
    pub step: u64,
    /// Where it resumes.
    pub to: u64,
    /// λ does not fall below this from now on.
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
    /// Opens the log as it is.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(path);
        let mut file = open.map_err(RunError::io(path, "opened"))?;
        let length = file.seek(SeekFrom::End(0)).map_err(RunError::io(path, "read"))?;
        Ok(Self { path: path.to_owned(), file, length })
    }

    /// Cuts the log back to its first `length` bytes.
    ///
    /// # Errors
    /// When the system refuses, or the log is shorter than that.
    pub fn cut(&mut self, length: u64) -> Result<(), RunError> {
        if self.length < length {
            let problem = format!(
                "is {} bytes long, but was {length} at the checkpoint: put it back, or begin again with another --out",
                self.length
            );
            return Err(RunError::damaged(&self.path, problem));
        }
        self.file.set_len(length).map_err(RunError::io(&self.path, "cut back"))?;
        self.file.seek(SeekFrom::End(0)).map_err(RunError::io(&self.path, "read"))?;
        self.length = length;
        Ok(())
    }

    /// Adds a line.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn add(&mut self, metric: &Metric) -> Result<(), RunError> {
        let mut line = serde_json::to_string(metric).expect("plain values become JSON");
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(RunError::io(&self.path, "written"))?;
        self.length += line.len() as u64;
        Ok(())
    }

    /// Bytes of the log so far, all of them on the disk.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn synced(&mut self) -> Result<u64, RunError> {
        self.file.sync_data().map_err(RunError::io(&self.path, "written"))?;
        Ok(self.length)
    }

    /// All lines of a log. A last line without an end is left out: a kill may have cut it.
    ///
    /// # Errors
    /// When it cannot be read, or a line is not what it should be.
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
                RunError::damaged(path, format!("line {number} is not of a log: {error}"))
            })?);
            line.clear();
        }
        Ok(metrics)
    }
}
