//! The binary versions of CIFAR-10 and CIFAR-100.
//!
//! A file is a sequence of records: one label byte (CIFAR-100: a coarse label, then the fine label,
//! which is the one used), then 32 x 32 pixels each of red, green and blue.

use crate::contents::Contents;
use crate::dataset::{Images, Shape};
use crate::error::{DataError, DataProblem};
use crate::sets::{Format, Packing};

const SHAPE: Shape = Shape { channels: 3, height: 32, width: 32 };
const PIXELS: usize = 3072;

impl Format {
    /// CIFAR-10's binary files, in one archive; the last file is the test set.
    pub const CIFAR10: Self =
        Self { packing: Packing::Tar, read: |files, classes| read_set(files, &[classes]) };
    /// CIFAR-100's binary files, in one archive; the last file is the test set.
    pub const CIFAR100: Self =
        Self { packing: Packing::Tar, read: |files, classes| read_set(files, &[COARSE, classes]) };
}

/// The number of coarse labels of CIFAR-100.
const COARSE: usize = 20;

fn read_set(mut files: Vec<Contents>, labels: LabelBytes<'_>) -> Result<[Images; 2], DataError> {
    let test = files.split_off(files.len().saturating_sub(1));
    Ok([read(files, labels)?, read(test, labels)?])
}

/// The number of valid values of each label byte of a record; the last byte is the label used.
type LabelBytes<'a> = &'a [usize];

/// Reads the files and concatenates their images, in the order given.
fn read(files: Vec<Contents>, labels: LabelBytes<'_>) -> Result<Images, DataError> {
    let (mut pixels, mut last) = (Vec::new(), Vec::new());
    for mut file in files {
        let bytes = file.rest()?;
        let record = labels.len() + PIXELS;
        pixels.reserve(bytes.len());
        if bytes.is_empty() {
            return Err(file.error(DataProblem::Empty));
        }
        if !bytes.len().is_multiple_of(record) {
            let expected = bytes.len().next_multiple_of(record) as u64;
            return Err(file.error(DataProblem::Truncated { offset: bytes.len() as u64, expected }));
        }
        for (image, bytes) in bytes.chunks_exact(record).enumerate() {
            let (front, image_pixels) = bytes.split_at(labels.len());
            for (byte, (&label, &classes)) in front.iter().zip(labels).enumerate() {
                if usize::from(label) >= classes {
                    let offset = (image * record + byte) as u64;
                    return Err(file.error(DataProblem::Label { offset, image, label, classes }));
                }
            }
            last.push(u32::from(front[front.len() - 1]));
            pixels.extend_from_slice(image_pixels);
        }
    }
    Ok(Images::new(SHAPE, pixels, last).expect("every record has all pixels"))
}
