//! The files of a checkpoint's shards: `checkpoints/STEP.shards/NN`, beside `checkpoints/STEP.checkpoint`, which is
//! written after them and has their digests.

use std::fs;
use std::path::{Path, PathBuf};

use super::checkpoint::FOLDER;
use super::directory::write_atomic;
use super::{RunDirectory, RunError};
use crate::model_file::sha256_of;

/// The extension of the folders.
const SHARDS: &str = "shards";

fn folder(run: &RunDirectory, step: u64) -> PathBuf {
    run.file(FOLDER).join(format!("{step:09}.{SHARDS}"))
}

fn file(run: &RunDirectory, step: u64, shard: usize) -> PathBuf {
    folder(run, step).join(format!("{shard:02}"))
}

/// Writes a shard of a checkpoint that is going to be written; returns its digest.
pub(crate) fn write_shard(
    run: &RunDirectory,
    step: u64,
    shard: usize,
    contents: &[u8],
) -> Result<String, RunError> {
    let folder = folder(run, step);
    fs::create_dir_all(&folder).map_err(RunError::io(&folder, "created"))?;
    write_atomic(&file(run, step, shard), &[contents])?;
    Ok(sha256_of(contents))
}

/// Reads a shard of a checkpoint; returns its path, too.
pub(crate) fn read_shard(
    run: &RunDirectory,
    step: u64,
    shard: usize,
    digests: &[String],
) -> Result<(PathBuf, Vec<u8>), RunError> {
    let path = file(run, step, shard);
    let contents = fs::read(&path).map_err(RunError::io(&path, "read"))?;
    match digests.get(shard) == Some(&sha256_of(&contents)) {
        true => Ok((path, contents)),
        false => Err(corrupt(&path)),
    }
}

/// Checks all shards of a checkpoint, one after the other.
pub(super) fn check_shards(
    run: &RunDirectory,
    step: u64,
    digests: &[String],
) -> Result<(), RunError> {
    (0..digests.len()).try_for_each(|shard| read_shard(run, step, shard, digests).map(|_| ()))
}

fn corrupt(path: &Path) -> RunError {
    RunError::damaged(path, "is corrupt: its checksum is not that of its checkpoint")
}

/// Removes the shards of all checkpoints that are not there, or not any more.
pub(super) fn remove_orphans(run: &RunDirectory) -> Result<(), RunError> {
    for entry in fs::read_dir(run.file(FOLDER)).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_orphan = !path.with_extension("checkpoint").exists();
        if path.extension().is_some_and(|extension| extension == SHARDS) && is_orphan {
            fs::remove_dir_all(&path).map_err(RunError::io(&path, "removed"))?;
        }
    }
    Ok(())
}
