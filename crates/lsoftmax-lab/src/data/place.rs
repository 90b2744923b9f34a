//! Where the files of a set are found, and how they become a [`Dataset`].

use std::path::{Path, PathBuf};

use super::contents::Contents;
use super::dataset::Dataset;
use super::error::{DataError, Problem};
use super::sets::{Format, Set};
use super::{cifar, idx};

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
        path.map(Self).ok_or_else(|| DataError::new("~/.cache", Problem::NoPlace))
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
pub enum Place {
    /// The program carries it.
    BuiltIn,
    /// A directory, whether it is there or not.
    Directory(PathBuf),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built in"),
            Self::Directory(path) => path.display().fmt(f),
        }
    }
}

impl Set {
    /// Where this set is read from: its directory if there is one, else the program.
    pub fn place(&self, data: &DataDir) -> Place {
        let directory = data.of(self);
        match self.built_in {
            Some(_) if !directory.exists() => Place::BuiltIn,
            _ => Place::Directory(directory),
        }
    }

    /// Reads the set.
    ///
    /// ```
    /// use lsoftmax_lab::data::{DataDir, MNIST};
    /// let digits = MNIST.read(&DataDir::find(Some("no/such/directory".into()))?)?;
    /// assert_eq!((digits.train.len(), digits.classes), (60_000, 10));
    /// # Ok::<(), lsoftmax_lab::data::DataError>(())
    /// ```
    ///
    /// # Errors
    /// When the set is not there, or a file of it is not what it should be.
    pub fn read(&self, data: &DataDir) -> Result<Dataset, DataError> {
        let place = self.place(data);
        self.present(&place)?;
        let mut files = (0..self.files.len())
            .map(|file| self.contents(&place, file))
            .collect::<Result<Vec<_>, _>>()?;
        let classes = self.class_names.len();
        let (train, test) = match self.format {
            Format::Idx => {
                let mut files = files.into_iter();
                let mut pair = || Some((files.next()?, files.next()?));
                let (Some(train), Some(test)) = (pair(), pair()) else {
                    return Err(DataError::new(place.to_string(), Problem::Missing));
                };
                let path = train.0.path().to_owned();
                let train = idx::read(train.0, train.1, classes)?;
                let test_path = test.0.path().to_owned();
                let test = idx::read(test.0, test.1, classes)?;
                let (expected, found) = (train.shape(), test.shape());
                if found != expected {
                    let problem = Problem::Shapes { found, expected, other: path };
                    return Err(DataError::new(test_path, problem));
                }
                (train, test)
            }
            Format::Cifar10 | Format::Cifar100 => {
                let labels =
                    if self.format == Format::Cifar10 { cifar::CIFAR10 } else { cifar::CIFAR100 };
                let test = files.split_off(self.files.len().saturating_sub(1));
                (cifar::read(files, labels)?, cifar::read(test, labels)?)
            }
        };
        Ok(Dataset {
            name: self.name.to_owned(),
            classes,
            class_names: Some(self.class_names.iter().map(|name| (*name).to_owned()).collect()),
            train,
            test: Some(test),
        })
    }

    /// Refuses a set whose directory is missing.
    pub(super) fn present(&self, place: &Place) -> Result<(), DataError> {
        match place {
            Place::Directory(path) if !path.exists() => {
                Err(DataError::new(path, Problem::NoSet(self.name)))
            }
            _ => Ok(()),
        }
    }

    /// The contents of the set's file number `file`.
    pub(super) fn contents(&self, place: &Place, file: usize) -> Result<Contents, DataError> {
        let path = self.file_path(place, file);
        match (place, self.built_in) {
            (Place::BuiltIn, Some(files)) => Contents::packed(&path, files[file]),
            _ => Contents::open(&path),
        }
    }

    /// The path of the set's file number `file`, whether it is there or not: gzipped if there is such
    /// a file, else plain if there is one, else as it comes in the archive.
    pub(super) fn file_path(&self, place: &Place, file: usize) -> PathBuf {
        let plain = self.files[file].path;
        let gzipped = format!("{plain}.gz");
        match place {
            Place::BuiltIn => Path::new(self.name).join(gzipped),
            Place::Directory(directory) => {
                let (plain, gzipped) = (directory.join(plain), directory.join(gzipped));
                let kept = self.format == Format::Idx;
                if gzipped.exists() || (kept && !plain.exists()) { gzipped } else { plain }
            }
        }
    }
}
