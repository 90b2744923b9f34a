//! Activations in blocks: sixteen images by 32 channels at one pixel lie together.
//!
//! The batch is cut into blocks of [`IMAGES`] images. A block's activations are
//! `[channels / 32][height][width][16 images][32 channels]`, the last images and channels filled up
//! with zeros. Along a row of pixels this is one tall matrix, a row an (pixel, image) and 32 channels
//! wide: a convolution multiplies shifted views of it, and padding is a tap that is left out rather
//! than a border that is copied.

use std::ops::Range;

use super::words::Activations;

/// Images of a block.
pub(super) const IMAGES: usize = 16;
/// Channels that lie together.
pub(super) const CHANNELS: usize = 32;

/// The activations of one block of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Map {
    pub channels: usize,
    pub height: usize,
    pub width: usize,
}

impl Map {
    pub fn new([channels, height, width]: [usize; 3]) -> Self {
        Self { channels, height, width }
    }

    pub fn pixels(&self) -> usize {
        self.height * self.width
    }

    /// Groups of 32 channels.
    pub fn groups(&self) -> usize {
        self.channels.div_ceil(CHANNELS)
    }

    /// The channels of a group.
    pub fn group(&self, group: usize) -> Range<usize> {
        group * CHANNELS..self.channels.min((group + 1) * CHANNELS)
    }

    /// Words of a tile: one pixel of one group of channels.
    pub fn tile_words<K: Activations>() -> usize {
        IMAGES * K::WORDS
    }

    /// Words of one group of channels.
    pub fn group_words<K: Activations>(&self) -> usize {
        self.pixels() * Self::tile_words::<K>()
    }

    /// Words of a block of images.
    pub fn words<K: Activations>(&self) -> usize {
        self.groups() * self.group_words::<K>()
    }
}

/// The images of a block that are there, of `count` in all.
pub(super) fn live(block: usize, count: usize) -> usize {
    IMAGES.min(count - block * IMAGES)
}

/// Images as the first unit reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// Pixels and channels as they are.
    Plain,
    /// Every output pixel's patch as that pixel's channels, so that the convolution is one of 1x1:
    /// few channels would leave most of a group empty.
    Patches { kernel: [usize; 2], padding: usize, stride: usize },
}

/// Fills `out` with images of `shape` (as many as are live in the block), as `entry` says.
pub(super) fn fill<K: Activations>(
    kernel: K,
    images: &[f32],
    shape: [usize; 3],
    entry: Entry,
    map: Map,
    out: &mut [K::Word],
) {
    let size = shape.iter().product();
    out.fill(K::Word::default());
    kernel.vectorize(
        #[inline(always)]
        || {
            for (index, image) in images.chunks_exact(size).enumerate() {
                match entry {
                    Entry::Plain => fill_plain(kernel, image, map, index, out),
                    Entry::Patches { kernel: window, padding, stride } => {
                        let patches = Patches { shape, window, padding, stride };
                        patches.fill(kernel, image, map, index, out);
                    }
                }
            }
        },
    );
}

/// The words of one image at one pixel.
#[inline(always)]
fn place<K: Activations>(map: Map, group: usize, pixel: usize, image: usize) -> Range<usize> {
    let start = ((group * map.pixels() + pixel) * IMAGES + image) * K::WORDS;
    start..start + K::WORDS
}

#[inline(always)]
fn fill_plain<K: Activations>(
    kernel: K,
    image: &[f32],
    map: Map,
    index: usize,
    out: &mut [K::Word],
) {
    for group in 0..map.groups() {
        let channels = map.group(group);
        for pixel in 0..map.pixels() {
            let mut values = [0.0; CHANNELS];
            for (value, channel) in values.iter_mut().zip(channels.clone()) {
                *value = image[channel * map.pixels() + pixel];
            }
            kernel.encode(&values, &mut out[place::<K>(map, group, pixel, index)]);
        }
    }
}

/// Adds images in blocks, one row of 32 channels, to images of N x C x H x W.
pub(super) fn add_plain(
    row: &[f32],
    map: Map,
    group: usize,
    pixel: usize,
    image: usize,
    images: &mut [f32],
) {
    let size = map.channels * map.pixels();
    let image = &mut images[image * size..][..size];
    for (value, channel) in row.iter().zip(map.group(group)) {
        image[channel * map.pixels() + pixel] += value;
    }
}

/// How patches lie in an image.
#[derive(Clone, Copy)]
pub(super) struct Patches {
    /// Channels, height and width of an image.
    pub shape: [usize; 3],
    pub window: [usize; 2],
    pub padding: usize,
    pub stride: usize,
}

impl Patches {
    #[inline(always)]
    fn fill<K: Activations>(
        self,
        kernel: K,
        image: &[f32],
        map: Map,
        index: usize,
        out: &mut [K::Word],
    ) {
        let [channels, height, width] = self.shape;
        let [high, wide] = self.window;
        // The rows under a patch, with their padding, one after the other.
        let padded = width + 2 * self.padding;
        let mut rows = vec![0.0; channels * high * padded];
        let mut values = vec![0.0; map.groups() * CHANNELS];
        for y in 0..map.height {
            for (row, line) in rows.chunks_exact_mut(padded).enumerate() {
                let (channel, ky) = (row / high, row % high);
                let source = (y * self.stride + ky).checked_sub(self.padding);
                let line = &mut line[self.padding..][..width];
                match source.filter(|source| *source < height) {
                    Some(source) => {
                        line.copy_from_slice(&image[(channel * height + source) * width..][..width])
                    }
                    None => line.fill(0.0),
                }
            }
            for x in 0..map.width {
                for (row, line) in rows.chunks_exact(padded).enumerate() {
                    let patch = &line[x * self.stride..][..wide];
                    for (value, pixel) in values[row * wide..][..wide].iter_mut().zip(patch) {
                        *value = *pixel;
                    }
                }
                for (group, values) in values.as_chunks::<CHANNELS>().0.iter().enumerate() {
                    let words = place::<K>(map, group, y * map.width + x, index);
                    kernel.encode(values, &mut out[words]);
                }
            }
        }
    }

    /// Adds the gradient of a patch, one row of 32 of its numbers, to images of N x C x H x W.
    pub fn add(
        self,
        row: &[f32],
        map: Map,
        group: usize,
        pixel: usize,
        image: usize,
        images: &mut [f32],
    ) {
        let [channels, height, width] = self.shape;
        let size = channels * height * width;
        let image = &mut images[image * size..][..size];
        let [high, wide] = self.window;
        let (y, x) = (pixel / map.width, pixel % map.width);
        for (value, place) in row.iter().zip(map.group(group)) {
            let (channel, ky, kx) = (place / (high * wide), place / wide % high, place % wide);
            let source = |at: usize, tap: usize, side: usize| {
                (at * self.stride + tap).checked_sub(self.padding).filter(|at| *at < side)
            };
            if let (Some(y), Some(x)) = (source(y, ky, height), source(x, kx, width)) {
                image[(channel * height + y) * width + x] += value;
            }
        }
    }
}
