//! What can go wrong with a run's files.

use std::path::{Path, PathBuf};

/// Why a run's files could not be used.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The directory holds a run already.
    #[error(
        "{} holds a run already: go on with `lsoftmax train --resume {}`, or choose another --out", path.display(), path.display()
    )]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// The directory holds no run.
    #[error("{} holds no run: there is no {missing} in it", path.display())]
    NoRun {
        /// The directory.
        path: PathBuf,
        /// The file that every run has.
        missing: &'static str,
    },
    /// Another program is at it.
    #[error(
        "another program is using {}: wait for it to end, or choose another directory", path.display()
    )]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The system refused.
    #[error("{}: cannot be {done} ({source}); check the path, its permissions and the space left", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was not done.
        done: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file is not what it should be.
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

    /// Whether other arguments would help; else the machine failed.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Exists { .. } | Self::NoRun { .. } | Self::Locked { .. } => true,
            Self::Damaged { .. } => true,
            Self::Io { .. } => false,
        }
    }
}
