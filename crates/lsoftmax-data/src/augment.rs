//! Preprocessing: mean subtraction, scaling, random crops and flips.

use serde::{Deserialize, Serialize};

use crate::dataset::{Images, Shape};
use crate::random::{Purpose, Random};

/// The factor applied to pixels after the mean is subtracted, as in the authors' own recipes; the
/// results lie between −1 and 1.
pub const SCALE: f32 = 1.0 / 256.0;

/// The per-pixel mean image of a training set, as in Caffe. It is part of the model and is subtracted
/// from every input image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// The size of the image.
    pub shape: Shape,
    /// Its pixels, C x H x W, from 0 to 255.
    pub pixels: Vec<f32>,
}

impl Mean {
    /// The mean of `images`; 0 if there are none.
    pub fn of(images: &Images) -> Self {
        let mut sums = vec![0u64; images.shape().pixels()];
        for index in 0..images.len() {
            for (sum, pixel) in sums.iter_mut().zip(images.image(index)) {
                *sum += u64::from(*pixel);
            }
        }
        let count = images.len().max(1) as f64;
        let pixels = sums.iter().map(|sum| (*sum as f64 / count) as f32).collect();
        Self { shape: images.shape(), pixels }
    }
}

/// Random augmentation of training images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Augment {
    /// After mean subtraction, the image is padded with this many zeros on every side, and a random
    /// crop of the original size is taken.
    pub pad: usize,
    /// Each image is mirrored left to right with probability 1/2.
    pub flip: bool,
}

impl Augment {
    /// No augmentation: for evaluation, and for the paper's recipes without it.
    pub const NONE: Self = Self { pad: 0, flip: false };
    /// The paper's CIFAR10+.
    pub const CIFAR10_PLUS: Self = Self { pad: 4, flip: true };

    /// The crop and flip of a sample in an epoch; a pure function of its arguments.
    pub(crate) fn view(&self, seed: u64, epoch: u64, sample: u64) -> View {
        let mut random = Random::new(seed, Purpose::Augment, epoch, sample);
        let mut offset = || random.below(2 * self.pad as u64 + 1) as isize - self.pad as isize;
        let (top, left) = (offset(), offset());
        View { top, left, mirrored: self.flip && random.below(2) == 1 }
    }
}

/// A crop of an image, possibly mirrored.
pub(crate) struct View {
    /// The first row of the crop in the image; negative or too large in the padding.
    top: isize,
    /// The first column of the crop in the image; negative or too large in the padding.
    left: isize,
    mirrored: bool,
}

impl View {
    /// Writes the crop of `image` with the mean subtracted; 0 in the padding.
    pub fn write(&self, image: &[u8], mean: &Mean, out: &mut [f32]) {
        let Shape { height, width, .. } = mean.shape;
        // The columns of `out` that lie inside the image.
        let start = (-self.left).clamp(0, width as isize) as usize;
        let end = (width as isize - self.left).clamp(start as isize, width as isize) as usize;
        for (row, out) in out.chunks_exact_mut(width).enumerate() {
            let (channel, row) = (row / height, row % height);
            out.fill(0.0);
            let source = row as isize + self.top;
            if (0..height as isize).contains(&source) && start < end {
                let line = (channel * height + source as usize) * width;
                let from = line + (start as isize + self.left) as usize;
                let pixels = image[from..].iter().zip(&mean.pixels[from..]);
                for (out, (pixel, mean)) in out[start..end].iter_mut().zip(pixels) {
                    *out = (f32::from(*pixel) - mean) * SCALE;
                }
            }
            if self.mirrored {
                out.reverse();
            }
        }
    }
}
