//! Errors while a set is fetched.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use crate::error::DataError;

/// Why a set was not fetched. Its directory is left unchanged.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The data directory could not be determined or read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The mirror is neither a URL nor a directory.
    #[error(
        "{0} is neither an http or https address nor a directory; give the location of the archives"
    )]
    From(String),
    /// A local archive that cannot be read.
    #[error("{}: cannot be read ({source}); give a directory with the set's official archives", path.display())]
    Local {
        /// The archive.
        path: PathBuf,
        /// The system's reason.
        source: Error,
    },
    /// Another process is fetching the set.
    #[error("{}: this set is already being fetched by another process; wait until it has finished", .0.display())]
    Busy(PathBuf),
    /// An HTTP error status.
    #[error("{url}: the server returned status {status}; give a mirror or a directory with --from")]
    Status {
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// The connection failed repeatedly.
    #[error("{url}: {reason}{}, or give a mirror or a directory with --from", next_step(*received))]
    Network {
        /// The address.
        url: String,
        /// What happened.
        reason: String,
        /// The number of bytes received so far.
        received: u64,
    },
    /// The archive is corrupt or not the official one.
    #[error("{origin}: {damage}; {}", if *.local { "give a directory with the set's official archives" } else { "try again, or give a mirror or a directory with --from" })]
    Damaged {
        /// The address or path of the archive.
        origin: String,
        /// What is wrong with it.
        damage: Damage,
        /// Whether it came from a local directory.
        local: bool,
    },
    /// The disk is full.
    #[error("{}: the disk is full; free some space, or choose another directory with --data-dir", .0.display())]
    Full(PathBuf),
    /// A file or directory could not be written.
    #[error("{}: cannot be written ({source}); choose another directory with --data-dir", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: Error,
    },
}

impl FetchError {
    /// Whether the arguments are at fault, rather than the system or the network.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Data(_) | Self::From(_) | Self::Local { .. } => true,
            Self::Damaged { local, .. } => *local,
            _ => false,
        }
    }

    /// Converts an I/O error while writing `path`.
    pub(super) fn write(path: &Path) -> impl Fn(Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full(path.clone()),
            _ => Self::Write { path: path.clone(), source },
        }
    }
}

/// What the user can do after a connection failed.
fn next_step(received: u64) -> String {
    match received {
        0 => "; try again later".into(),
        _ => format!(" after {received} bytes; run the same command again to resume"),
    }
}

/// What is wrong with an archive.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// A checksum that differs from that of the official archive.
    #[error("the archive has the SHA-256 {found}, but {expected} was expected")]
    Checksum {
        /// The checksum of the received archive.
        found: String,
        /// The checksum of the official archive.
        expected: &'static str,
    },
    /// Longer than it should be.
    #[error("it is longer than {0} bytes, more than the archive can have")]
    TooLong(u64),
    /// Not a gzipped tar archive, or a corrupt one.
    #[error("the archive cannot be unpacked ({0})")]
    Unreadable(String),
    /// A path outside the archive's directory, or a link.
    #[error("the archive contains {0:?}, which is a link or outside its directory")]
    Unsafe(PathBuf),
    /// A file whose checksum differs from that of the official file.
    #[error("the contents of {0} are not the official ones")]
    Contents(&'static str),
    /// A file is missing from the archive.
    #[error("the archive lacks {0}")]
    MissingFile(&'static str),
}
