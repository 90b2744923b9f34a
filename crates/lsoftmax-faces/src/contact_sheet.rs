//! Pairs of faces as one picture.

use std::path::{Path, PathBuf};

use image::imageops::{FilterType, overlay, resize};
use image::{Rgb, RgbImage};
use lsoftmax_data::read_photo;

use crate::FacesError;

/// The height of a face, and the space between pairs.
const HEIGHT: u32 = 112;
const GAP: u32 = 12;
/// Pairs per row.
const ACROSS: u32 = 5;

/// Writes a PNG with pairs of images side by side: the first group above a line, the second below it, each in order.
///
/// # Errors
/// When an image cannot be read, or the picture cannot be written.
pub fn contact_sheet(path: &Path, groups: [&[(PathBuf, PathBuf)]; 2]) -> Result<(), FacesError> {
    let rows = groups.map(|pairs| (pairs.len() as u32).div_ceil(ACROSS));
    let (width, row) = (ACROSS * (2 * HEIGHT + GAP) + GAP, HEIGHT + GAP);
    let line = GAP + rows[0] * row;
    let mut sheet = RgbImage::from_pixel(width, line + rows[1] * row + 2 * GAP, Rgb([255; 3]));
    for column in 0..width {
        (0..2).for_each(|thick| sheet.put_pixel(column, line + thick, Rgb([90; 3])));
    }
    for (pairs, top) in groups.into_iter().zip([GAP, line + GAP]) {
        for (index, (left, right)) in (0u32..).zip(pairs) {
            let x = GAP + index % ACROSS * (2 * HEIGHT + GAP);
            let y = top + index / ACROSS * row;
            for (image, x) in [(left, x), (right, x + HEIGHT)] {
                let face = read_photo(image)?.into_rgb8();
                let (wide, high) = face.dimensions();
                let wide = (wide * HEIGHT / high.max(1)).clamp(1, HEIGHT);
                let face = resize(&face, wide, HEIGHT, FilterType::Triangle);
                overlay(&mut sheet, &face, i64::from(x), i64::from(y));
            }
        }
    }
    let problem = |error: image::ImageError| FacesError::write(path)(std::io::Error::other(error));
    sheet.save_with_format(path, image::ImageFormat::Png).map_err(problem)
}
