//! Which input pixels an output pixel is computed from.
//!
//! Along one side of an image an output position reads, through each tap of the kernel, one input
//! position or none. Neighbouring outputs with the same taps form a [`Run`]: in the blocked layout
//! their pixels follow each other, so that a run is one strip of a product.

use std::ops::Range;

use super::layout::{CHANNELS, Map};
use super::words::Activations;
use crate::kernel::{STRIP_COLS, Segment};

/// A convolution along one side of its input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub input: usize,
    pub output: usize,
    pub kernel: usize,
    pub padding: usize,
    pub stride: usize,
}

/// A tap and the position that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tap {
    pub tap: usize,
    pub from: usize,
}

impl Side {
    /// What an output position reads.
    fn forward(&self, output: usize) -> Vec<Tap> {
        let through = |tap| self.through(tap, output..output + 1);
        let taps = (0..self.kernel).flat_map(|tap| through(tap).into_iter().map(move |t| (tap, t)));
        taps.map(|(tap, (_, from))| Tap { tap, from }).collect()
    }

    /// The output positions of a range that read through a tap, and what they read.
    fn through(&self, tap: usize, outputs: Range<usize>) -> Vec<(usize, usize)> {
        outputs
            .filter_map(|output| {
                let from = (output * self.stride + tap).checked_sub(self.padding)?;
                (from < self.input).then_some((output, from))
            })
            .collect()
    }

    /// The output positions that an input position went into.
    fn backward(&self, input: usize) -> Vec<Tap> {
        (0..self.kernel)
            .filter_map(|tap| {
                let place = (input + self.padding).checked_sub(tap)?;
                let from = place / self.stride;
                let whole = place.is_multiple_of(self.stride) && from < self.output;
                whole.then_some(Tap { tap, from })
            })
            .collect()
    }
}

/// Neighbouring positions with the same taps, each position's reads one further than the last's.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    start: usize,
    len: usize,
    taps: Vec<Tap>,
}

fn runs(positions: usize, taps: impl Fn(usize) -> Vec<Tap>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for position in 0..positions {
        let taps = taps(position);
        if let Some(run) = runs.last_mut() {
            let ahead = |tap: &Tap| Tap { from: tap.from + run.len, ..*tap };
            if run.taps.iter().map(ahead).eq(taps.iter().copied()) {
                run.len += 1;
                continue;
            }
        }
        runs.push(Run { start: position, len: 1, taps });
    }
    runs
}

/// Both sides of a convolution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub vertical: Side,
    pub horizontal: Side,
}

impl Window {
    pub fn taps(&self) -> usize {
        self.vertical.kernel * self.horizontal.kernel
    }
}

/// One strip: pixels of a row and the segments they read.
#[derive(Clone, Debug)]
pub(super) struct Strip {
    /// The first pixel.
    pub pixel: usize,
    pub pixels: usize,
    pub segments: Vec<Segment>,
}

/// All strips of a convolution, or of its gradient to the input, on one block of images.
#[derive(Clone, Debug)]
pub(super) struct Strips {
    /// What is read.
    pub from: Map,
    /// What is written.
    pub to: Map,
    /// Words of depth in a segment.
    pub depth: usize,
    pub strips: Vec<Strip>,
    pub taps: usize,
}

/// Which way a convolution is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

