//! Downloading a set from its official address, a mirror or a local directory.
//!
//! Downloads are stored in a hidden directory next to that of the set, from which a later call resumes.
//! The files are unpacked there too, verified, synced, and only then renamed into place.

mod download;
mod error;
mod unpack;

pub use download::Timeouts;
pub use error::{Damage, FetchError};

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Serialize;
use ureq::Agent;

use crate::check::check_files;
use crate::directory::{DataDir, SetLocation};
use crate::files::{remove_directory, remove_file};
use crate::sets::{Archive, Set};
use download::Download;
use unpack::UnpackError;

/// Where archives come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The official address. The SHA-256 of each archive and of each file is verified.
    Official,
    /// Another address with the same archives, possibly repacked: only the SHA-256 of each file is
    /// verified.
    Mirror(String),
    /// A local directory with the same archives, verified like a mirror.
    Directory(PathBuf),
}

impl Origin {
    /// Parses the address of a mirror or the path of a directory.
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(text: &str) -> Result<Self, FetchError> {
        if text.starts_with("http://") || text.starts_with("https://") {
            return Ok(Self::Mirror(text.to_owned()));
        }
        match Path::new(text) {
            path if path.is_dir() => Ok(Self::Directory(path.to_owned())),
            _ => Err(FetchError::From(text.to_owned())),
        }
    }
}

/// The progress of [`fetch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchProgress<'a> {
    /// An archive is being downloaded.
    Downloading {
        /// The archive.
        archive: &'a str,
        /// The number of bytes received so far.
        received: u64,
        /// The total number of bytes, if the server reports it.
        total: Option<u64>,
    },
    /// An archive is being verified and unpacked.
    Unpacking {
        /// The archive.
        archive: &'a str,
    },
}

/// The result of a successful [`fetch`].
#[derive(Clone, Debug, Serialize)]
pub struct FetchReport {
    /// The name of the set.
    pub name: &'static str,
    /// Where it is.
    #[serde(rename = "place")]
    pub location: String,
    /// Whether it was downloaded.
    pub outcome: FetchOutcome,
}

/// Whether a set was downloaded or already available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FetchOutcome {
    /// It is built into the program.
    BuiltIn,
    /// It was already present and complete.
    #[serde(rename = "already-there")]
    AlreadyPresent,
    /// It was downloaded.
    Fetched,
}

/// Fetches a set, unless it is already present and complete.
///
/// # Errors
/// When it cannot be downloaded, fails verification, or cannot be written. The set's directory is then
/// left unchanged.
pub fn fetch(
    set: &Set,
    data: &DataDir,
    origin: &Origin,
    timeouts: Timeouts,
    progress: &mut dyn FnMut(FetchProgress),
) -> Result<FetchReport, FetchError> {
    let fetched = |location: &SetLocation, outcome| {
        Ok(FetchReport { name: set.name, location: location.to_string(), outcome })
    };
    let location = set.location(data);
    if location == SetLocation::BuiltIn && *origin == Origin::Official {
        return fetched(&location, FetchOutcome::BuiltIn);
    }
    let location = SetLocation::Directory(data.of(set));
    if check_files(set, &location).is_ok() {
        return fetched(&location, FetchOutcome::AlreadyPresent);
    }
    let work = Work::start(set, data)?;
    let agent = download::agent(timeouts);
    for archive in set.archives {
        work.stage(archive, origin, &agent, progress)?;
    }
    work.finish(&data.of(set))?;
    fetched(&location, FetchOutcome::Fetched)
}

/// The hidden directory in which a set is assembled. On drop, everything but partial downloads, from
/// which a later call can resume, is removed.
struct Work<'a> {
    set: &'a Set,
    directory: PathBuf,
    /// The unpacked files.
    staged: PathBuf,
    /// Holds the lock until dropped.
    _lock: File,
}

