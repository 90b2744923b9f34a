//! Listing the data sets, and verifying their files.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde::Serialize;

use crate::dataset::Shape;
use crate::directory::{DataDir, SetLocation};
use crate::error::{DataError, DataProblem};
use crate::sets::Set;

/// The status of a set, as `lsoftmax data list` reports it.
#[derive(Clone, Debug, Serialize)]
pub struct SetListing {
    /// Its name.
    pub name: &'static str,
    /// A one-line description.
    pub about: &'static str,
    /// Whether it has been downloaded.
    pub state: SetState,
    /// Where it is, or where it would be downloaded to.
    #[serde(rename = "place")]
    pub location: String,
    /// The size of its files on disk or, if it is missing, of the download.
    pub bytes: u64,
    /// The download address.
    pub source: String,
    /// Its authors' page.
    pub home: &'static str,
}

/// Whether a set is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SetState {
    /// Built into the program.
    BuiltIn,
    /// All its files are present and have the right size; [`check`] verifies their contents.
    #[serde(rename = "there")]
    Present,
    /// Some of its files are missing or truncated.
    Incomplete,
    /// All of its files are missing.
    Missing,
}

/// All known sets, with their location and status.
pub fn list(data: &DataDir) -> Vec<SetListing> {
    Set::ALL.map(|set| listed(set, data)).into()
}

fn listed(set: &Set, data: &DataDir) -> SetListing {
    let location = set.location(data);
    let sizes: Vec<Option<u64>> = (0..set.files.len())
        .map(|file| {
            let path = set.file_path(&location, file);
            let metadata = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
            is_complete(&path, metadata.len(), set.files[file].bytes).then_some(metadata.len())
        })
        .collect();
    let complete = sizes.iter().flatten().count();
    let any = (0..set.files.len()).any(|file| set.file_path(&location, file).exists());
    let state = match &location {
        SetLocation::BuiltIn => SetState::BuiltIn,
        _ if complete == sizes.len() => SetState::Present,
        _ if !any => SetState::Missing,
        _ => SetState::Incomplete,
    };
    SetListing {
        name: set.name,
        about: set.about,
        state,
        location: location.to_string(),
        bytes: match state {
            SetState::Present | SetState::Incomplete => sizes.iter().flatten().sum(),
            SetState::BuiltIn | SetState::Missing => set.download_bytes(),
        },
        source: set.source(),
        home: set.home,
    }
}

/// Whether a file of `length` bytes has `contents` bytes, decompressed if it is gzipped: a gzipped file
/// ends with their number, modulo 2^32.
fn is_complete(path: &Path, length: u64, contents: u64) -> bool {
    if path.extension().is_none_or(|extension| extension != "gz") {
        return length == contents;
    }
    let mut end = [0; 4];
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::End(-4))?;
        file.read_exact(&mut end)
    });
    read.is_ok() && u32::from_le_bytes(end) == contents as u32
}

/// The result of a successful [`check`].
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// The name of the set.
    pub name: &'static str,
    /// Where it is.
    #[serde(rename = "place")]
    pub location: String,
    /// Its verified files.
    pub files: Vec<CheckedFile>,
    /// The size of its images.
    pub shape: Shape,
    /// The number of classes.
    pub classes: usize,
    /// The number of training images.
    pub train: usize,
    /// The number of test images.
    pub test: usize,
    /// The number of training images per class, in label order.
    pub train_of_class: Vec<usize>,
}

/// A file whose checksum was verified.
#[derive(Clone, Debug, Serialize)]
pub struct CheckedFile {
    /// Its path.
    pub path: String,
    /// The SHA-256 of its decompressed contents.
    pub sha256: &'static str,
}

/// Verifies the SHA-256 of each file of a set, then reads the set.
///
/// # Errors
/// For the first file that is missing or has the wrong checksum.
pub fn check(set: &Set, data: &DataDir) -> Result<CheckReport, DataError> {
    let location = set.location(data);
    set.require_present(&location, data)?;
    let files = check_files(set, &location)?;
    let dataset = set.read(data)?;
    let mut train_of_class = vec![0; dataset.classes];
    for label in dataset.train.labels() {
        train_of_class[*label as usize] += 1;
    }
    Ok(CheckReport {
        name: set.name,
        location: location.to_string(),
        files,
        shape: dataset.train.shape(),
        classes: dataset.classes,
        train: dataset.train.len(),
        test: dataset.test.map_or(0, |test| test.len()),
        train_of_class,
    })
}

/// Verifies the SHA-256 of each file of a set.
pub(crate) fn check_files(
    set: &Set,
    location: &SetLocation,
) -> Result<Vec<CheckedFile>, DataError> {
    let check = |file: usize| {
        let path = set.file_path(location, file);
        let (found, sha256) = (set.contents(location, file)?.sum()?, set.files[file].sha256);
        if found != sha256 {
            return Err(DataError::new(
                path,
                DataProblem::Checksum { found, expected: sha256.into() },
            ));
        }
        Ok(CheckedFile { path: path.display().to_string(), sha256 })
    };
    (0..set.files.len()).map(check).collect()
}