impl Strips {
    /// The strips that compute `to` from `from`: the output from the input, or, backward, the input's
    /// gradient from the output's.
    pub fn new<K: Activations>(
        window: &Window,
        direction: Direction,
        from: Map,
        to: Map,
        merge: bool,
    ) -> Self {
        let taps = |side: &Side, position| match direction {
            Direction::Forward => side.forward(position),
            Direction::Backward => side.backward(position),
        };
        let depth = K::depth(from.channels);
        let (tile, group) = (Map::tile_words::<K>(), from.group_words::<K>());
        let mut horizontal = runs(to.width, |x| taps(&window.horizontal, x));
        if !merge {
            horizontal = horizontal.into_iter().flat_map(Run::into_single).collect();
        }
        let mut strips = Vec::new();
        for y in 0..to.height {
            let vertical = taps(&window.vertical, y);
            for run in &horizontal {
                let mut segments = Vec::new();
                for ky in &vertical {
                    for kx in &run.taps {
                        let tap = ky.tap * window.horizontal.kernel + kx.tap;
                        let pixel = ky.from * from.width + kx.from;
                        segments.extend((0..from.groups()).map(|g| Segment {
                            left: g * group + pixel * tile,
                            right: (tap * from.groups() + g) * depth * STRIP_COLS,
                        }));
                    }
                }
                strips.push(Strip { pixel: y * to.width + run.start, pixels: run.len, segments });
            }
        }
        Self { from, to, depth, strips, taps: window.taps() }
    }

    /// Words of the right operand of one group of output channels.
    pub fn panel(&self) -> usize {
        self.taps * self.from.groups() * self.depth * STRIP_COLS
    }
}

impl Run {
    fn into_single(self) -> impl Iterator<Item = Self> {
        (0..self.len).map(move |i| Self {
            start: self.start + i,
            len: 1,
            taps: self.taps.iter().map(|tap| Tap { from: tap.from + i, ..*tap }).collect(),
        })
    }
}

/// One tap's part in the weight gradient of some pixels: which pixels of input and output meet.
#[derive(Clone, Debug, Default)]
pub(super) struct Meeting {
    /// Words of depth in a segment.
    pub depth: usize,
    /// Relative to the first word of a group.
    pub segments: Vec<Segment>,
}

/// Pixels of the output that the weight gradient takes before it turns to other channels: their
/// words, the right operand, stay in the nearest cache while taps and channels change.
const NEAR_WORDS: usize = 4096;

/// The meetings of every tap, for one chunk of output pixels after the other.
pub(super) fn meetings<K: Activations>(
    window: &Window,
    input: Map,
    output: Map,
) -> Vec<Vec<Meeting>> {
    let near = (NEAR_WORDS / (K::IMAGE_WORDS * CHANNELS)).max(1);
    // Rows and columns are spread evenly over the chunks.
    let cut = |len: usize, most: usize| {
        let parts = len.div_ceil(most);
        (0..parts).map(move |part| part * len / parts..(part + 1) * len / parts)
    };
    let mut chunks = Vec::new();
    for rows in cut(output.height, (near / output.width).max(1)) {
        for columns in cut(output.width, near) {
            let taps = (0..window.taps()).map(|tap| {
                let [ky, kx] = [tap / window.horizontal.kernel, tap % window.horizontal.kernel];
                let rows = window.vertical.through(ky, rows.clone());
                let columns = window.horizontal.through(kx, columns.clone());
                meeting::<K>(&rows, &columns, input, output, window.horizontal.stride == 1)
            });
            chunks.push(taps.collect());
        }
    }
    chunks
}

/// Rows and columns are (output, input) positions. Where `joined`, columns follow each other on both
/// sides, and a row is one segment.
fn meeting<K: Activations>(
    rows: &[(usize, usize)],
    columns: &[(usize, usize)],
    input: Map,
    output: Map,
    joined: bool,
) -> Meeting {
    let left = K::left_steps(input.width);
    let right = K::IMAGE_WORDS * CHANNELS;
    let (pixels, starts) =
        if joined { (columns.len(), &columns[..columns.len().min(1)]) } else { (1, columns) };
    let segments = rows.iter().flat_map(|(y, from_y)| {
        starts.iter().map(move |(x, from_x)| Segment {
            left: from_y * left.line + from_x * left.pixel,
            right: (y * output.width + x) * right,
        })
    });
    Meeting { depth: pixels * K::IMAGE_WORDS, segments: segments.collect() }
}
