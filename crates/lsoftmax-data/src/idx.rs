//! The IDX files of MNIST and Fashion-MNIST, plain or gzipped.

use crate::contents::Contents;
use crate::dataset::{Images, Shape};
use crate::error::{DataError, DataProblem};
use crate::sets::{Format, Packing};

const IMAGES: u32 = 0x0803;
const LABELS: u32 = 0x0801;
const IMAGES_HEADER: u64 = 16;
const LABELS_HEADER: u64 = 8;

/// The largest plausible number of pixels in a file.
const PIXELS_LIMIT: u64 = 1 << 31;

impl Format {
    /// IDX: training images, training labels, test images and test labels, each file its own archive.
    pub const IDX: Self = Self { packing: Packing::File, read: read_set };
}

fn read_set(files: Vec<Contents>, classes: usize) -> Result<[Images; 2], DataError> {
    let [train_images, train_labels, test_images, test_labels] = <[Contents; 4]>::try_from(files)
        .unwrap_or_else(|_| panic!("a set in this format has four files"));
    let (train_path, test_path) = (train_images.path().to_owned(), test_images.path().to_owned());
    let train = read(train_images, train_labels, classes)?;
    let test = read(test_images, test_labels, classes)?;
    let (expected, found) = (train.shape(), test.shape());
    if found != expected {
        let problem = DataProblem::Shapes { found, expected, other: train_path };
        return Err(DataError::new(test_path, problem));
    }
    Ok([train, test])
}

/// Reads a file of images and the file of their labels.
fn read(mut images: Contents, mut labels: Contents, classes: usize) -> Result<Images, DataError> {
    let (shape, pixels) = read_images(&mut images)?;
    let count = (pixels.len() / shape.pixels()) as u64;
    magic(&mut labels, LABELS, "labels (IDX)", LABELS_HEADER)?;
    let found = number(&mut labels, LABELS_HEADER)?;
    if found != count {
        let images_path = images.path().to_owned();
        return Err(labels.error(DataProblem::Counts {
            labels: found,
            images: count,
            images_path,
        }));
    }
    let bytes = labels.take(count, LABELS_HEADER + count)?;
    labels.end()?;
    if let Some(image) = bytes.iter().position(|label| usize::from(*label) >= classes) {
        let (label, offset) = (bytes[image], LABELS_HEADER + image as u64);
        return Err(labels.error(DataProblem::Label { offset, image, label, classes }));
    }
    let bytes = bytes.into_iter().map(u32::from).collect();
    Ok(Images::new(shape, pixels, bytes).expect("one label per image was read"))
}

fn read_images(file: &mut Contents) -> Result<(Shape, Vec<u8>), DataError> {
    magic(file, IMAGES, "images (IDX)", IMAGES_HEADER)?;
    let mut sizes = [0; 3];
    for size in &mut sizes {
        *size = number(file, IMAGES_HEADER)?;
    }
    let [count, height, width] = sizes;
    let pixels = sizes.iter().try_fold(1u64, |pixels, size| pixels.checked_mul(*size));
    let pixels = match pixels {
        Some(pixels) if (1..=PIXELS_LIMIT).contains(&pixels) => pixels,
        _ => {
            let claim = format!("{count} images of {height} x {width}");
            return Err(file.error(DataProblem::Header { offset: 4, claim }));
        }
    };
    let bytes = file.take(pixels, IMAGES_HEADER + pixels)?;
    file.end()?;
    Ok((Shape { channels: 1, height: height as usize, width: width as usize }, bytes))
}

fn magic(
    file: &mut Contents,
    expected: u32,
    kind: &'static str,
    header: u64,
) -> Result<(), DataError> {
    match number(file, header)? as u32 {
        found if found == expected => Ok(()),
        found => Err(file.error(DataProblem::Magic { kind, expected, found })),
    }
}

/// The next big-endian 32-bit number of a header.
fn number(file: &mut Contents, header: u64) -> Result<u64, DataError> {
    let bytes = file.take(4, header)?;
    Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}
