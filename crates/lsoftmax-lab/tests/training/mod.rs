//! Training inside a test.

use std::path::Path;

use lsoftmax_data::DataDir;
use lsoftmax_lab::train::Options;

/// With an empty directory of data sets: MNIST is built in.
pub fn options(directory: &Path) -> Options {
    Options::new(DataDir::find(Some(directory.join("data"))).unwrap())
}
