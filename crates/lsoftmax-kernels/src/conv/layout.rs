//! The blocked layout of activations: sixteen images by 32 channels at one pixel are contiguous.
//!
//! The batch is divided into blocks of [`IMAGES`] images. The last block may have fewer *live* images.
//! A block's activations are `[channels / 32][height][width][16 images][32 channels]`, with zeros for
//! missing images and channels. A row of pixels is a tall matrix with one row per (pixel, image) and
//! one column per channel. A convolution multiplies shifted views of it: a tap that lies in the padding
//! is skipped, so no border is copied.
//!
//! A map of at most [`FOLDED`] channels would leave half of each row empty, so it is *folded*: a row has the channels
//! of one image and then those of the next, `[height][width][8 rows][2 images][16 channels]`. To the passes, which
//! are the same for every row, it is a map of half as many images; products read rows of half the length. If the
//! number of live images is odd, half of the last row is missing.

use std::ops::Range;

use super::conv_kernel::ConvKernel;

/// Images per block.
pub(super) const IMAGES: usize = 16;
/// Channels per group, which are contiguous.
pub(super) const CHANNELS: usize = 32;

/// The most channels of a folded map.
pub(super) const FOLDED: usize = CHANNELS / 2;

/// The shape of a feature map, and its layout for one block of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FeatureMap {
    pub channels: usize,
    pub height: usize,
    pub width: usize,
    /// Whether a row has two images.
    pub folded: bool,
}

impl FeatureMap {
    /// A map that is not folded.
    pub fn new([channels, height, width]: [usize; 3]) -> Self {
        Self { channels, height, width, folded: false }
    }

    /// A map that is folded if it has few channels and the path can multiply it.
    pub fn of<K: ConvKernel>(shape: [usize; 3]) -> Self {
        Self { folded: K::FOLDS && shape[0] <= FOLDED, ..Self::new(shape) }
    }

    /// Channels of an image in a row, with padding.
    pub fn row_channels(&self) -> usize {
        if self.folded { FOLDED } else { CHANNELS }
    }

    /// Rows of a pixel that contain live images.
    pub fn rows(&self, live: usize) -> usize {
        if self.folded { live.div_ceil(2) } else { live }
    }

    /// Images in the rows of a pixel that contain live images.
    pub fn row_images(&self, live: usize) -> usize {
        if self.folded { live.next_multiple_of(2) } else { live }
    }

    /// Words of one image at one pixel of one channel group.
    pub fn image_words<K: ConvKernel>(&self) -> usize {
        if self.folded { K::ROW_WORDS / 2 } else { K::ROW_WORDS }
    }

    /// The images and channels of a row's numbers, as far as they exist.
    pub fn places(
        &self,
        group: usize,
        row: usize,
        live: usize,
    ) -> impl Iterator<Item = (usize, usize, usize)> {
        let channels = self.group(group);
        let (images, width) = (self.row_images(1), self.row_channels());
        (0..images).filter(move |half| row * images + half < live).flat_map(move |half| {
            let lanes = half * width..;
            lanes.zip(channels.clone()).map(move |(lane, c)| (lane, row * images + half, c))
        })
    }

    pub fn pixels(&self) -> usize {
        self.height * self.width
    }

    /// The number of channel groups.
    pub fn groups(&self) -> usize {
        self.channels.div_ceil(CHANNELS)
    }

    /// The channels of a group.
    pub fn group(&self, group: usize) -> Range<usize> {
        group * CHANNELS..self.channels.min((group + 1) * CHANNELS)
    }

    /// Words of one pixel of one channel group, for all images of a block.
    #[inline(always)]
    pub fn pixel_words<K: ConvKernel>(&self) -> usize {
        IMAGES * self.image_words::<K>()
    }

    /// Words of one channel group.
    pub fn group_words<K: ConvKernel>(&self) -> usize {
        self.pixels() * self.pixel_words::<K>()
    }

    /// Words of a block of images.
    pub fn words<K: ConvKernel>(&self) -> usize {
        self.groups() * self.group_words::<K>()
    }

