//! Which input pixels an output pixel is computed from.
//!
//! Along one axis of an image, each tap of the kernel lets an output position read one input position,
//! or none where the tap lies in the padding. Adjacent output positions with the same taps form a
//! [`TapRun`]: in the blocked layout their pixels are contiguous, so a run is one strip of a product.
//!
//! Rows are processed in order, in [`bands`] of the forward and [`Waves`] of the backward pass, so that
//! what a row reads was written shortly before.

use std::ops::Range;

use super::conv_kernel::ConvKernel;
use super::layout::FeatureMap;
use super::pixel_pairs::{PAIR_WORDS, PixelPairs};
use super::winograd::SIDE;
use crate::kernel::{OperandWord, STRIP_COLS, Segment};

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

    /// The input positions that some outputs read.
    pub fn inputs(&self, outputs: &Range<usize>) -> Range<usize> {
        let position = |scaled: usize| scaled.saturating_sub(self.padding).min(self.input);
        let end = (outputs.end * self.stride + self.kernel).saturating_sub(self.stride);
        position(outputs.start * self.stride)..position(end)
    }

    /// The outputs that read some input positions.
    pub fn outputs(&self, inputs: &Range<usize>) -> Range<usize> {
        let first = (inputs.start + self.padding + 1).saturating_sub(self.kernel);
        let end = (inputs.end + self.padding).div_ceil(self.stride);
        first.div_ceil(self.stride).min(self.output)..end.min(self.output)
    }

    /// The number of first input positions that are read only by outputs before `end`.
    pub fn complete(&self, end: usize) -> usize {
        match end < self.output {
            true => (end * self.stride).saturating_sub(self.padding).min(self.input),
            false => self.input,
        }
    }
}

/// Adjacent positions with the same taps, where the positions read advance by one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TapRun {
    start: usize,
    len: usize,
    taps: Vec<Tap>,
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
    strips: Vec<Strip>,
    /// Strips per row of pixels.
    row_strips: usize,
    taps: usize,
}

/// Whether to compute a convolution or its gradient with respect to the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

impl Strips {
    /// The strips that compute `to` from `from`: the output from the input, or, backward, the input's
    /// gradient from the output's.
    pub fn new<K: ConvKernel>(
        axes: &ConvAxes,
        direction: Direction,
        from: FeatureMap,
        to: FeatureMap,
    ) -> Self {
        let taps = |axis: &ConvAxis, position| match direction {
            Direction::Forward => axis.forward(position),
            Direction::Backward => axis.backward(position),
        };
        let depth = K::depth(from.channels);
        let (pixel_words, group_words) = (from.pixel_words::<K>(), from.group_words::<K>());
        let horizontal = runs(to.width, |x| taps(&axes.horizontal, x));
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
        Self { from, to, depth, strips, row_strips: horizontal.len(), taps: axes.taps() }
    }

    /// The strips of some rows of pixels.
    pub fn of_rows(&self, rows: &Range<usize>) -> &[Strip] {
        &self.strips[rows.start * self.row_strips..rows.end * self.row_strips]
    }

    /// Words of the right operand for one group of output channels.
    pub fn panel_words(&self) -> usize {
        self.taps * self.from.groups() * self.depth * STRIP_COLS
    }
}

/// Divides positions evenly into as few ranges of at most `most` positions as possible, which start at
/// multiples of `granularity`.
pub(super) fn divide(
    positions: usize,
    most: usize,
    granularity: usize,
) -> impl Iterator<Item = Range<usize>> {
    let granules = positions.div_ceil(granularity);
    let parts = granules.div_ceil((most / granularity).max(1));
    let start = move |part: usize| (part * granules / parts * granularity).min(positions);
    (0..parts).map(move |part| start(part)..start(part + 1))
}

/// Output rows that are computed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Band {
    pub outputs: Range<usize>,
    /// The input rows that no band before it has read.
    pub inputs: Range<usize>,
}

/// Divides output rows into bands that read at most `most_inputs` input rows, if possible. All but the last have a multiple
/// of `granularity` rows.
pub(super) fn bands(
    axis: &ConvAxis,
    outputs: Range<usize>,
    most_inputs: usize,
    granularity: usize,
) -> Vec<Band> {
    let most = most_inputs.saturating_sub(axis.kernel) / axis.stride + 1;
    let mut read = axis.inputs(&outputs).start;
    let bands = divide(outputs.len(), most, granularity).map(|rows| {
        let outputs = outputs.start + rows.start..outputs.start + rows.end;
        let end = axis.inputs(&outputs).end.max(read);
        let inputs = read..end;
        read = end;
        Band { outputs, inputs }
    });
    bands.collect()
}

/// The pixels of input and output that a tap pairs up, for some output pixels: its terms of the weight
/// gradient.
#[derive(Clone, Debug, Default)]
pub(super) struct TapOverlap {
    /// Words of depth per segment.
    pub depth: usize,
    /// Relative to the first line of a group of channels.
    pub segments: Vec<Segment>,
}

/// Output rows whose terms of the weight gradient are computed together.
#[derive(Clone, Debug)]
pub(super) struct Wave {
    pub outputs: Range<usize>,
    /// The overlaps of every tap, for some columns in turn.
    pub columns: Vec<Vec<TapOverlap>>,
}

