//! Which input pixels an output pixel is computed from.
//!
//! Along one axis of an image, each tap of the kernel lets an output position read one input position,
//! or none where the tap lies in the padding. Adjacent output positions with the same taps form a
//! [`TapRun`]: in the blocked layout their pixels are contiguous, so a run is one strip of a product.

use std::ops::Range;

use super::conv_kernel::ConvKernel;
use super::layout::{CHANNELS, FeatureMap};
use crate::kernel::{STRIP_COLS, Segment};

/// A convolution along one axis: sizes of input, output and kernel, padding and stride.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConvAxis {
    pub input: usize,
    pub output: usize,
    pub kernel: usize,
    pub padding: usize,
    pub stride: usize,
}

/// A tap of the kernel and the position that is read through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tap {
    pub tap: usize,
    pub from: usize,
}

impl ConvAxis {
    /// The input positions that an output position reads.
    fn forward(&self, output: usize) -> Vec<Tap> {
        (0..self.kernel)
            .flat_map(|tap| {
                let overlap = self.overlap(tap, output..output + 1);
                overlap.into_iter().map(move |(_, from)| Tap { tap, from })
            })
            .collect()
    }

    /// The output positions of a range for which a tap lies inside the input, each with the input
    /// position that it reads.
    fn overlap(&self, tap: usize, outputs: Range<usize>) -> Vec<(usize, usize)> {
        outputs
            .filter_map(|output| {
                let from = (output * self.stride + tap).checked_sub(self.padding)?;
                (from < self.input).then_some((output, from))
            })
            .collect()
    }

    /// The output positions that read an input position.
    fn backward(&self, input: usize) -> Vec<Tap> {
        (0..self.kernel)
            .filter_map(|tap| {
                let scaled = (input + self.padding).checked_sub(tap)?;
                let from = scaled / self.stride;
                let reads = scaled.is_multiple_of(self.stride) && from < self.output;
                reads.then_some(Tap { tap, from })
            })
            .collect()
    }
}

/// Adjacent positions with the same taps, where the positions read advance by one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TapRun {
    start: usize,
    len: usize,
    taps: Vec<Tap>,
}

impl TapRun {
    /// The run as runs of length 1.
    fn into_single(self) -> impl Iterator<Item = Self> {
        (0..self.len).map(move |i| Self {
            start: self.start + i,
            len: 1,
            taps: self.taps.iter().map(|tap| Tap { from: tap.from + i, ..*tap }).collect(),
        })
    }
}

/// Divides positions into the longest possible runs.
fn runs(positions: usize, taps: impl Fn(usize) -> Vec<Tap>) -> Vec<TapRun> {
    let mut runs: Vec<TapRun> = Vec::new();
    for position in 0..positions {
        let taps = taps(position);
        if let Some(run) = runs.last_mut() {
            let ahead = |tap: &Tap| Tap { from: tap.from + run.len, ..*tap };
            if run.taps.iter().map(ahead).eq(taps.iter().copied()) {
                run.len += 1;
                continue;
            }
        }
        runs.push(TapRun { start: position, len: 1, taps });
    }
    runs
}

/// Both axes of a convolution.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConvAxes {
    pub vertical: ConvAxis,
    pub horizontal: ConvAxis,
}

impl ConvAxes {
    pub fn taps(&self) -> usize {
        self.vertical.kernel * self.horizontal.kernel
    }
}

/// Adjacent pixels of a row, and the segments they read.
#[derive(Clone, Debug)]
pub(super) struct Strip {
    /// The first pixel.
    pub pixel: usize,
    pub pixels: usize,
    pub segments: Vec<Segment>,
}

/// All strips of a convolution, or of its gradient with respect to the input, on one block of images.
#[derive(Clone, Debug)]
pub(super) struct Strips {
    /// The feature map that is read.
    pub from: FeatureMap,
    /// The feature map that is written.
    pub to: FeatureMap,
    /// Words of depth per segment.
    pub depth: usize,
    pub strips: Vec<Strip>,
    pub taps: usize,
}

/// Whether to compute a convolution or its gradient with respect to the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

