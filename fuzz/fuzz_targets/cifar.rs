//! The binary files of CIFAR-10 and CIFAR-100, plain or gzipped.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use lsoftmax_data::{CIFAR10, CIFAR100, DataDir};
use lsoftmax_fuzz::{Directory, parts};

static DIRECTORY: LazyLock<Directory> = LazyLock::new(Directory::new);

fuzz_target!(|bytes: &[u8]| {
    let data = DataDir::find(Some(DIRECTORY.path().to_owned())).expect("a directory");
    let [train, test] = parts::<2>(bytes);
    for set in [&CIFAR10, &CIFAR100] {
        let last = set.files.len() - 1;
        for (index, file) in set.files.iter().enumerate() {
            let part = if index == last { test } else { train };
            DIRECTORY.write(&format!("{}/{}", set.name, file.path), part);
        }
        if let Ok(found) = set.read(&data) {
            assert!(found.train.labels().iter().all(|label| (*label as usize) < found.classes));
        }
    }
});