/// The waves of a convolution's weight gradient, and where its operands are: lines of the input are in a
/// ring of `slots` lines per channel group, each at its row modulo `slots`; lines of the output's gradient
/// are those of one wave, or all of them if they are not packed.
#[derive(Clone, Debug)]
pub(super) struct Waves {
    pub waves: Vec<Wave>,
    pub slots: usize,
    /// The most rows of a wave.
    pub rows: usize,
}

/// Output pixels of a wave of tiles.
const TILE_WAVE_PIXELS: usize = 64;

/// Output pixels of a wave: their packed gradients, the right operand, are 32 KB in bf16 and stay in the
/// L1 cache.
const WAVE_PIXELS: usize = 32;

impl Waves {
    /// The waves of a convolution by Winograd's algorithm, which start at even rows.
    pub fn of_tiles(axes: &ConvAxes) -> Self {
        let ConvAxes { vertical, horizontal } = axes;
        let most = TILE_WAVE_PIXELS / horizontal.output;
        let outputs: Vec<_> = divide(vertical.output, most, SIDE).collect();
        let [slots, rows] = Self::sizes(vertical, &outputs);
        let waves = outputs.into_iter().map(|outputs| Wave { outputs, columns: Vec::new() });
        Self { waves: waves.collect(), slots, rows }
    }

    /// The most rows of input and of output of a wave.
    fn sizes(vertical: &ConvAxis, outputs: &[Range<usize>]) -> [usize; 2] {
        let slots = outputs.iter().map(|rows| vertical.inputs(rows).len()).max();
        let rows = outputs.iter().map(|rows| rows.len()).max();
        [slots.unwrap_or(0).max(1), rows.unwrap_or(0)]
    }

    /// The waves of a convolution of a map to another, in blocks with at most `live` images. With pooling, waves
    /// start at even rows.
    pub fn new<K: ConvKernel>(
        axes: &ConvAxes,
        maps: [FeatureMap; 2],
        pool: bool,
        live: usize,
    ) -> Self {
        let ConvAxes { vertical, horizontal } = axes;
        let channels = maps.map(|map| map.row_channels());
        let most = (WAVE_PIXELS / horizontal.output).max(1);
        let outputs: Vec<_> = divide(vertical.output, most, if pool { 2 } else { 1 }).collect();
        let [slots, rows] = Self::sizes(vertical, &outputs);
        let waves = outputs.into_iter().map(|outputs| {
            let parts = divide(horizontal.output, K::SEGMENT_PIXELS, 1);
            let columns = parts.map(|columns| {
                let taps = (0..axes.taps()).map(|tap| {
                    let [ky, kx] = [tap / horizontal.kernel, tap % horizontal.kernel];
                    let rows = vertical.overlap(ky, outputs.clone());
                    let line = line_overlap::<K>(horizontal, channels, kx, columns.clone(), live);
                    let first = if K::LINES_IN_PLACE { 0 } else { outputs.start };
                    lines_overlap::<K>(horizontal, channels, &rows, &line, slots, first)
                });
                taps.collect()
            });
            let columns = columns.collect();
            Wave { outputs, columns }
        });
        Self { waves: waves.collect(), slots, rows }
    }
}

/// The overlap of a line of the output with a line of the input, for some columns of the output. `channels` are those
/// of a row of the input and of the output. Images beyond `live` are zero, and are skipped where that is possible.
fn line_overlap<K: ConvKernel>(
    axis: &ConvAxis,
    channels: [usize; 2],
    tap: usize,
    columns: Range<usize>,
    live: usize,
) -> TapOverlap {
    let [left_pixel, right_pixel] = channels.map(|channels| K::IMAGE_WORDS * channels);
    if K::PIXEL_PAIRS {
        let pairs = PixelPairs::new(axis);
        let segments = columns.step_by(2).filter_map(|x| {
            let left = pairs.read_by(x, tap)? * PAIR_WORDS;
            Some(Segment { left, right: x * right_pixel })
        });
        return TapOverlap { depth: 2 * K::IMAGE_WORDS, segments: segments.collect() };
    }
    let pixels = axis.overlap(tap, columns);
    // Where adjacent pixels of the output read adjacent pixels of the input, with all images, they are one segment.
    let live = live.div_ceil(K::Word::ELEMENTS);
    let (depth, starts) = if axis.stride == 1 && live == K::IMAGE_WORDS {
        (pixels.len() * live, &pixels[..pixels.len().min(1)])
    } else {
        (live, &pixels[..])
    };
    let segments =
        starts.iter().map(|(x, from)| Segment { left: from * left_pixel, right: x * right_pixel });
    TapOverlap { depth, segments: segments.collect() }
}

/// The overlap of some (output, input) lines, of which each has the given one.
fn lines_overlap<K: ConvKernel>(
    axis: &ConvAxis,
    channels: [usize; 2],
    lines: &[(usize, usize)],
    line: &TapOverlap,
    slots: usize,
    first: usize,
) -> TapOverlap {
    let (left, right) = (K::left_line(axis, channels[0]), K::right_line(axis, channels[1]));
    let segments = lines.iter().flat_map(|(y, from)| {
        line.segments.iter().map(move |segment| Segment {
            left: from % slots * left + segment.left,
            right: (y - first) * right + segment.right,
        })
    });
    TapOverlap { depth: line.depth, segments: segments.collect() }
}
