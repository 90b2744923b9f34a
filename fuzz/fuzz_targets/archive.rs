//! The archives of data sets: tar and gzip. No file may be written outside of the set's directory.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use lsoftmax_data::fetch::{Origin, Timeouts};
use lsoftmax_data::{CIFAR100, DataDir, FASHION_MNIST, fetch};
use lsoftmax_fuzz::Directory;

static DIRECTORY: LazyLock<Directory> = LazyLock::new(Directory::new);

fuzz_target!(|bytes: &[u8]| {
    for set in [&CIFAR100, &FASHION_MNIST] {
        for archive in set.archives {
            DIRECTORY.write(&format!("archives/{}", archive.name), bytes);
        }
        let inner = DIRECTORY.path().join("data");
        let data = DataDir::find(Some(inner)).expect("a directory");
        let origin = Origin::Directory(DIRECTORY.path().join("archives"));
        // No random bytes have the SHA-256 of the official files.
        assert!(fetch(set, &data, &origin, Timeouts::default(), &mut |_| {}).is_err());
    }
    for entry in std::fs::read_dir(DIRECTORY.path()).expect("a directory").flatten() {
        let name = entry.file_name();
        assert!(name == "archives" || name == "data", "{name:?} was written outside");
    }
});