impl<'a> Work<'a> {
    fn start(set: &'a Set, data: &DataDir) -> Result<Self, FetchError> {
        let directory = data.path().join(format!(".{}.part", set.name));
        let write = FetchError::write(&directory);
        std::fs::create_dir_all(&directory).map_err(&write)?;
        let lock = directory.join("lock");
        let lock = File::options().create(true).append(true).open(lock).map_err(&write)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(FetchError::Busy(data.of(set))),
            // The file system does not support locks: continue without one.
            Err(std::fs::TryLockError::Error(_)) => {}
        }
        let staged = directory.join("files");
        remove_directory(&staged).map_err(&write)?;
        std::fs::create_dir(&staged).map_err(&write)?;
        Ok(Self { set, directory, staged, _lock: lock })
    }

    /// Gets an archive and unpacks it.
    fn stage(
        &self,
        archive: &Archive,
        origin: &Origin,
        agent: &Agent,
        progress: &mut dyn FnMut(FetchProgress),
    ) -> Result<(), FetchError> {
        let url = match origin {
            Origin::Directory(directory) => {
                let path = directory.join(archive.name);
                return self.stage_local(archive, &path, progress);
            }
            Origin::Official => format!("{}{}", archive.base, archive.name),
            Origin::Mirror(base) => join(base, archive.name),
        };
        let part = self.directory.join(format!("{}.part", archive.name));
        let download =
            Download { agent, url: &url, part: &part, limit: 2 * archive.bytes + (1 << 16) };
        let official = *origin == Origin::Official;
        loop {
            let length = std::fs::metadata(&part).map_or(0, |metadata| metadata.len());
            let complete = length == archive.bytes
                && unpack::sum(&part).is_ok_and(|sum| sum == archive.sha256);
            let resumed = !complete
                && download
                    .run(&mut |received, total| {
                        progress(FetchProgress::Downloading {
                            archive: archive.name,
                            received,
                            total,
                        });
                    })
                    .inspect_err(|error| {
                        if matches!(error, FetchError::Damaged { .. }) {
                            let _ = std::fs::remove_file(&part);
                        }
                    })?;
            progress(FetchProgress::Unpacking { archive: archive.name });
            let damage = match self.unpack(archive, &part, official)? {
                None => return Ok(()),
                Some(damage) => damage,
            };
            std::fs::remove_file(&part).map_err(FetchError::write(&part))?;
            // The partial download of an earlier call may be of another file: retry once from the start.
            if !resumed {
                return Err(FetchError::Damaged { origin: url, damage, local: false });
            }
        }
    }

    fn stage_local(
        &self,
        archive: &Archive,
        path: &Path,
        progress: &mut dyn FnMut(FetchProgress),
    ) -> Result<(), FetchError> {
        let local = |source| FetchError::Local { path: path.to_owned(), source };
        if !std::fs::metadata(path).map_err(local)?.is_file() {
            return Err(local(ErrorKind::InvalidInput.into()));
        }
        File::open(path).map_err(local)?;
        progress(FetchProgress::Unpacking { archive: archive.name });
        match self.unpack(archive, path, false)? {
            None => Ok(()),
            Some(damage) => {
                let origin = path.display().to_string();
                Err(FetchError::Damaged { origin, damage, local: true })
            }
        }
    }

    /// Unpacks an archive, or returns what is wrong with it.
    fn unpack(
        &self,
        archive: &Archive,
        path: &Path,
        official: bool,
    ) -> Result<Option<Damage>, FetchError> {
        if official {
            let found = unpack::sum(path).map_err(FetchError::write(path))?;
            if found != archive.sha256 {
                return Ok(Some(Damage::Checksum { found, expected: archive.sha256 }));
            }
        }
        match unpack::unpack(self.set, archive, path, &self.staged) {
            Ok(()) => Ok(None),
            Err(UnpackError::Damage(damage)) => Ok(Some(damage)),
            Err(UnpackError::Disk(error)) => Err(error),
        }
    }

    /// Moves the unpacked files to the set's directory.
    fn finish(self, target: &Path) -> Result<(), FetchError> {
        let write = FetchError::write(target);
        if target.exists() {
            // The directory exists but is incomplete: replace each file individually.
            replace(&self.staged, target).map_err(&write)?;
        } else {
            sync_directory(&self.staged);
            std::fs::rename(&self.staged, target).map_err(&write)?;
        }
        if let Some(parent) = target.parent() {
            sync_directory(parent);
        }
        let _ = remove_directory(&self.directory);
        Ok(())
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        let _ = remove_directory(&self.staged);
        let parts = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let remaining = parts.filter(|part| {
            let empty = part.metadata().is_ok_and(|metadata| metadata.len() == 0);
            part.file_name() != "lock" && !(empty && std::fs::remove_file(part.path()).is_ok())
        });
        if remaining.count() == 0 {
            let _ = remove_directory(&self.directory);
        }
    }
}

/// The address of an archive at a mirror; `base` may be its directory or the archive itself.
fn join(base: &str, name: &str) -> String {
    match base.rsplit_once('/') {
        Some((_, last)) if last == name => base.to_owned(),
        _ => format!("{}/{name}", base.trim_end_matches('/')),
    }
}

/// Moves every file below `from` to the same path below `to`. A file there that differs from it in `.gz` alone is removed: it would be
/// read in its place, or be left over.
fn replace(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            replace(&from, &to)?;
        } else {
            std::fs::rename(&from, &to)?;
            let twin = match to.extension() {
                Some(ending) if ending == "gz" => to.with_extension(""),
                _ => to.with_added_extension("gz"),
            };
            remove_file(&twin)?;
        }
    }
    sync_directory(to);
    Ok(())
}

/// Syncs a directory on a best-effort basis: only Unix supports it.
fn sync_directory(path: &Path) {
    if let Ok(directory) = File::open(path) {
        let _ = directory.sync_all();
    }
}
