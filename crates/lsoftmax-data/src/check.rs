//! What is known of the sets on this machine, and whether they are whole.

use serde::Serialize;

use crate::dataset::Shape;
use crate::directory::{DataDir, SetLocation};
use crate::error::{DataError, DataProblem};
use crate::sets::Set;

/// A set in a list.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    /// What it is called.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// How much of it is there.
    pub state: SetState,
    /// Where it is or would be.
    pub place: String,
    /// The bytes of its files on disk, or of what would be downloaded.
    pub bytes: u64,
    /// Where it is downloaded from.
    pub source: String,
    /// Its authors' page.
    pub home: &'static str,
}

/// How much of a set is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SetState {
    /// The program carries it.
    BuiltIn,
    /// All its files are there; [`check`] says whether they are whole.
    There,
    /// Some of its files are there.
    Incomplete,
    /// Nothing of it is there.
    Missing,
}

/// Every set, with its place and whether it is there.
pub fn list(data: &DataDir) -> Vec<Listed> {
    Set::ALL.map(|set| listed(set, data)).into()
}

fn listed(set: &Set, data: &DataDir) -> Listed {
    let place = set.place(data);
    let sizes: Vec<Option<u64>> = (0..set.files.len())
        .map(|file| {
            let metadata = std::fs::metadata(set.file_path(&place, file)).ok()?;
            metadata.is_file().then_some(metadata.len())
        })
        .collect();
    let there = sizes.iter().flatten().count();
    let state = match &place {
        SetLocation::BuiltIn => SetState::BuiltIn,
        _ if there == sizes.len() => SetState::There,
        _ if there == 0 => SetState::Missing,
        _ => SetState::Incomplete,
    };
    Listed {
        name: set.name,
        about: set.about,
        state,
        place: place.to_string(),
        bytes: match state {
            SetState::There | SetState::Incomplete => sizes.iter().flatten().sum(),
            SetState::BuiltIn | SetState::Missing => set.download_bytes(),
        },
        source: set.source(),
        home: set.home,
    }
}

/// A set that was found whole.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// What it is called.
    pub name: &'static str,
    /// Where it is.
    pub place: String,
    /// Its files, each with the right checksum.
    pub files: Vec<CheckedFile>,
    /// The size of its images.
    pub shape: Shape,
    /// The number of classes.
    pub classes: usize,
    /// The number of images to train on.
    pub train: usize,
    /// The number of images to test on.
    pub test: usize,
    /// The images of each class to train on, in the order of the labels.
    pub train_of_class: Vec<usize>,
}

/// A file that was found whole.
#[derive(Clone, Debug, Serialize)]
pub struct CheckedFile {
    /// Where it is.
    pub path: String,
    /// The SHA-256 of its contents, unpacked.
    pub sha256: &'static str,
}

/// Checks each file of a set against its checksum, and reads the set.
///
/// # Errors
/// For the first file that is missing or not the original.
pub fn check(set: &Set, data: &DataDir) -> Result<Checked, DataError> {
    let place = set.place(data);
    let files = check_files(set, &place)?;
    let dataset = set.read(data)?;
    let mut train_of_class = vec![0; dataset.classes];
    for label in dataset.train.labels() {
        train_of_class[*label as usize] += 1;
    }
    Ok(Checked {
        name: set.name,
        place: place.to_string(),
        files,
        shape: dataset.train.shape(),
        classes: dataset.classes,
        train: dataset.train.len(),
        test: dataset.test.map_or(0, |test| test.len()),
        train_of_class,
    })
}

/// Checks each file of a set against its checksum.
pub(crate) fn check_files(set: &Set, place: &SetLocation) -> Result<Vec<CheckedFile>, DataError> {
    set.present(place)?;
    let check = |file: usize| {
        let path = set.file_path(place, file);
        let (found, sha256) = (set.contents(place, file)?.sum()?, set.files[file].sha256);
        if found != sha256 {
            return Err(DataError::new(path, DataProblem::Sum { found, expected: sha256.into() }));
        }
        Ok(CheckedFile { path: path.display().to_string(), sha256 })
    };
    (0..set.files.len()).map(check).collect()
}
