//! What can be wrong with the files of a set, in sentences.

use std::path::{Path, PathBuf};

use crate::dataset::Shape;

/// Why a file or directory of a set was refused.
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
}

/// What is wrong with a file or directory of a set. Bytes are counted from 0; of a gzipped file, they
/// are those of its unpacked contents.
#[derive(Debug, thiserror::Error)]
pub enum DataProblem {
    /// The whole set is missing.
    #[error(
        "{0} is not there; get it with `lsoftmax data fetch {0}`, or say with --data-dir or LSOFTMAX_DATA where it is"
    )]
    NoSet(&'static str),
    /// There is nowhere to look.
    #[error(
        "this machine names no cache directory to look in; say with --data-dir or LSOFTMAX_DATA where the sets are"
    )]
    NoPlace,
    /// Nothing has that name.
    #[error("there is no such file; get the set with `lsoftmax data fetch`, or check the path")]
    Missing,
    /// Nothing has that name, and it is none of a set.
    #[error("there is no such file or directory; check the path")]
    NoFile,
    /// Something else than a file.
    #[error("this is not a regular file; put the file itself there")]
    NotRegular,
    /// Something else than a directory.
    #[error("this is not a directory; name one that holds a directory of images for each class")]
    NotDirectory,
    /// The system refused.
    #[error("cannot be read ({0}); check the file and its permissions")]
    Read(std::io::Error),
    /// A gzip stream that is not whole.
    #[error(
        "its gzip stream is damaged after {offset} unpacked bytes ({reason}); get the file again"
    )]
    Gzip {
        /// The unpacked bytes that could be read.
        offset: u64,
        /// What the decoder says.
        reason: String,
    },
    /// The bytes are not the official ones.
    #[error(
        "its contents have the SHA-256 {found}, but those of the set {expected}; get the file again"
    )]
    Sum {
        /// The checksum of what is there.
        found: String,
        /// The checksum of the set's file.
        expected: String,
    },
    /// Another kind of file.
    #[error(
        "byte 0: a file of {kind} begins with {expected:#010x}, but this one with {found:#010x}; is it another file, or not the original?"
    )]
    Magic {
        /// What the file should hold.
        kind: &'static str,
        /// The magic number of that kind.
        expected: u32,
        /// What is there.
        found: u32,
    },
    /// A size that no such file has.
    #[error("byte {offset}: its header claims {claim}; get the file again")]
    Claim {
        /// Where the claim stands.
        offset: u64,
        /// What it says.
        claim: String,
    },
    /// The file ends too early.
    #[error(
        "byte {offset}: the file ends there, but {expected} bytes belong to it; it was cut short, get it again"
    )]
    Cut {
        /// Where it ends.
        offset: u64,
        /// Where it should end.
        expected: u64,
    },
    /// The file goes on.
    #[error("byte {offset}: the file should end there but goes on; get it again")]
    Trailing {
        /// Where it should end.
        offset: u64,
    },
    /// Nothing is in it.
    #[error("the file is empty; get it again")]
    Empty,
    /// Images and labels are not of one set.
    #[error("byte 4: it holds {labels} labels, but {} holds {images} images; use the two files of one set", images_path.display())]
    Counts {
        /// The labels in this file.
        labels: u64,
        /// The images in the other.
        images: u64,
        /// The other file.
        images_path: PathBuf,
    },
    /// Images of different sizes in one set.
    #[error("byte 8: its images are {found}, but those of {} are {expected}; use the files of one set", other.display())]
    Shapes {
        /// The size of the images here.
        found: Shape,
        /// The size of those in the other file.
        expected: Shape,
        /// The other file.
        other: PathBuf,
    },
    /// A label that names no class.
    #[error("byte {offset}: the label of image {image} is {label}, but there are {classes} classes, 0 to {}; get the file again", classes - 1)]
    Label {
        /// Where the label stands.
        offset: u64,
        /// Which image it is, from 0.
        image: usize,
        /// The label.
        label: u8,
        /// The number of classes.
        classes: usize,
    },
    /// A folder without directories.
    #[error(
        "there are no directories in it; make one for each class, with the images of the class"
    )]
    NoClasses,
    /// A class without images.
    #[error("there are no images in this class; add some or remove the directory")]
    EmptyClass,
    /// A file beside the directories of the classes.
    #[error("a file stands among the directories of the classes; move it into its class, or away")]
    Loose,
    /// A directory in a class.
    #[error("a directory stands among the images of a class; move its images up, or it away")]
    Nested,
    /// A class in the test images that is not among the training images.
    #[error(
        "this class has no directory among the training images; names must be the same in both"
    )]
    UnknownClass,
    /// A file that is no image, or of a kind that is not read here.
    #[error("this is not a JPEG, PNG or WebP image; convert it, or move it away")]
    NotImage,
    /// A damaged image.
    #[error("the image cannot be read ({0}); replace it or move it away")]
    Image(String),
    /// More images than fit.
    #[error("its {images} images of {shape} do not fit into memory; use fewer or smaller ones")]
    Memory {
        /// The images found.
        images: usize,
        /// The size that each was to have.
        shape: Shape,
    },
    /// A size that images cannot have.
    #[error(
        "images cannot be read as {0}; say 1 or 3 channels and a height and width of 1 to 4096"
    )]
    Shape(Shape),
}
