//! Lists of faces: landmarks, pairs of LFW, and tables of pairs.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use lsoftmax_faces::{Gallery, Landmarks, Pairs};
use lsoftmax_fuzz::Directory;

static DIRECTORY: LazyLock<Directory> = LazyLock::new(Directory::new);

fuzz_target!(|bytes: &[u8]| {
    let path = DIRECTORY.write("list.txt", bytes);
    let _ = Landmarks::read(&path);
    let _ = Pairs::read_lfw(&path);
    let _ = Pairs::read_table(&path, 100);
    let _ = Gallery::read(&path);
});
