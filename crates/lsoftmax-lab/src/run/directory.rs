//! The directory itself: made, locked, written whole.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{RunError, checkpoint};
use lsoftmax_data::files::{self, UNFINISHED};

/// A run's directory, locked for as long as this lives.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    _lock: File,
}

/// What makes a directory a run's.
const RECIPE: &str = "recipe.toml";

impl RunDirectory {
    /// A new run's directory.
    ///
    /// # Errors
    /// When it holds a run already, another program uses it, or it cannot be made.
    pub fn create(path: &Path) -> Result<Self, RunError> {
        fs::create_dir_all(path).map_err(RunError::io(path, "made"))?;
        let run = Self::lock(path)?;
        if run.file(RECIPE).exists() {
            return Err(RunError::Exists { path: path.to_owned() });
        }
        Ok(run)
    }

    /// The directory of a run that was begun.
    ///
    /// # Errors
    /// When there is none, or another program uses it.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        if !path.join(RECIPE).is_file() {
            return Err(RunError::NoRun { path: path.to_owned(), missing: RECIPE });
        }
        Self::lock(path)
    }

    fn lock(path: &Path) -> Result<Self, RunError> {
        let file = path.join(".lock");
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(&file);
        let lock = open.map_err(RunError::io(&file, "opened"))?;
        match lock.try_lock() {
            Ok(()) => {
                let run = Self { path: path.to_owned(), _lock: lock };
                run.sweep(path);
                run.sweep(&run.file(checkpoint::FOLDER));
                Ok(run)
            }
            Err(TryLockError::WouldBlock) => Err(RunError::Locked { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(RunError::io(&file, "locked")(source)),
        }
    }

    /// Removes what a killed program was writing. What cannot be removed does no harm.
    fn sweep(&self, directory: &Path) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(UNFINISHED.as_bytes()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file whole, or not at all.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn write(&self, name: &str, contents: &[u8]) -> Result<(), RunError> {
        write_whole(&self.file(name), &[contents])
    }

    /// Writes a file as JSON, whole, or not at all.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), RunError> {
        let mut text = serde_json::to_string_pretty(value).expect("plain values become JSON");
        text.push('\n');
        self.write(name, text.as_bytes())
    }

    /// The text of the recipe.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn recipe(&self) -> Result<String, RunError> {
        let path = self.file(RECIPE);
        fs::read_to_string(&path).map_err(RunError::io(&path, "read"))
    }

    /// Keeps the recipe, which makes this a run's directory.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn write_recipe(&self, text: &str) -> Result<(), RunError> {
        self.write(RECIPE, text.as_bytes())
    }
}

/// Reads a JSON file.
///
/// # Errors
/// When it cannot be read, or is not what is expected.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, RunError> {
    let text = fs::read_to_string(path).map_err(RunError::io(path, "read"))?;
    let problem = |error: serde_json::Error| format!("is not what it should be: {error}");
    serde_json::from_str(&text).map_err(|error| RunError::damaged(path, problem(error)))
}

/// Writes parts one after the other into a file, whole, or not at all.
pub(crate) fn write_whole(path: &Path, parts: &[&[u8]]) -> Result<(), RunError> {
    files::write_whole(path, parts).map_err(RunError::io(path, "written"))
}
