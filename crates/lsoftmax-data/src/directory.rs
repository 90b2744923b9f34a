//! Locating the files of a set, and reading them into a [`Dataset`].

use std::path::{Path, PathBuf};

use crate::contents::Contents;
use crate::dataset::Dataset;
use crate::error::{DataError, DataProblem};
use crate::sets::{Packing, Set};
use crate::shell::shell_word;

/// The environment variable with the directory of all sets.
pub const VARIABLE: &str = "LSOFTMAX_DATA";

/// The directory of all data sets. Each set has a subdirectory with the layout of its official archive.
#[derive(Clone, Debug)]
pub struct DataDir {
    path: PathBuf,
    /// Whether it was given, rather than found.
    given: bool,
}

impl DataDir {
    /// The directory given, else `$LSOFTMAX_DATA`, else `lsoftmax` in the platform's cache
    /// (`~/.cache/lsoftmax`).
    ///
    /// # Errors
    /// When none of them is available.
    pub fn find(given: Option<PathBuf>) -> Result<Self, DataError> {
        let variable = || std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
        let cache = || dirs::cache_dir().map(|cache| cache.join("lsoftmax"));
        let is_given = given.is_some();
        let path = given.or_else(|| variable().map(PathBuf::from)).or_else(cache);
        path.map(|path| Self { path, given: is_given })
            .ok_or_else(|| DataError::new("~/.cache", DataProblem::NoDataDir))
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The option with which a suggested command finds the same directory: ` --data-dir DIR`, or nothing
    /// if it was not given.
    pub fn option(&self) -> String {
        if self.given { format!(" --data-dir {}", shell_word(&self.path)) } else { String::new() }
    }

    /// The directory of a set.
    pub fn of(&self, set: &Set) -> PathBuf {
        self.path.join(set.name)
    }
}

/// Where a set is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetLocation {
    /// Built into the program.
    BuiltIn,
    /// A directory, which may not exist.
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
    /// Where this set is read from: its directory if that exists or the set is not built in.
    pub fn location(&self, data: &DataDir) -> SetLocation {
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
    /// When the set is missing or one of its files is invalid.
    pub fn read(&self, data: &DataDir) -> Result<Dataset, DataError> {
        let location = self.location(data);
        self.require_present(&location, data)?;
        let files = (0..self.files.len()).map(|file| self.contents(&location, file));
        let files = files.collect::<Result<Vec<_>, _>>()?;
        let classes = self.class_names.len();
        let [train, test] = (self.format.read)(files, classes)?;
        Ok(Dataset {
            name: self.name.to_owned(),
            classes,
            class_names: self.class_names.iter().map(|name| (*name).to_owned()).collect(),
            train,
            test: Some(test),
        })
    }

    /// Fails if the directory of the set does not exist.
    pub(crate) fn require_present(
        &self,
        location: &SetLocation,
        data: &DataDir,
    ) -> Result<(), DataError> {
        match location {
            SetLocation::Directory(path) if !path.exists() => {
                let problem = DataProblem::NoSet { name: self.name, option: data.option() };
                Err(DataError::new(path, problem))
            }
            _ => Ok(()),
        }
    }

    /// The contents of the set's file with index `file`.
    pub(crate) fn contents(
        &self,
        location: &SetLocation,
        file: usize,
    ) -> Result<Contents, DataError> {
        let path = self.file_path(location, file);
        match (location, self.built_in) {
            (SetLocation::BuiltIn, Some(files)) => Contents::packed(&path, files[file]),
            _ => Contents::open(&path),
        }
    }

    /// The path of the set's file with index `file`, which may not exist: the gzipped file if it
    /// exists, else the plain file if that exists, else the one that the archive would provide.
    pub(crate) fn file_path(&self, location: &SetLocation, file: usize) -> PathBuf {
        let plain = self.files[file].path;
        let gzipped = format!("{plain}.gz");
        match location {
            SetLocation::BuiltIn => Path::new(self.name).join(gzipped),
            SetLocation::Directory(directory) => {
                let (plain, gzipped) = (directory.join(plain), directory.join(gzipped));
                let stays_gzipped = self.format.packing == Packing::File;
                if gzipped.exists() || (stays_gzipped && !plain.exists()) { gzipped } else { plain }
            }
        }
    }
}
