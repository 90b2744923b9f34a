//! Errors in the files of a run.

use std::path::{Path, PathBuf};

use lsoftmax_data::shell_word;

/// Why the files of a run could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The directory already contains a run.
    #[error(
        "{} already contains a run; resume it with `lsoftmax train --resume {}`, replace it with --overwrite, or choose another --out", path.display(), shell_word(path)
    )]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// The directory does not contain a run.
    #[error("{} does not contain a run: {missing} is missing; check the path", path.display())]
    NoRun {
        /// The directory.
        path: PathBuf,
        /// The missing file.
        missing: &'static str,
    },
    /// Another process is using the directory.
    #[error(
        "another process is using {}; wait until it has finished, or choose another directory", path.display()
    )]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// An I/O error.
    #[error("{}: cannot be {done} ({source}); check the path, its permissions and the space left", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operation that failed, as a participle.
        done: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file is invalid.
    #[error("{}: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        problem: String,
    },
}

impl RunError {
    pub(crate) fn io(path: &Path, done: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, done, source }
    }

    pub(crate) fn damaged(path: &Path, problem: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), problem: problem.into() }
    }

    /// Whether the input is at fault, rather than the system.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Exists { .. } | Self::NoRun { .. } | Self::Locked { .. } => true,
            Self::Damaged { .. } => true,
            Self::Io { .. } => false,
        }
    }
}
