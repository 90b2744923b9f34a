//! Where the files of a set are found, and how they become a [`Dataset`].

use std::path::{Path, PathBuf};

use crate::contents::Contents;
use crate::dataset::Dataset;
use crate::error::{DataError, DataProblem};
use crate::sets::{Packing, Set};

/// The environment variable that names the directory of all sets.
pub const VARIABLE: &str = "LSOFTMAX_DATA";

/// The directory in which every set has a directory of its own, laid out as its official archive.
#[derive(Clone, Debug)]
pub struct DataDir(PathBuf);

impl DataDir {
    /// The directory given, else `$LSOFTMAX_DATA`, else `lsoftmax` in the platform's cache
    /// (`~/.cache/lsoftmax`).
    ///
    /// # Errors
    /// When there is none of them.
    pub fn find(given: Option<PathBuf>) -> Result<Self, DataError> {
        let variable = || std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
        let cache = || dirs::cache_dir().map(|cache| cache.join("lsoftmax"));
        let path = given.or_else(|| variable().map(PathBuf::from)).or_else(cache);
        path.map(Self).ok_or_else(|| DataError::new("~/.cache", DataProblem::NoPlace))
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The directory of a set.
    pub fn of(&self, set: &Set) -> PathBuf {
        self.0.join(set.name)
    }
}

/// Where a set is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetLocation {
    /// The program carries it.
    BuiltIn,
    /// A directory, whether it is there or not.
    Directory(PathBuf),
}

impl std::fmt::Display for SetLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built in"),
            Self::Directory(path) => path.display().fmt(f),
        }
    }
}

impl Set {
    /// Where this set is read from: its directory if there is one, else the program.
    pub fn place(&self, data: &DataDir) -> SetLocation {
        let directory = data.of(self);
        match self.built_in {
            Some(_) if !directory.exists() => SetLocation::BuiltIn,
            _ => SetLocation::Directory(directory),
        }
    }

    /// Reads the set.
    ///
    /// ```
    /// use lsoftmax_data::{DataDir, MNIST};
    /// let digits = MNIST.read(&DataDir::find(Some("no/such/directory".into()))?)?;
    /// assert_eq!((digits.train.len(), digits.classes), (60_000, 10));
    /// # Ok::<(), lsoftmax_data::DataError>(())
    /// ```
    ///
    /// # Errors
    /// When the set is not there, or a file of it is not what it should be.
    pub fn read(&self, data: &DataDir) -> Result<Dataset, DataError> {
        let place = self.place(data);
        self.present(&place)?;
        let files = (0..self.files.len()).map(|file| self.contents(&place, file));
        let files = files.collect::<Result<Vec<_>, _>>()?;
        let classes = self.class_names.len();
        let [train, test] = (self.format.read)(files, classes)?;
        Ok(Dataset {
            name: self.name.to_owned(),
            classes,
            class_names: Some(self.class_names.iter().map(|name| (*name).to_owned()).collect()),
            train,
            test: Some(test),
        })
    }

    /// Refuses a set whose directory is missing.
    pub(crate) fn present(&self, place: &SetLocation) -> Result<(), DataError> {
        match place {
            SetLocation::Directory(path) if !path.exists() => {
                Err(DataError::new(path, DataProblem::NoSet(self.name)))
            }
            _ => Ok(()),
        }
    }

    /// The contents of the set's file number `file`.
    pub(crate) fn contents(&self, place: &SetLocation, file: usize) -> Result<Contents, DataError> {
        let path = self.file_path(place, file);
        match (place, self.built_in) {
            (SetLocation::BuiltIn, Some(files)) => Contents::packed(&path, files[file]),
            _ => Contents::open(&path),
        }
    }

    /// The path of the set's file number `file`, whether it is there or not: gzipped if there is such
    /// a file, else plain if there is one, else as it comes in the archive.
    pub(crate) fn file_path(&self, place: &SetLocation, file: usize) -> PathBuf {
        let plain = self.files[file].path;
        let gzipped = format!("{plain}.gz");
        match place {
            SetLocation::BuiltIn => Path::new(self.name).join(gzipped),
            SetLocation::Directory(directory) => {
                let (plain, gzipped) = (directory.join(plain), directory.join(gzipped));
                let kept = self.format.packing == Packing::File;
                if gzipped.exists() || (kept && !plain.exists()) { gzipped } else { plain }
            }
        }
    }
}