impl Strips {
    /// The strips that compute `to` from `from`: the output from the input, or, backward, the input's
    /// gradient from the output's. Without `merge`, each strip has one pixel.
    pub fn new<K: ConvKernel>(
        axes: &ConvAxes,
        direction: Direction,
        from: FeatureMap,
        to: FeatureMap,
        merge: bool,
    ) -> Self {
        let taps = |axis: &ConvAxis, position| match direction {
            Direction::Forward => axis.forward(position),
            Direction::Backward => axis.backward(position),
        };
        let depth = K::depth(from.channels);
        let (pixel_words, group_words) = (FeatureMap::pixel_words::<K>(), from.group_words::<K>());
        let mut horizontal = runs(to.width, |x| taps(&axes.horizontal, x));
        if !merge {
            horizontal = horizontal.into_iter().flat_map(TapRun::into_single).collect();
        }
        let mut strips = Vec::new();
        for y in 0..to.height {
            let vertical = taps(&axes.vertical, y);
            for run in &horizontal {
                let mut segments = Vec::new();
                for ky in &vertical {
                    for kx in &run.taps {
                        let tap = ky.tap * axes.horizontal.kernel + kx.tap;
                        let pixel = ky.from * from.width + kx.from;
                        segments.extend((0..from.groups()).map(|g| Segment {
                            left: g * group_words + pixel * pixel_words,
                            right: (tap * from.groups() + g) * depth * STRIP_COLS,
                        }));
                    }
                }
                strips.push(Strip { pixel: y * to.width + run.start, pixels: run.len, segments });
            }
        }
        Self { from, to, depth, strips, taps: axes.taps() }
    }

    /// Words of the right operand for one group of output channels.
    pub fn panel_words(&self) -> usize {
        self.taps * self.from.groups() * self.depth * STRIP_COLS
    }
}

/// The pixels of input and output that a tap pairs up, for some output pixels: its terms of the weight
/// gradient.
#[derive(Clone, Debug, Default)]
pub(super) struct TapOverlap {
    /// Words of depth per segment.
    pub depth: usize,
    /// Relative to the first word of a group of channels.
    pub segments: Vec<Segment>,
}

/// The overlaps of every tap, for each chunk of output pixels in turn.
pub(super) fn tap_overlaps<K: ConvKernel>(
    axes: &ConvAxes,
    input: FeatureMap,
    output: FeatureMap,
) -> Vec<Vec<TapOverlap>> {
    let chunk_pixels = (K::CHUNK_WORDS / (K::IMAGE_WORDS * CHANNELS)).max(1);
    // Rows and columns are distributed evenly over the chunks.
    let split = |len: usize, max: usize| {
        let parts = len.div_ceil(max);
        (0..parts).map(move |part| part * len / parts..(part + 1) * len / parts)
    };
    let mut chunks = Vec::new();
    for rows in split(output.height, (chunk_pixels / output.width).max(1)) {
        for columns in split(output.width, chunk_pixels) {
            let taps = (0..axes.taps()).map(|tap| {
                let [ky, kx] = [tap / axes.horizontal.kernel, tap % axes.horizontal.kernel];
                let rows = axes.vertical.overlap(ky, rows.clone());
                let columns = axes.horizontal.overlap(kx, columns.clone());
                tap_overlap::<K>(&rows, &columns, input, output, axes.horizontal.stride == 1)
            });
            chunks.push(taps.collect());
        }
    }
    chunks
}

/// Rows and columns are (output, input) positions. If `contiguous`, adjacent columns of the output read
/// adjacent columns of the input, and a row is one segment.
fn tap_overlap<K: ConvKernel>(
    rows: &[(usize, usize)],
    columns: &[(usize, usize)],
    input: FeatureMap,
    output: FeatureMap,
    contiguous: bool,
) -> TapOverlap {
    let left = K::left_strides(input.width);
    let right = K::IMAGE_WORDS * CHANNELS;
    let (pixels, starts) =
        if contiguous { (columns.len(), &columns[..columns.len().min(1)]) } else { (1, columns) };
    let segments = rows.iter().flat_map(|(y, from_y)| {
        starts.iter().map(move |(x, from_x)| Segment {
            left: from_y * left.line + from_x * left.pixel,
            right: (y * output.width + x) * right,
        })
    });
    TapOverlap { depth: pixels * K::IMAGE_WORDS, segments: segments.collect() }
}
