//! Labelled images: where they are found, how they are read, and how they become batches; and numpy arrays.
//!
//! ```text
//! file → DataSource (a set or a folder) → Dataset (u8 pixels, labels) → Loader (shuffle, crop, flip, subtract mean) → Batch
//! ```
//!
//! | | |
//! |---|---|
//! | [`DataSource`] | a set by its name, or a folder of images |
//! | [`Set`], [`fetch()`], [`check`], [`list`] | the data sets known by name: downloaded, checked, listed |
//! | [`read_folder`], [`read_images`] | folders with one directory per class, and image files |
//! | [`Dataset`], [`Images`] | images and labels in memory, divided into training, validation and test images |
//! | [`Loader`], [`Augment`], [`Mean`] | batches, prefetched on threads |
//! | [`arrays`] | numpy's `.npy` files |
//! | [`files`] | files that are either complete or absent |
//!
//! MNIST is part of the crate; the other sets are downloaded. This crate is independent of networks and training.

pub mod arrays;
mod augment;
mod check;
mod cifar;
mod class_batches;
mod colour;
mod contents;
mod dataset;
mod directory;
mod error;
pub mod fetch;
pub mod files;
mod folder;
mod idx;
mod jpeg;
mod loader;
mod random;
mod region;
mod runs;
mod sets;
mod shell;
mod source;

pub use augment::{Augment, Mean, SCALE};
pub use check::{CheckReport, CheckedFile, SetListing, SetState, check, list};
pub use colour::Colour;
pub use dataset::{Dataset, HoldOut, Images, ImagesError, Shape, Split};
pub use directory::{DataDir, SetLocation, VARIABLE};
pub use error::{DataError, DataProblem};
pub use fetch::fetch;
pub use folder::{
    Reading, STANDARD_INPUT, WatchReading, count_folder, files_in, is_image_file, read_folder,
    read_folder_watched, read_images, read_photo, read_readable_images,
};
pub use loader::{Batch, LastBatch, Loader, LoaderError, Prefetch, Sampling};
pub use random::random_order;
pub use region::{Crop, Erase};
pub use runs::{RUN_FILE, is_among_images};
pub use sets::{Archive, CIFAR10, CIFAR100, FASHION_MNIST, Format, MNIST, Set, SetFile};
pub use shell::shell_word;
pub use source::DataSource;
