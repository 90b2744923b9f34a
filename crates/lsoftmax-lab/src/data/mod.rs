//! Labelled images: where they are found, how they are read, and how they become batches.
//!
//! ```text
//! file → Set → Dataset (u8 pixels, labels) → Loader (shuffle, crop, flip, subtract mean; ahead of need) → Batch
//! ```
//!
//! MNIST is built into the program; other sets are [fetched](fetch()), or [read from a folder](read_folder)
//! with one directory a class.

mod augment;
mod check;
mod cifar;
mod contents;
mod dataset;
mod error;
pub mod fetch;
mod folder;
mod idx;
mod loader;
mod place;
mod random;
mod sets;

pub use augment::{Augment, Mean, SCALE};
pub use check::{Checked, CheckedFile, Listed, State, check, list};
pub use dataset::{Dataset, Images, ImagesError, Shape};
pub use error::{DataError, Problem};
pub use fetch::fetch;
pub use folder::{files_in, read_folder, read_images};
pub use loader::{Ahead, Batch, Last, Loader, LoaderError, Sampling};
pub use place::{DataDir, Place, VARIABLE};
pub use sets::{Archive, CIFAR10, CIFAR100, FASHION_MNIST, Format, MNIST, Set, SetFile};
