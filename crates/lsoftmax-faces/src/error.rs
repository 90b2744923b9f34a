//! Errors in the files of faces.

use std::path::{Path, PathBuf};

use lsoftmax_data::DataError;

/// Why faces could not be read, aligned, listed or written.
#[derive(Debug, thiserror::Error)]
pub enum FacesError {
    /// An image or a directory of images.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A line of a text file.
    #[error("{}, line {line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// A file or directory as a whole.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// A file that cannot be read.
    #[error("{}: cannot be read ({source}); check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file that cannot be written.
    #[error("{}: cannot be written ({source}); check the directory, its permissions and the space left", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The work was stopped.
    #[error("stopped after {done} of {total} images")]
    Interrupted {
        /// The number of images done.
        done: usize,
        /// The number of all images.
        total: usize,
    },
}

impl FacesError {
    /// Whether the input is at fault, rather than the system.
    pub fn is_bad_input(&self) -> bool {
        !matches!(self, Self::Write { .. })
    }

    pub(crate) fn line(path: &Path, line: usize, problem: impl Into<String>) -> Self {
        Self::Line { path: path.to_owned(), line, problem: problem.into() }
    }

    pub(crate) fn file(path: &Path, problem: impl Into<String>) -> Self {
        Self::File { path: path.to_owned(), problem: problem.into() }
    }

    pub(crate) fn read(path: &Path) -> impl Fn(std::io::Error) -> Self + '_ {
        |source| Self::Read { path: path.to_owned(), source }
    }

    pub(crate) fn write(path: &Path) -> impl Fn(std::io::Error) -> Self + '_ {
        |source| Self::Write { path: path.to_owned(), source }
    }
}
