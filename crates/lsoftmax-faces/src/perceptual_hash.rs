//! Images that look the same.

use image::imageops::{FilterType, resize};
use image::{DynamicImage, GrayImage};

/// The sides of the grid of a hash.
const SIDE: u32 = 16;

/// 256 bits: whether each of 16 x 16 cells of an image is darker than its right neighbour. Resizing, recompression and
/// brightness change few of them.
///
/// ```
/// use image::{DynamicImage, GrayImage, Luma};
/// use lsoftmax_faces::PerceptualHash;
/// let stripes = |offset| GrayImage::from_fn(64, 64, |x, y| Luma([(x * 7 % 90 + y + offset) as u8]));
/// let hash = |image| PerceptualHash::of(&DynamicImage::ImageLuma8(image));
/// assert_eq!(hash(stripes(0)).distance(&hash(stripes(20))), 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerceptualHash([u64; 4]);

impl PerceptualHash {
    /// The number of bits.
    pub const BITS: u32 = SIDE * SIDE;

    /// The hash of an image.
    pub fn of(image: &DynamicImage) -> Self {
        let grid: GrayImage = resize(&image.to_luma8(), SIDE + 1, SIDE, FilterType::Triangle);
        let mut words = [0u64; 4];
        for row in 0..SIDE {
            for column in 0..SIDE {
                let darker = grid.get_pixel(column, row)[0] < grid.get_pixel(column + 1, row)[0];
                let bit = row * SIDE + column;
                words[(bit / 64) as usize] |= u64::from(darker) << (bit % 64);
            }
        }
        Self(words)
    }

    /// The number of bits that differ.
    pub fn distance(&self, other: &Self) -> u32 {
        self.0.iter().zip(other.0).map(|(a, b)| (a ^ b).count_ones()).sum()
    }

    /// The distance if it is at most `limit`.
    pub(crate) fn distance_within(&self, other: &Self, limit: u32) -> Option<u32> {
        // Most pairs differ by more in the first word alone.
        let first = (self.0[0] ^ other.0[0]).count_ones();
        if first > limit {
            return None;
        }
        Some(self.distance(other)).filter(|distance| *distance <= limit)
    }
}
