//! The directory of a run: created, locked, and written atomically.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lsoftmax_comm::{Alone, Communicator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use super::{RunError, checkpoint};
use crate::{fine_tuning, model_file};
use lsoftmax_data::RUN_FILE;
use lsoftmax_data::files::{self, UNFINISHED, resolved};

/// The directory of a run, locked until dropped.
///
/// Of several ranks, rank 0 has it. The others have a temporary directory in its place, with the files that they
/// read, so that only rank 0 needs access to the run.
#[derive(Debug)]
pub struct RunDirectory {
    pub(super) path: PathBuf,
    pub(super) ranks: Arc<dyn Communicator>,
    /// Removed when this is dropped.
    pub(super) _temporary: Option<TempDir>,
    pub(super) _lock: File,
}

/// The recipe as it was run; what makes a directory a run's.
pub const RECIPE: &str = RUN_FILE;
/// The machine and the program.
pub const ENVIRONMENT: &str = "environment.json";
/// The log.
pub const METRICS: &str = "metrics.jsonl";
/// The details of the evaluation on the test images.
pub const TEST: &str = "test.json";
/// The file that is locked while a process trains the run.
pub(crate) const LOCK: &str = ".lock";
/// The results.
pub const SUMMARY: &str = "summary.json";
/// The directory of event files.
pub const TENSORBOARD: &str = "tensorboard";

/// All files of a run outside of its folders, in the order in which they are removed.
pub(super) const FILES: [&str; 10] = [
    SUMMARY,
    TEST,
    model_file::DESCRIPTION,
    model_file::WEIGHTS,
    model_file::LAST_WEIGHTS,
    fine_tuning::DESCRIPTION,
    fine_tuning::WEIGHTS,
    METRICS,
    ENVIRONMENT,
    RECIPE,
];

/// Whether a path is that of a file of a run, or of a model that was copied without its run: what is written there would damage it.
pub fn is_file_of_run(path: &Path) -> bool {
    let path = resolved(path);
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return false };
    let has = |file: &str| directory.join(file).is_file();
    (has(RECIPE) || has(model_file::DESCRIPTION)) && FILES.iter().any(|file| name == *file)
}

impl RunDirectory {
    /// Creates and locks the directory of a new run.
    ///
    /// # Errors
    /// When it already contains a run, unless that may be overwritten; another process uses it; or it cannot
    /// be created.
    pub fn create(path: &Path, overwrite: bool) -> Result<Self, RunError> {
        fs::create_dir_all(path).map_err(RunError::io(path, "created"))?;
        let run = Self::lock(path)?;
        if run.file(RECIPE).exists() {
            if !overwrite {
                return Err(RunError::Exists { path: path.to_owned() });
            }
            run.clear()?;
        }
        Ok(run)
    }

    /// Removes the files of a run, the recipe last, and no others.
    fn clear(&self) -> Result<(), RunError> {
        for folder in [checkpoint::FOLDER, TENSORBOARD] {
            let path = self.file(folder);
            files::remove_directory(&path).map_err(RunError::io(&path, "removed"))?;
        }
        FILES.iter().try_for_each(|name| self.remove(name))
    }

    /// Removes a file, if it is there.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self, name: &str) -> Result<(), RunError> {
        let path = self.file(name);
        files::remove_file(&path).map_err(RunError::io(&path, "removed"))
    }

    /// Opens and locks the directory of an existing run.
    ///
    /// # Errors
    /// When it does not contain a run, or another process uses it.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        if !path.join(RECIPE).is_file() {
            return Err(RunError::NoRun { path: path.to_owned(), missing: RECIPE });
        }
        Self::lock(path)
    }

    pub(super) fn lock(path: &Path) -> Result<Self, RunError> {
        let file = path.join(LOCK);
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(&file);
        let lock = open.map_err(RunError::io(&file, "opened"))?;
        match lock.try_lock() {
            Ok(()) => {
                let (path_of, ranks) = (path.to_owned(), Arc::new(Alone));
                let run = Self { path: path_of, ranks, _temporary: None, _lock: lock };
                run.remove_unfinished(path);
                run.remove_unfinished(&run.file(checkpoint::FOLDER));
                Ok(run)
            }
            Err(TryLockError::WouldBlock) => Err(RunError::Locked { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(RunError::io(&file, "locked")(source)),
        }
    }

    /// Removes temporary files of a killed process, on a best-effort basis.
    fn remove_unfinished(&self, directory: &Path) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(UNFINISHED.as_bytes()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file atomically.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, contents: &[u8]) -> Result<(), RunError> {
        write_atomic(&self.file(name), &[contents])
    }

    /// Writes a JSON file atomically.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), RunError> {
        let mut text = serde_json::to_string_pretty(value).expect("plain values become JSON");
        text.push('\n');
        self.write(name, text.as_bytes())
    }

    /// Writes a JSON file of one line atomically.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_compact_json(&self, name: &str, value: &impl Serialize) -> Result<(), RunError> {
        let mut text = serde_json::to_string(value).expect("plain values become JSON");
        text.push('\n');
        self.write(name, text.as_bytes())
    }

    /// Writes the recipe, which marks this as the directory of a run.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_recipe(&self, text: &str) -> Result<(), RunError> {
        self.write(RECIPE, text.as_bytes())
    }
}

/// Reads a JSON file.
///
/// # Errors
/// When it cannot be read or is invalid.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, RunError> {
    let text = fs::read_to_string(path).map_err(RunError::io(path, "read"))?;
    let problem = |error: serde_json::Error| format!("is invalid: {error}");
    serde_json::from_str(&text).map_err(|error| RunError::damaged(path, problem(error)))
}

/// Writes the concatenation of `parts` to a file atomically.
pub(crate) fn write_atomic(path: &Path, parts: &[&[u8]]) -> Result<(), RunError> {
    files::write_atomic(path, parts).map_err(RunError::io(path, "written"))
}
