//! Errors in the files of a data set.

use std::path::{Path, PathBuf};

use crate::dataset::Shape;

/// An error in a file or directory of a data set.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct DataError {
    /// The file or directory.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: DataProblem,
}

impl DataError {
    /// A problem with the file or directory at `path`.
    pub fn new(path: impl AsRef<Path>, problem: DataProblem) -> Self {
        Self { path: path.as_ref().to_owned(), problem }
    }

    /// The errors of some of `files` files as one; `None` if there are none.
    pub fn of_files(mut errors: Vec<Self>, files: usize) -> Option<Self> {
        if errors.len() < 2 {
            return errors.pop();
        }
        // The innermost directory that contains all of them.
        let contains = |path: &&Path| errors.iter().all(|error| error.path.starts_with(path));
        let common = errors[0].path.ancestors().skip(1).find(contains).unwrap_or(Path::new(""));
        let path = if common.as_os_str().is_empty() { Path::new(".") } else { common }.to_owned();
        Some(Self { path, problem: DataProblem::Files { errors, files } })
    }
}

/// What is wrong with a file or directory of a data set. Byte offsets start at 0; for a gzipped file
/// they refer to its decompressed contents.
#[derive(Debug, thiserror::Error)]
pub enum DataProblem {
    /// The set has not been downloaded.
    #[error(
        "{name} was not found; download it with `lsoftmax data fetch {name}{option}`, or give its location with --data-dir or LSOFTMAX_DATA"
    )]
    NoSet {
        /// The name of the set.
        name: &'static str,
        /// The [option](crate::DataDir::option) that names the data directory.
        option: String,
    },
    /// No data directory was given, and the platform has no cache directory.
    #[error(
        "this system has no cache directory; give the location of the data sets with --data-dir or LSOFTMAX_DATA"
    )]
    NoDataDir,
    /// A file of a set does not exist.
    #[error("no such file; download the set with `lsoftmax data fetch`, or check the path")]
    Missing,
    /// A file or directory that is not part of a known set does not exist.
    #[error("no such file or directory; check the path")]
    NoFile,
    /// Not a regular file.
    #[error("this is not a regular file; replace it with one")]
    NotRegular,
    /// Not a directory.
    #[error("this is not a directory; give one that contains a directory of images for each class")]
    NotDirectory,
    /// The file could not be read.
    #[error("cannot be read ({0}); check the file and its permissions")]
    Read(std::io::Error),
    /// A truncated or corrupt gzip stream.
    #[error(
        "its gzip stream is corrupt after {offset} decompressed bytes ({reason}); download the file again"
    )]
    Gzip {
        /// The number of decompressed bytes before the error.
        offset: u64,
        /// The decoder's error.
        reason: String,
    },
    /// A checksum that differs from that of the official file.
    #[error(
        "its contents have the SHA-256 {found}, but {expected} was expected; download the file again"
    )]
    Checksum {
        /// The checksum of the file.
        found: String,
        /// The checksum of the official file.
        expected: String,
    },
    /// A magic number of another format.
    #[error(
        "byte 0: a file of {kind} starts with {expected:#010x}, but this one starts with {found:#010x}; download the file again"
    )]
    Magic {
        /// What the file should contain.
        kind: &'static str,
        /// The magic number of that kind.
        expected: u32,
        /// The magic number in the file.
        found: u32,
    },
    /// Sizes in the header that no valid file has.
    #[error(
        "byte {offset}: its header claims {claim}, which is not plausible; download the file again"
    )]
    Header {
        /// The offset of the sizes.
        offset: u64,
        /// The sizes.
        claim: String,
    },
    /// The file ends too early.
    #[error(
        "byte {offset}: the file is truncated here, but should have {expected} bytes; download it again"
    )]
    Truncated {
        /// Where it ends.
        offset: u64,
        /// Where it should end.
        expected: u64,
    },
    /// The file is longer than it should be.
    #[error("byte {offset}: the file should end here, but more data follows; download it again")]
    Trailing {
        /// Where it should end.
        offset: u64,
    },
    /// An empty file.
    #[error("the file is empty; download it again")]
    Empty,
    /// The numbers of images and labels differ.
    #[error("byte 4: it has {labels} labels, but {} has {images} images; use two files of the same set", images_path.display())]
    Counts {
        /// The number of labels in this file.
        labels: u64,
        /// The number of images in the other file.
        images: u64,
        /// The file of images.
        images_path: PathBuf,
    },
    /// Training and test images of different sizes.
    #[error("byte 8: its images are {found}, but those of {} are {expected}; use files of the same set", other.display())]
    Shapes {
        /// The size of the images in this file.
        found: Shape,
        /// The size of the images in the other file.
        expected: Shape,
        /// The other file.
        other: PathBuf,
    },
    /// A label out of range.
    #[error("byte {offset}: the label of image {image} is {label}, but there are {classes} classes, 0 to {}; download the file again", classes - 1)]
    Label {
        /// The offset of the label.
        offset: u64,
        /// The index of the image, from 0.
        image: usize,
        /// The label.
        label: u8,
        /// The number of classes.
        classes: usize,
    },
    /// A folder without class directories.
    #[error("it contains no directories; create one for each class, with the images of that class")]
    NoClasses,
    /// A class whose name is not text.
    #[error("the name of this class is not valid UTF-8; rename the directory")]
    ClassName,
    /// A class without images.
    #[error("this class has no images; add some or remove the directory")]
    EmptyClass,
    /// A file next to the class directories.
    #[error("this file is not in a class directory; move it into one or remove it")]
    StrayFile,
    /// A directory inside a class directory.
    #[error("this directory is inside a class directory; move its images up or remove it")]
    NestedDirectory,
    /// A test class without training images.
    #[error(
        "this class has no directory among the training images; use the same names in train and test"
    )]
    UnknownClass,
    /// Not an image, or an image in an unsupported format.
    #[error("this is not a JPEG, PNG or WebP image; convert or remove it")]
    NotImage,
    /// A corrupt image.
    #[error("the image cannot be decoded ({0}); replace or remove it")]
    Image(String),
    /// An image with too many pixels.
    #[error(
        "the image of {width} x {height} pixels is too large; at most 128 million pixels that take 512 MB are decoded, so scale it down"
    )]
    ImageSize {
        /// The number of columns.
        width: u32,
        /// The number of rows.
        height: u32,
    },
    /// Several files of many.
    #[error("{} files cannot be read, of {files} in all: {}", errors.len(), listed(errors))]
    Files {
        /// What is wrong with each.
        errors: Vec<DataError>,
        /// The number of all files.
        files: usize,
    },
    /// The reader was told to stop.
    #[error("the reading of the images was interrupted here")]
    Interrupted,
    /// Not enough memory.
    #[error("its {images} images of {shape} do not fit into memory; use fewer or smaller ones")]
    Memory {
        /// The number of images.
        images: usize,
        /// The size of each.
        shape: Shape,
    },
    /// An unsupported image size.
    #[error(
        "images cannot be read as {0}; use 1 or 3 channels and a height and width of 1 to 4096"
    )]
    Shape(Shape),
}

/// The most errors that a message lists.
const MOST_LISTED: usize = 20;

/// Errors as a list, the last of many only counted.
fn listed(errors: &[DataError]) -> String {
    let texts: Vec<String> = errors.iter().take(MOST_LISTED).map(ToString::to_string).collect();
    let rest = errors.len().saturating_sub(MOST_LISTED);
    let more = if rest > 0 { format!("; and {rest} more") } else { String::new() };
    format!("{}{more}", texts.join("; "))
}
