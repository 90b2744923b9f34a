//! Unpacking the archives of a set and verifying each file.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::path::{Component, Path};

use flate2::bufread::GzDecoder;
use sha2::{Digest, Sha256};
use tar::EntryType;

use super::error::{Damage, FetchError};
use crate::contents::{Contents, hexadecimal};
use crate::error::DataProblem;
use crate::sets::{Archive, Packing, Set, SetFile};

/// Why an archive could not be unpacked.
pub(super) enum UnpackError {
    /// The archive is invalid.
    Damage(Damage),
    /// The files could not be written.
    Disk(FetchError),
}

impl From<Damage> for UnpackError {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}

impl From<FetchError> for UnpackError {
    fn from(error: FetchError) -> Self {
        Self::Disk(error)
    }
}

/// The SHA-256 of a file, without decompressing it.
pub(super) fn sum(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hexadecimal(hasher)),
            count => hasher.update(&buffer[..count]),
        }
    }
}

/// Unpacks `archive`, stored at `path`, into `directory` and syncs the files to disk.
pub(super) fn unpack(
    set: &Set,
    archive: &Archive,
    path: &Path,
    directory: &Path,
) -> Result<(), UnpackError> {
    match set.format.packing {
        Packing::File => copy_gzipped(set, archive, path, directory),
        Packing::Tar => unpack_tar(set, path, directory),
    }
}

/// Copies an archive that is itself a gzipped file of the set.
fn copy_gzipped(
    set: &Set,
    archive: &Archive,
    path: &Path,
    directory: &Path,
) -> Result<(), UnpackError> {
    let plain = archive.name.trim_end_matches(".gz");
    let Some(file) = set.files.iter().find(|file| file.path == plain) else {
        return Ok(());
    };
    let sum =
        Contents::open(path).and_then(Contents::sum).map_err(|error| match error.problem {
            DataProblem::Gzip { reason, .. } => Damage::Unreadable(reason),
            problem => Damage::Unreadable(problem.to_string()),
        })?;
    if sum != file.sha256 {
        return Err(Damage::Contents(file.path).into());
    }
    let target = directory.join(archive.name);
    let write = FetchError::write(&target);
    std::fs::copy(path, &target).map_err(&write)?;
    File::open(&target).and_then(|file| file.sync_all()).map_err(&write)?;
    Ok(())
}

fn unpack_tar(set: &Set, path: &Path, directory: &Path) -> Result<(), UnpackError> {
    let unreadable = |error: std::io::Error| {
        Damage::Unreadable(match error.kind() {
            ErrorKind::UnexpectedEof => "it ends too early".into(),
            _ => error.to_string(),
        })
    };
    let file = BufReader::with_capacity(1 << 16, File::open(path).map_err(unreadable)?);
    // Limits decompression bombs: the other files in an archive are small.
    let limit = 2 * set.files.iter().map(|file| file.bytes).sum::<u64>() + (1 << 20);
    let mut tar = tar::Archive::new(GzDecoder::new(file).take(limit));
    let mut missing: Vec<_> = set.files.iter().collect();
    for entry in tar.entries().map_err(unreadable)? {
        let mut entry = entry.map_err(unreadable)?;
        let name = entry.path().map_err(unreadable)?.into_owned();
        let inside =
            name.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        let kind = entry.header().entry_type();
        let known = matches!(kind, EntryType::Regular | EntryType::Continuous);
        let skipped = matches!(kind, EntryType::Directory | EntryType::XGlobalHeader);
        if !inside || !(known || skipped) {
            return Err(Damage::Unsafe(name).into());
        }
        let Some(file) = set.files.iter().find(|file| known && name == Path::new(file.path)) else {
            continue;
        };
        unpack_file(&mut entry, file, directory, unreadable)?;
        missing.retain(|other| other.path != file.path);
    }
    match missing.first() {
        Some(file) => Err(Damage::MissingFile(file.path).into()),
        None => Ok(()),
    }
}

fn unpack_file(
    entry: &mut impl Read,
    file: &SetFile,
    directory: &Path,
    unreadable: impl Fn(std::io::Error) -> Damage,
) -> Result<(), UnpackError> {
    let target = directory.join(file.path);
    let write = FetchError::write(&target);
    if let Some(parent) = target.parent() {
        std::fs::create_dir_all(parent).map_err(&write)?;
    }
    let mut out = File::create(&target).map_err(&write)?;
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match entry.read(&mut buffer).map_err(&unreadable)? {
            0 => break,
            count => {
                hasher.update(&buffer[..count]);
                out.write_all(&buffer[..count]).map_err(&write)?;
            }
        }
    }
    if hexadecimal(hasher) != file.sha256 {
        return Err(Damage::Contents(file.path).into());
    }
    out.sync_all().map_err(&write)?;
    Ok(())
}
