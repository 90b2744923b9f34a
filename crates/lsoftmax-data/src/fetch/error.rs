//! What can go wrong while a set is fetched, in sentences.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use crate::error::DataError;

/// Why a set was not fetched. Nothing half-written is left in its place.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The set has no place.
    #[error(transparent)]
    Data(#[from] DataError),
    /// What was given as a mirror is neither an address nor a directory.
    #[error(
        "{0} is neither an http or https address nor a directory; give the place where the archives are"
    )]
    From(String),
    /// A local archive that cannot be read.
    #[error("{}: cannot be read ({source}); name a directory with the set's official archives", path.display())]
    Local {
        /// The archive.
        path: PathBuf,
        /// The system's reason.
        source: Error,
    },
    /// Another process does the same.
    #[error("{}: this set is being fetched already; wait for that to end", .0.display())]
    Busy(PathBuf),
    /// The server has no such file, or will not give it.
    #[error(
        "{url}: the server answers with status {status}; name a mirror or a directory with --from"
    )]
    Status {
        /// The address.
        url: String,
        /// The server's answer.
        status: u16,
    },
    /// The connection fails, and not for the first time.
    #[error("{url}: {reason}{}, or name a mirror or a directory with --from", go_on(*received))]
    Network {
        /// The address.
        url: String,
        /// What happened.
        reason: String,
        /// The bytes that are there.
        received: u64,
    },
    /// The archive is not the set's.
    #[error("{origin}: {damage}; {}", if *.local { "name a directory with the set's official archives" } else { "try again, or name a mirror or a directory with --from" })]
    Damaged {
        /// The address or path of the archive.
        origin: String,
        /// What is wrong with it.
        damage: Damage,
        /// Whether it came from a directory.
        local: bool,
    },
    /// The disk is full.
    #[error("{}: the disk is full; make room, or choose another place with --data-dir", .0.display())]
    Full(PathBuf),
    /// The system refused.
    #[error("{}: cannot be written ({source}); choose another place with --data-dir", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: Error,
    },
}

impl FetchError {
    /// Whether other arguments would help; else the machine or the network failed.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Data(_) | Self::From(_) | Self::Local { .. } => true,
            Self::Damaged { local, .. } => *local,
            _ => false,
        }
    }

    /// What to make of a failure to write at `path`.
    pub(super) fn write(path: &Path) -> impl Fn(Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full(path.clone()),
            _ => Self::Write { path: path.clone(), source },
        }
    }
}

/// What to do after a connection failed.
fn go_on(received: u64) -> String {
    match received {
        0 => "; try again later".into(),
        _ => format!(" after {received} bytes; run the same command again to go on from there"),
    }
}

/// What is wrong with an archive.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// Not the official bytes.
    #[error("the archive has the SHA-256 {found}, but the official one {expected}")]
    Sum {
        /// The checksum of what came.
        found: String,
        /// The checksum of the official archive.
        expected: &'static str,
    },
    /// Longer than it should be.
    #[error("it goes on beyond {0} bytes, longer than the archive is")]
    Long(u64),
    /// Not a gzipped tar archive, or a broken one.
    #[error("the archive cannot be unpacked ({0})")]
    Unreadable(String),
    /// A path that leads out of the archive, or a link.
    #[error("the archive holds {0:?}, which is a link or leads out of its directory")]
    Unsafe(PathBuf),
    /// A file with other contents.
    #[error("the contents of {0} are not the official ones")]
    Contents(&'static str),
    /// A file that is not in it.
    #[error("the archive lacks {0}")]
    Lacks(&'static str),
}
