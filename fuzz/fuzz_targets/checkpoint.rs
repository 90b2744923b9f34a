//! Checkpoints. The checksum is made right, so that what it covers is read.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use lsoftmax_fuzz::Directory;
use lsoftmax_lab::run::{Checkpoint, RunDirectory};
use sha2::{Digest, Sha256};

static DIRECTORY: LazyLock<Directory> = LazyLock::new(Directory::new);

fuzz_target!(|bytes: &[u8]| {
    DIRECTORY.write("recipe.toml", b"");
    let run = RunDirectory::open(DIRECTORY.path()).expect("a run");
    let checksum = Sha256::digest(bytes);
    for contents in [bytes.to_vec(), [bytes, checksum.as_slice()].concat()] {
        DIRECTORY.write("checkpoints/000000001.checkpoint", &contents);
        let (found, complaints) = Checkpoint::<toml::Table>::newest(&run, None).expect("a list");
        assert_eq!(found.is_none(), complaints.len() == 1);
    }
});
