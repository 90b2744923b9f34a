//! Image files: the part that is ours, limits, orientation, cropping and resizing.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use lsoftmax_data::{Shape, read_images};
use lsoftmax_fuzz::Directory;

static DIRECTORY: LazyLock<Directory> = LazyLock::new(Directory::new);

fuzz_target!(|bytes: &[u8]| {
    let path = DIRECTORY.write("image", bytes);
    for shape in
        [Shape { channels: 1, height: 7, width: 5 }, Shape { channels: 3, height: 4, width: 9 }]
    {
        if let Ok(images) = read_images(std::slice::from_ref(&path), shape) {
            assert_eq!((images.len(), images.shape()), (1, shape));
        }
    }
});
