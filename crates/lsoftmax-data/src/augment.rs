//! Preprocessing: mean subtraction, scaling and random augmentation.

use serde::{Deserialize, Serialize};

use crate::colour::Colour;
use crate::dataset::{Images, Shape};
use crate::random::{Purpose, Random};
use crate::region::{Crop, Erase};

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

/// Random augmentation of training images: resized crop, colours, mean subtraction, crop and flip, erasing,
/// in this order. Each has random numbers of its own, so that one does not change the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Augment {
    /// After mean subtraction, the image is padded with this many zeros on every side, and a random
    /// crop of the original size is taken.
    pub pad: usize,
    /// Each image is mirrored left to right with probability 1/2.
    pub flip: bool,
    /// A random part of the image is enlarged to its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crop: Option<Crop>,
    /// Brightness, contrast, saturation and hue are changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub colour: Option<Colour>,
    /// A random part of the image is replaced by zeros, after mean subtraction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erase: Option<Erase>,
}

impl Augment {
    /// No augmentation: for evaluation, and for the paper's recipes without it.
    pub const NONE: Self = Self { pad: 0, flip: false, crop: None, colour: None, erase: None };
    /// The paper's CIFAR10+.
    pub const CIFAR10_PLUS: Self = Self { pad: 4, flip: true, ..Self::NONE };

    /// What is wrong with it for images of a size: the setting, and a sentence about it.
    ///
    /// ```
    /// use lsoftmax_data::{Augment, Erase, Shape};
    /// let shape = Shape { channels: 3, height: 32, width: 32 };
    /// assert_eq!(Augment::CIFAR10_PLUS.problem(shape), None);
    /// let erase = Erase { probability: 2.0, ..Erase::default() };
    /// let (setting, problem) =
    ///     Augment { erase: Some(erase), ..Augment::NONE }.problem(shape).expect("more than 1");
    /// assert_eq!(setting, "erase.probability");
    /// assert_eq!(problem, "must be from 0 to 1, but is 2");
    /// ```
    pub fn problem(&self, shape: Shape) -> Option<(String, String)> {
        let Shape { height, width, .. } = shape;
        if self.pad >= height.min(width) {
            let problem = format!(
                "must be less than the sides of the images, {height} x {width}, but is {}",
                self.pad
            );
            return Some(("pad".into(), problem));
        }
        let crop = self.crop.and_then(|crop| crop.problem()).map(|found| ("crop", found));
        let colour = || self.colour.and_then(|colour| colour.problem(shape));
        let erase = || self.erase.and_then(|erase| erase.problem());
        let found = crop
            .or_else(|| colour().map(|found| ("colour", found)))
            .or_else(|| erase().map(|found| ("erase", found)));
        found.map(|(table, (setting, problem))| (format!("{table}.{setting}"), problem))
    }

    /// Writes an augmented image with the mean subtracted, scaled. The result is a pure function of the
    /// arguments.
    pub(crate) fn write(
        &self,
        image: &[u8],
        mean: &Mean,
        [seed, epoch, sample]: [u64; 3],
        out: &mut [f32],
    ) {
        let random = |purpose| Random::new(seed, purpose, epoch, sample);
        let view = self.view(random(Purpose::Augment));
        match self.changed(image, mean.shape, &random) {
            Some(pixels) => view.write(&pixels, mean, out),
            None => view.write(image, mean, out),
        }
        if let Some(region) =
            self.erase.and_then(|erase| erase.draw(mean.shape, &mut random(Purpose::Erase)))
        {
            region.fill(mean.shape, out);
        }
    }

    /// The image after crop and colours, unless it stays as it is.
    fn changed(
        &self,
        image: &[u8],
        shape: Shape,
        random: &impl Fn(Purpose) -> Random,
    ) -> Option<Vec<f32>> {
        let region = self.crop.and_then(|crop| crop.draw(shape, &mut random(Purpose::Crop)));
        let colours = self.colour.and_then(|colour| colour.draw(&mut random(Purpose::Colour)));
        let mut pixels = match region {
            Some(region) => region.enlarged(image, shape),
            None if colours.is_none() => return None,
            None => image.iter().map(|pixel| f32::from(*pixel)).collect(),
        };
        if let Some(colours) = colours {
            colours.apply(&mut pixels, shape);
        }
        Some(pixels)
    }

    /// The crop and flip of a sample in an epoch.
    fn view(&self, mut random: Random) -> View {
        let mut offset = || random.below(2 * self.pad as u64 + 1) as isize - self.pad as isize;
        let (top, left) = (offset(), offset());
        View { top, left, mirrored: self.flip && random.below(2) == 1 }
    }
}

/// A crop of an image, possibly mirrored.
struct View {
    /// The first row of the crop in the image; negative or too large in the padding.
    top: isize,
    /// The first column of the crop in the image; negative or too large in the padding.
    left: isize,
    mirrored: bool,
}

impl View {
    /// Writes the crop of `image` with the mean subtracted; 0 in the padding.
    fn write<P: Copy + Into<f32>>(&self, image: &[P], mean: &Mean, out: &mut [f32]) {
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
                    *out = ((*pixel).into() - mean) * SCALE;
                }
            }
            if self.mirrored {
                out.reverse();
            }
        }
    }
}

/// A range of numbers in a setting: the first problem with it.
pub(crate) fn range_problem(
    setting: &str,
    [low, high]: [f64; 2],
    (least, most): (f64, f64),
) -> Option<(String, String)> {
    let holds = low > least && low <= high && high <= most && high.is_finite();
    let most = if most.is_finite() { format!(" and at most {most}") } else { " and finite".into() };
    let problem = format!(
        "must be two numbers above {least}{most}, the second not less than the first, but is [{low}, {high}]"
    );
    (!holds).then(|| (setting.to_owned(), problem))
}

/// A number in a setting: the problem with it.
pub(crate) fn number_problem(
    setting: &str,
    value: f64,
    (least, most): (f64, f64),
) -> Option<(String, String)> {
    let holds = (least..=most).contains(&value);
    (!holds)
        .then(|| (setting.to_owned(), format!("must be from {least} to {most}, but is {value}")))
}
