//! The directory of a run that several ranks train: rank 0 has it, the others get what they read of it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use lsoftmax_comm::Communicator;

use super::checkpoint::{self, list};
use super::directory::{FILES, METRICS, write_atomic};
use super::{RunDirectory, RunError};

impl RunDirectory {
    /// As [`RunDirectory::create`], on rank 0.
    ///
    /// # Errors
    /// See [`RunDirectory::create`].
    pub fn create_shared(
        path: &Path,
        overwrite: bool,
        ranks: &Arc<dyn Communicator>,
    ) -> Result<Self, RunError> {
        match ranks.is_first() {
            true => Ok(Self { ranks: Arc::clone(ranks), ..Self::create(path, overwrite)? }),
            false => Self::temporary(ranks),
        }
    }

    /// As [`RunDirectory::open`], on rank 0, which sends its files to the others.
    ///
    /// # Errors
    /// See [`RunDirectory::open`].
    pub fn open_shared(path: &Path, ranks: &Arc<dyn Communicator>) -> Result<Self, RunError> {
        let run = match ranks.is_first() {
            true => Self { ranks: Arc::clone(ranks), ..Self::open(path)? },
            false => Self::temporary(ranks)?,
        };
        if ranks.size() > 1 {
            // Nobody but rank 0 reads the log.
            FILES.iter().filter(|name| **name != METRICS).try_for_each(|name| run.send(name))?;
        }
        Ok(run)
    }

    /// The ranks that train the run.
    pub(crate) fn ranks(&self) -> &dyn Communicator {
        &*self.ranks
    }

    /// Whether this is not the run's own directory, but what another rank has of it.
    pub(super) fn is_copy(&self) -> bool {
        self._temporary.is_some()
    }

    /// Sends the checkpoints of rank 0 to the other ranks, in the place of those that they have.
    pub(crate) fn send_checkpoints(&self) -> Result<(), RunError> {
        if self.ranks.size() == 1 {
            return Ok(());
        }
        let mut names: Vec<String> = Vec::new();
        for (_, path) in list(&self.file(checkpoint::FOLDER))? {
            match path.file_name().and_then(|name| name.to_str()) {
                Some(name) if !self.is_copy() => {
                    names.push(format!("{}/{name}", checkpoint::FOLDER))
                }
                _ => fs::remove_file(&path).map_err(RunError::io(&path, "removed"))?,
            }
        }
        let folder = self.file(checkpoint::FOLDER);
        fs::create_dir_all(&folder).map_err(RunError::io(&folder, "created"))?;
        let names = self.ranks.broadcast(names.join("\n").into_bytes());
        let names = String::from_utf8_lossy(&names).into_owned();
        names.lines().try_for_each(|name| self.send(name))
    }

    fn temporary(ranks: &Arc<dyn Communicator>) -> Result<Self, RunError> {
        let place = std::env::temp_dir();
        let temporary = tempfile::tempdir().map_err(RunError::io(&place, "written to"))?;
        let run = Self::lock(temporary.path())?;
        Ok(Self { ranks: Arc::clone(ranks), _temporary: Some(temporary), ..run })
    }

    /// Sends a file of rank 0 to the other ranks, if it is there.
    fn send(&self, name: &str) -> Result<(), RunError> {
        const FOUND: u8 = 1;
        let path = self.file(name);
        let mut message = Vec::new();
        if self.ranks.is_first() && path.is_file() {
            message.push(FOUND);
            message.extend(fs::read(&path).map_err(RunError::io(&path, "read"))?);
        }
        match self.ranks.broadcast(message).split_first() {
            Some((_, contents)) if self.is_copy() => write_atomic(&path, &[contents]),
            _ => Ok(()),
        }
    }
}
