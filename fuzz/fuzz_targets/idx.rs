//! The IDX files of Fashion-MNIST, plain or gzipped.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use lsoftmax_data::{DataDir, FASHION_MNIST};
use lsoftmax_fuzz::{Directory, parts};

static DIRECTORY: LazyLock<Directory> = LazyLock::new(Directory::new);

fuzz_target!(|bytes: &[u8]| {
    for (file, part) in FASHION_MNIST.files.iter().zip(parts::<4>(bytes)) {
        DIRECTORY.write(&format!("fashion-mnist/{}", file.path), part);
    }
    let data = DataDir::find(Some(DIRECTORY.path().to_owned())).expect("a directory");
    if let Ok(set) = FASHION_MNIST.read(&data) {
        let labels = set.train.labels().iter();
        assert!(labels.chain(set.test.expect("it has test images").labels()).all(|it| *it < 10));
    }
});
