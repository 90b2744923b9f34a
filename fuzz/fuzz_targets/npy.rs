//! Numpy arrays, in every role.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use lsoftmax_data::arrays::{ArrayFile, Role};
use lsoftmax_fuzz::Directory;

static DIRECTORY: LazyLock<Directory> = LazyLock::new(Directory::new);

fuzz_target!(|bytes: &[u8]| {
    let path = DIRECTORY.write("array.npy", bytes);
    for role in [Role::Features, Role::Weights, Role::Bias, Role::Embeddings] {
        if let Ok(array) = ArrayFile::open(&path, role) {
            let _ = array.floats();
        }
    }
    if let Ok(array) = ArrayFile::open(&path, Role::Labels) {
        let _ = array.labels(10);
    }
});
