//! Where labelled images come from.

use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::dataset::{Dataset, HoldOut, Shape};
use crate::directory::DataDir;
use crate::error::DataError;
use crate::folder::{WatchReading, read_folder_watched};
use crate::sets::Set;

/// A data set known by its name, or a folder of images.
///
/// ```
/// use lsoftmax_data::{DataSource, MNIST};
/// assert_eq!(DataSource::from("mnist"), DataSource::Set(&MNIST));
/// assert_eq!(DataSource::from("photos/mnist"), DataSource::Folder("photos/mnist".into()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum DataSource {
    /// One of [`Set::ALL`].
    Set(&'static Set),
    /// A folder with a directory of images for each class; see [`read_folder`](crate::read_folder).
    Folder(PathBuf),
}

impl DataSource {
    /// Reads the images. Those of a folder are resized to `shape`; those of a set keep their own size.
    ///
    /// # Errors
    /// When the images are missing or a file is invalid.
    pub fn read(&self, data: &DataDir, shape: Shape) -> Result<Dataset, DataError> {
        self.read_watched(data, shape, &mut |_| ControlFlow::Continue(()))
    }

    /// As [`DataSource::read`]; while a folder is read, `watch` is told how far it is, and may stop it.
    ///
    /// # Errors
    /// As [`DataSource::read`], and when `watch` stops it.
    pub fn read_watched(
        &self,
        data: &DataDir,
        shape: Shape,
        watch: &mut WatchReading<'_>,
    ) -> Result<Dataset, DataError> {
        match self {
            Self::Set(set) => set.read(data),
            Self::Folder(path) => read_folder_watched(path, shape, watch),
        }
    }

    /// How images are held out: of every class in a folder, whose classes may be small.
    pub fn hold_out(&self) -> HoldOut {
        match self {
            Self::Set(_) => HoldOut::OfAll,
            Self::Folder(_) => HoldOut::OfClasses,
        }
    }

    /// The name of the set or the last component of the folder's path, without characters that are
    /// invalid in file names.
    pub fn name(&self) -> String {
        let name = match self {
            Self::Set(set) => set.name,
            Self::Folder(path) => path.file_name().and_then(|name| name.to_str()).unwrap_or(""),
        };
        let name: String = name.chars().filter(|c| !c.is_control() && *c != '\\').collect();
        if name.is_empty() { "folder".into() } else { name }
    }

    /// The same source; a folder with a relative path that does not exist is the one in the directory of data sets, if
    /// that exists.
    pub fn located(self, data: &DataDir) -> Self {
        match self {
            Self::Folder(path) if path.is_relative() && !path.exists() => {
                let there = data.path().join(&path);
                Self::Folder(if there.exists() { there } else { path })
            }
            other => other,
        }
    }

    /// The same source without the directories that a folder is in, which differ between machines.
    pub fn without_directories(self) -> Self {
        match &self {
            Self::Folder(_) => Self::Folder(self.name().into()),
            Self::Set(_) => self,
        }
    }

    /// The same source with an absolute path, independent of the working directory.
    pub fn absolute(self) -> Self {
        match self {
            Self::Folder(path) => Self::Folder(std::path::absolute(&path).unwrap_or(path)),
            set => set,
        }
    }

    /// Whether this is a folder with an empty path.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Folder(path) if path.as_os_str().is_empty())
    }
}

impl From<&str> for DataSource {
    fn from(text: &str) -> Self {
        Set::named(text).map_or_else(|| Self::Folder(Path::new(text).to_owned()), Self::Set)
    }
}

impl From<String> for DataSource {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<DataSource> for String {
    fn from(source: DataSource) -> String {
        source.to_string()
    }
}

impl fmt::Display for DataSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(set) => f.write_str(set.name),
            Self::Folder(path) => path.display().fmt(f),
        }
    }
}