    /// The offset of one row's words at one pixel of one channel group.
    #[inline(always)]
    pub fn offset<K: ConvKernel>(&self, group: usize, pixel: usize, row: usize) -> usize {
        (group * self.pixels() + pixel) * self.pixel_words::<K>() + row * K::ROW_WORDS
    }
}

/// The number of live images in a block, of `count` images in total.
pub(super) fn live_images(block: usize, count: usize) -> usize {
    IMAGES.min(count - block * IMAGES)
}

/// Some rows of pixels of a block: contiguous pixels of every channel group.
pub(super) struct MapRows<'a, K: ConvKernel> {
    groups: Vec<&'a mut [K::Word]>,
    first_pixel: usize,
    /// Words of a pixel, and of an image at a pixel.
    pixel_words: usize,
    image_words: usize,
}

impl<'a, K: ConvKernel> MapRows<'a, K> {
    fn new(map: FeatureMap, groups: Vec<&'a mut [K::Word]>, first_pixel: usize) -> Self {
        let (pixel_words, image_words) = (map.pixel_words::<K>(), map.image_words::<K>());
        Self { groups, first_pixel, pixel_words, image_words }
    }

    /// All rows of a block.
    pub fn whole(map: FeatureMap, words: &'a mut [K::Word]) -> Self {
        let groups = words.chunks_exact_mut(map.group_words::<K>());
        Self::new(map, groups.collect(), 0)
    }

    /// Row `y` in a ring of `slots` rows.
    pub fn in_ring(map: FeatureMap, words: &'a mut [K::Word], slots: usize, y: usize) -> Self {
        let line = map.width * map.pixel_words::<K>();
        let rings = words.chunks_exact_mut(slots * line);
        let groups = rings.map(|ring| &mut ring[y % slots * line..][..line]);
        Self::new(map, groups.collect(), y * map.width)
    }

    /// The rows of every block, divided in the same way.
    pub fn divided(map: FeatureMap, words: &'a mut [K::Word], rows: &[Range<usize>]) -> Vec<Self> {
        let line = map.width * map.pixel_words::<K>();
        let mut all = Vec::new();
        for block in words.chunks_exact_mut(map.words::<K>()) {
            let mut groups: Vec<&mut [K::Word]> =
                block.chunks_exact_mut(map.group_words::<K>()).collect();
            all.extend(rows.iter().map(|rows| {
                let part = |group: &mut &'a mut [K::Word]| {
                    group.split_off_mut(..rows.len() * line).unwrap_or_default()
                };
                let groups = groups.iter_mut().map(part).collect();
                Self::new(map, groups, rows.start * map.width)
            }));
        }
        all
    }

    /// Words of a pixel of one channel group.
    pub fn pixel_words(&self) -> usize {
        self.pixel_words
    }

    /// The words of a pixel of one channel group, for all images.
    #[inline(always)]
    pub fn pixel(&self, group: usize, pixel: usize) -> &[K::Word] {
        let words = self.pixel_words;
        &self.groups[group][(pixel - self.first_pixel) * words..][..words]
    }

    /// The words of pixels of one channel group, from `pixel` on.
    #[inline(always)]
    pub fn pixels_mut(&mut self, group: usize, pixel: usize) -> &mut [K::Word] {
        &mut self.groups[group][(pixel - self.first_pixel) * self.pixel_words..]
    }

    /// Writes zeros for the missing images of the block at some pixels.
    #[inline(always)]
    pub fn zero_padding_images(&mut self, pixels: Range<usize>, live: usize) {
        if live < IMAGES {
            let (pixel_words, live_words) = (self.pixel_words, live * self.image_words);
            for group in 0..self.groups.len() {
                let words = self.pixels_mut(group, pixels.start).chunks_exact_mut(pixel_words);
                for pixel in words.take(pixels.len()) {
                    pixel[live_words..].fill(K::Word::default());
                }
            }
        }
    }
}

/// How the first unit reads images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputTransform {
    /// Unchanged.
    Identity,
    /// The patch of every output pixel becomes that pixel's channels, which makes the convolution 1x1.
    /// For few channels: they would leave most of a channel group empty.
    Im2col { kernel: [usize; 2], padding: usize, stride: usize },
}

