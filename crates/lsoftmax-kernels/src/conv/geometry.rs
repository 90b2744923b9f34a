//! Which input pixels an output pixel is computed from.
//!
//! Along one side of an image an output position reads, through each tap of the kernel, one input
//! position or none. Neighbouring outputs with the same taps form a [`Run`]: in the blocked layout
//! their pixels follow each other, so that a run is one strip of a product.

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
    pub fn forward(&self, output: usize) -> Vec<Tap> {
        (0..self.kernel)
            .filter_map(|tap| {
                let from = (output * self.stride + tap).checked_sub(self.padding)?;
                (from < self.input).then_some(Tap { tap, from })
            })
            .collect()
    }

    /// The output positions that an input position went into.
    pub fn backward(&self, input: usize) -> Vec<Tap> {
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

/// The products of one tap's weight gradient: which pixels of input and output meet.
#[derive(Clone, Debug)]
pub(super) struct Meeting {
    /// Words of depth in a segment.
    pub depth: usize,
    /// By row of the output: segments relative to the first word of a group.
    pub rows: Vec<Vec<Segment>>,
}

/// The meetings of every tap.
pub(super) fn meetings<K: Activations>(window: &Window, input: Map, output: Map) -> Vec<Meeting> {
    let left = K::left_steps(input.width);
    let right = K::IMAGE_WORDS * CHANNELS;
    let mut meetings = Vec::with_capacity(window.taps());
    for ky in 0..window.vertical.kernel {
        for kx in 0..window.horizontal.kernel {
            let through = |side: &Side, tap: usize, output: usize| {
                side.forward(output).into_iter().find(|t| t.tap == tap).map(|t| t.from)
            };
            let columns: Vec<(usize, usize)> = (0..output.width)
                .filter_map(|x| Some((x, through(&window.horizontal, kx, x)?)))
                .collect();
            // At a stride of 1 the columns follow each other on both sides: one segment a row.
            let whole = window.horizontal.stride == 1;
            let pixels = if whole { columns.len() } else { 1 };
            let starts = &columns[..if whole { columns.len().min(1) } else { columns.len() }];
            let rows = (0..output.height)
                .map(|y| {
                    let Some(from) = through(&window.vertical, ky, y) else { return Vec::new() };
                    let segment = |(x, from_x): &(usize, usize)| Segment {
                        left: from * left.line + from_x * left.pixel,
                        right: (y * output.width + x) * right,
                    };
                    starts.iter().map(segment).collect()
                })
                .collect();
            meetings.push(Meeting { depth: pixels * K::IMAGE_WORDS, rows });
        }
    }
    meetings
}
