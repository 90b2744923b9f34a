//! The binary versions of CIFAR-10 and CIFAR-100.
//!
//! A file is a row of records: the label (CIFAR-100: the coarse label, then the fine one, which is the
//! one used), then 32 x 32 pixels of red, of green and of blue.

use super::contents::Contents;
use super::dataset::{Images, Shape};
use super::error::{DataError, Problem};

const SHAPE: Shape = Shape { channels: 3, height: 32, width: 32 };
const PIXELS: usize = 3072;

/// How many classes each byte in front of the pixels tells apart; the last byte is the label.
pub(super) type LabelBytes = &'static [usize];

/// CIFAR-10: the label.
pub(super) const CIFAR10: LabelBytes = &[10];
/// CIFAR-100: one of 20 coarse labels, and one of 100 fine ones.
pub(super) const CIFAR100: LabelBytes = &[20, 100];

/// Reads the files as one, in the order given.
pub(super) fn read(files: Vec<Contents>, labels: LabelBytes) -> Result<Images, DataError> {
    let (mut pixels, mut last) = (Vec::new(), Vec::new());
    for mut file in files {
        let bytes = file.rest()?;
        let record = labels.len() + PIXELS;
        pixels.reserve(bytes.len());
        if bytes.is_empty() {
            return Err(file.error(Problem::Empty));
        }
        if !bytes.len().is_multiple_of(record) {
            let expected = bytes.len().next_multiple_of(record) as u64;
            return Err(file.error(Problem::Cut { offset: bytes.len() as u64, expected }));
        }
        for (image, bytes) in bytes.chunks_exact(record).enumerate() {
            let (front, image_pixels) = bytes.split_at(labels.len());
            for (byte, (&label, &classes)) in front.iter().zip(labels).enumerate() {
                if usize::from(label) >= classes {
                    let offset = (image * record + byte) as u64;
                    return Err(file.error(Problem::Label { offset, image, label, classes }));
                }
            }
            last.push(u32::from(front[front.len() - 1]));
            pixels.extend_from_slice(image_pixels);
        }
    }
    Ok(Images::new(SHAPE, pixels, last).expect("every record has all pixels"))
}