/// Writes some rows of the live images of a block, each of `shape`, in the blocked layout.
pub(super) fn pack_images<K: ConvKernel>(
    kernel: K,
    images: &[f32],
    shape: [usize; 3],
    transform: InputTransform,
    map: FeatureMap,
    rows: Range<usize>,
    out: &mut MapRows<'_, K>,
) {
    let size = shape.iter().product();
    let live = images.len() / size;
    kernel.vectorize(
        #[inline(always)]
        || {
            match transform {
                InputTransform::Identity => {
                    for row in 0..map.rows(live) {
                        pack_row(kernel, images, map, (row, live), rows.clone(), out);
                    }
                }
                InputTransform::Im2col { kernel: window, padding, stride } => {
                    let im2col = Im2col { shape, window, padding, stride };
                    for (index, image) in images.chunks_exact(size).enumerate() {
                        im2col.pack_image(kernel, image, map, index, rows.clone(), out);
                    }
                }
            }
            out.zero_padding_images(rows.start * map.width..rows.end * map.width, live);
        },
    );
}

/// Writes one row of every pixel: an image, or two.
#[inline(always)]
fn pack_row<K: ConvKernel>(
    kernel: K,
    images: &[f32],
    map: FeatureMap,
    (row, live): (usize, usize),
    rows: Range<usize>,
    out: &mut MapRows<'_, K>,
) {
    let size = map.channels * map.pixels();
    for group in 0..map.groups() {
        for pixel in rows.start * map.width..rows.end * map.width {
            let mut values = [0.0; CHANNELS];
            for (lane, image, channel) in map.places(group, row, live) {
                values[lane] = images[image * size + channel * map.pixels() + pixel];
            }
            kernel.encode(&values, &mut out.pixels_mut(group, pixel)[row * K::ROW_WORDS..]);
        }
    }
}

/// Adds one pixel's row of 32 channels to an image of N x C x H x W.
pub(super) fn add_to_image(
    row: &[f32],
    map: FeatureMap,
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

/// The patches of a convolution (im2col), and the sum of their gradients (col2im).
#[derive(Clone, Copy)]
pub(super) struct Im2col {
    /// Channels, height and width of an image.
    pub shape: [usize; 3],
    pub window: [usize; 2],
    pub padding: usize,
    pub stride: usize,
}

impl Im2col {
    #[inline(always)]
    fn pack_image<K: ConvKernel>(
        self,
        kernel: K,
        image: &[f32],
        map: FeatureMap,
        index: usize,
        rows: Range<usize>,
        out: &mut MapRows<'_, K>,
    ) {
        let [channels, height, width] = self.shape;
        let [high, wide] = self.window;
        // The rows that a row of patches reads, with their padding.
        let padded = width + 2 * self.padding;
        let mut lines = vec![0.0; channels * high * padded];
        let mut values = vec![0.0; map.groups() * CHANNELS];
        for y in rows {
            for (row, line) in lines.chunks_exact_mut(padded).enumerate() {
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
                for (row, line) in lines.chunks_exact(padded).enumerate() {
                    let patch = &line[x * self.stride..][..wide];
                    for (value, pixel) in values[row * wide..][..wide].iter_mut().zip(patch) {
                        *value = *pixel;
                    }
                }
                for (group, values) in values.as_chunks::<CHANNELS>().0.iter().enumerate() {
                    let out = out.pixels_mut(group, y * map.width + x);
                    kernel.encode(values, &mut out[index * K::ROW_WORDS..]);
                }
            }
        }
    }

    /// Adds 32 elements of a patch's gradient to an image of N x C x H x W.
    pub fn add_to_image(
        self,
        row: &[f32],
        map: FeatureMap,
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
        for (value, index) in row.iter().zip(map.group(group)) {
            let (channel, ky, kx) = (index / (high * wide), index / wide % high, index % wide);
            let source = |output: usize, tap: usize, size: usize| {
                (output * self.stride + tap).checked_sub(self.padding).filter(|input| *input < size)
            };
            if let (Some(y), Some(x)) = (source(y, ky, height), source(x, kx, width)) {
                image[(channel * height + y) * width + x] += value;
            }
        }
    }
}
