//! An image under a similarity transform.

use image::RgbImage;

use crate::similarity::Similarity;

/// The largest number of samples per pixel and direction.
const MOST_SAMPLES: u32 = 16;

/// The image under `transform`, from its pixels to those of the result, of the given size.
///
/// Bilinear; outside of the image is black, also between its outermost pixels and their neighbours. Where the transform
/// shrinks the image, every pixel of the result is the mean of as many samples in each direction as it covers pixels,
/// so that fine detail does not alias.
pub fn warp(image: &RgbImage, transform: &Similarity, width: u32, height: u32) -> RgbImage {
    let back = transform.inverse();
    let samples = ((back.scale() - 1e-9).ceil() as u32).clamp(1, MOST_SAMPLES);
    let [[a, minus_b, _], [b, _, _]] = back.matrix();
    let source = Source::new(image);
    let share = 1.0 / (samples * samples) as f32;
    // The centres of the samples of a pixel, relative to its centre.
    let offsets: Vec<f64> =
        (0..samples).map(|sample| (f64::from(sample) + 0.5) / f64::from(samples) - 0.5).collect();
    let mut pixels = Vec::with_capacity(3 * (width * height) as usize);
    for row in 0..height {
        for column in 0..width {
            let [x, y] = back.apply([f64::from(column), f64::from(row)]);
            let mut sums = [0.0f32; 3];
            for down in &offsets {
                for right in &offsets {
                    let at = (x + a * right + minus_b * down, y + b * right + a * down);
                    source.add(at, &mut sums);
                }
            }
            pixels.extend(sums.map(|sum| (sum * share + 0.5) as u8));
        }
    }
    RgbImage::from_raw(width, height, pixels).expect("three bytes per pixel")
}

/// An image to sample from.
struct Source<'a> {
    pixels: &'a [u8],
    width: i64,
    height: i64,
}

impl<'a> Source<'a> {
    fn new(image: &'a RgbImage) -> Self {
        let (width, height) = image.dimensions();
        Self { pixels: image.as_raw(), width: i64::from(width), height: i64::from(height) }
    }

    /// Adds the bilinear value at a point.
    #[inline]
    fn add(&self, (x, y): (f64, f64), sums: &mut [f32; 3]) {
        let (left, top) = (x.floor(), y.floor());
        let (right_share, lower_share) = ((x - left) as f32, (y - top) as f32);
        // Far outside, the conversion saturates.
        let (left, top) = (left as i64, top as i64);
        let inside = left >= 0 && top >= 0 && left + 1 < self.width && top + 1 < self.height;
        let shares = [
            (1.0 - right_share) * (1.0 - lower_share),
            right_share * (1.0 - lower_share),
            (1.0 - right_share) * lower_share,
            right_share * lower_share,
        ];
        if inside {
            let upper = 3 * (top * self.width + left) as usize;
            let lower = upper + 3 * self.width as usize;
            let (upper, lower) = (&self.pixels[upper..upper + 6], &self.pixels[lower..lower + 6]);
            for (channel, sum) in sums.iter_mut().enumerate() {
                *sum += shares[0] * f32::from(upper[channel])
                    + shares[1] * f32::from(upper[channel + 3])
                    + shares[2] * f32::from(lower[channel])
                    + shares[3] * f32::from(lower[channel + 3]);
            }
            return;
        }
        for (corner, share) in shares.into_iter().enumerate() {
            let (column, row) =
                (left.saturating_add(corner as i64 % 2), top.saturating_add(corner as i64 / 2));
            if (0..self.width).contains(&column) && (0..self.height).contains(&row) {
                let at = 3 * (row * self.width + column) as usize;
                let pixel = &self.pixels[at..at + 3];
                sums.iter_mut()
                    .zip(pixel)
                    .for_each(|(sum, value)| *sum += share * f32::from(*value));
            }
        }
    }
}
