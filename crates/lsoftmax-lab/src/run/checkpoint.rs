//! Checkpoints: one file each, with a checksum, and one per shard of a head that is divided by class. The last two
//! are kept.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::directory::write_atomic;
use super::shards::{check_shards, remove_orphans};
use super::{RunDirectory, RunError};

/// Everything needed to resume a run.
#[derive(Clone, Debug)]
pub struct Checkpoint<S> {
    /// The number of steps done.
    pub step: u64,
    /// The rest of the trainer's state.
    pub state: S,
    /// The model's record.
    pub model: Vec<u8>,
    /// The optimiser's record.
    pub optimiser: Vec<u8>,
    /// The weights of the best model so far, if it may be kept.
    pub best: Vec<u8>,
    /// The moving average of the weights, if there is one.
    pub average: Vec<u8>,
    /// The digests of the files of its shards, if the head is divided by class.
    pub shards: Vec<String>,
}

const MAGIC: &[u8; 16] = b"lsoftmax run v3\n";
const CHECKSUM: usize = 32;
/// The number of checkpoints kept.
const KEPT: usize = 2;
pub(super) const FOLDER: &str = "checkpoints";

#[derive(Serialize, Deserialize)]
struct Header<S> {
    step: u64,
    state: S,
    model: usize,
    optimiser: usize,
    #[serde(default)]
    best: usize,
    #[serde(default)]
    average: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    shards: Vec<String>,
}

impl<S: Serialize + for<'a> Deserialize<'a>> Checkpoint<S> {
    /// Writes the checkpoint, then removes all but this one and the one before it. Checkpoints of later
    /// steps are removed too: they are corrupt or abandoned by a rollback. Of several ranks, rank 0 does so.
    ///
    /// # Errors
    /// When the file cannot be written; older checkpoints are then left unchanged.
    pub fn write(&self, run: &RunDirectory) -> Result<(), RunError> {
        if run.is_copy() {
            return Ok(());
        }
        let folder = run.file(FOLDER);
        fs::create_dir_all(&folder).map_err(RunError::io(&folder, "created"))?;
        let header = Header {
            step: self.step,
            state: &self.state,
            model: self.model.len(),
            optimiser: self.optimiser.len(),
            best: self.best.len(),
            average: self.average.len(),
            shards: self.shards.clone(),
        };
        // Not JSON, because reading it with `serde_json` may change the last bit of a number.
        let header = toml::to_string(&header).expect("plain values become TOML");
        let length = (header.len() as u64).to_le_bytes();
        let Self { model, optimiser, best, average, .. } = self;
        let parts = [MAGIC, &length[..], header.as_bytes(), model, optimiser, best, average];
        let mut checksum = Sha256::new();
        parts.iter().for_each(|part| checksum.update(part));
        let checksum = checksum.finalize();
        let path = folder.join(format!("{:09}.checkpoint", self.step));
        write_atomic(&path, &[&parts[..], &[&checksum]].concat())?;
        prune(run, self.step)
    }

    /// The newest valid checkpoint, before a step if one is given, and a message about each newer one
    /// that is invalid.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn newest(
        run: &RunDirectory,
        before: Option<u64>,
    ) -> Result<(Option<Self>, Vec<String>), RunError> {
        let mut complaints = Vec::new();
        let candidate = |step: u64| before.is_none_or(|before| step < before);
        for (step, path) in
            list(&run.file(FOLDER))?.into_iter().rev().filter(|(step, _)| candidate(*step))
        {
            let whole = |found: Self| match run.is_copy() {
                true => Ok(found),
                false => check_shards(run, found.step, &found.shards).map(|()| found),
            };
            match Self::read(&path).and_then(whole) {
                Ok(found) if found.step == step => return Ok((Some(found), complaints)),
                Ok(found) => complaints.push(format!(
                    "{}: contains step {}, not the step in its name",
                    path.display(),
                    found.step
                )),
                Err(error) => complaints.push(error.to_string()),
            }
        }
        Ok((None, complaints))
    }

    fn read(path: &Path) -> Result<Self, RunError> {
        let bytes = fs::read(path).map_err(RunError::io(path, "read"))?;
        let damaged = |problem: &str| RunError::damaged(path, problem);
        let body = bytes.len().checked_sub(CHECKSUM).filter(|body| *body >= MAGIC.len() + 8);
        let body = body.ok_or_else(|| damaged("is truncated"))?;
        let (bytes, checksum) = bytes.split_at(body);
        if !bytes.starts_with(MAGIC) {
            return Err(damaged("is not a checkpoint of this version of the program"));
        }
        if Sha256::digest(bytes).as_slice() != checksum {
            return Err(damaged("is corrupt: its checksum does not match"));
        }
        let rest = &bytes[MAGIC.len()..];
        let (length, rest) = rest.split_at(8);
        let length = u64::from_le_bytes(length.try_into().expect("eight bytes"));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let header = rest.get(..length).ok_or_else(|| damaged("has a truncated header"))?;
        let header: Header<S> = toml::from_slice(header).map_err(|error| {
            damaged(&format!("is a checkpoint of another version of the program: {error}"))
        })?;
        let mut rest = &rest[length..];
        let mut next = |length: usize| {
            let (part, others) = rest
                .split_at_checked(length)
                .ok_or_else(|| damaged("does not match its header"))?;
            rest = others;
            Ok::<_, RunError>(part.to_vec())
        };
        let (model, optimiser) = (next(header.model)?, next(header.optimiser)?);
        let (best, average) = (next(header.best)?, next(header.average)?);
        if !rest.is_empty() {
            return Err(damaged("does not match its header"));
        }
        let Header { step, state, shards, .. } = header;
        Ok(Self { step, state, model, optimiser, best, average, shards })
    }
}

/// Removes all checkpoints but that of a step.
///
/// # Errors
/// When a file cannot be removed.
pub(crate) fn keep_only(run: &RunDirectory, step: u64) -> Result<(), RunError> {
    for (_, path) in list(&run.file(FOLDER))?.into_iter().filter(|(of, _)| *of != step) {
        fs::remove_file(&path).map_err(RunError::io(&path, "removed"))?;
    }
    remove_orphans(run)
}

/// Removes all checkpoints but the last two up to a step.
///
/// # Errors
/// When a file cannot be removed.
pub(crate) fn prune(run: &RunDirectory, step: u64) -> Result<(), RunError> {
    let (past, future): (Vec<_>, Vec<_>) =
        list(&run.file(FOLDER))?.into_iter().partition(|(of, _)| *of <= step);
    for (_, path) in past.into_iter().rev().skip(KEPT).chain(future) {
        fs::remove_file(&path).map_err(RunError::io(&path, "removed"))?;
    }
    remove_orphans(run)
}

/// The step of the newest checkpoint in the directory of a run; 0 if there is none.
///
/// # Errors
/// When the directory cannot be read.
pub fn newest_step(run: &Path) -> Result<u64, RunError> {
    Ok(list(&run.join(FOLDER))?.last().map_or(0, |(step, _)| *step))
}

/// The checkpoints in a folder, oldest first.
pub(super) fn list(folder: &Path) -> Result<Vec<(u64, PathBuf)>, RunError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(RunError::io(folder, "read")(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(RunError::io(folder, "read"))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let step = name.and_then(|name| name.strip_suffix(".checkpoint"));
        if let Some(step) = step.and_then(|step| step.parse().ok()) {
            found.push((step, path));
        }
    }
    found.sort();
    Ok(found)
}
