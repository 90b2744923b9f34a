//! Pairs of pixels: how AMX reads a line of the input in the weight gradient.
//!
//! A tile has sixteen words of depth, which are the image pairs of two pixels. Output pixels 2i and 2i + 1
//! are one segment; through a tap they read two input pixels that are `stride` apart and start anywhere.
//! So a line is packed in *blocks*, one for each pair of input pixels at that distance, with zeros for
//! pixels outside: a border needs no shorter segment. Blocks that the same tap reads one after the other
//! are adjacent.
//!
//! A pixel that is not there counts as 0 · x, so unlike a skipped one it spreads an x that is infinite or
//! NaN to the other taps of the same channels.

#![cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "only AMX uses pairs of pixels")
)]

use super::geometry::ConvAxis;
use super::layout::{CHANNELS, IMAGES};

/// Words of a block: 32 channels of the image pairs of two pixels.
pub(super) const PAIR_WORDS: usize = CHANNELS * IMAGES;

/// The pairs of one line. A pair is named by its second pixel: 0 to width + stride − 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct PixelPairs {
    axis: ConvAxis,
}

impl PixelPairs {
    pub fn new(axis: &ConvAxis) -> Self {
        Self { axis: *axis }
    }

    /// The distance of the pairs that a tap reads one after the other.
    fn step(&self) -> usize {
        2 * self.axis.stride
    }

    fn pairs(&self) -> usize {
        self.axis.input + self.axis.stride
    }

    /// The number of blocks of a line.
    pub fn blocks(&self) -> usize {
        self.pairs().div_ceil(self.step()) * self.step()
    }

    fn block(&self, pair: usize) -> usize {
        pair % self.step() * self.pairs().div_ceil(self.step()) + pair / self.step()
    }

    /// The block of the pixels that an output pixel and the next one read through a tap, unless both are
    /// outside.
    pub fn read_by(&self, output: usize, tap: usize) -> Option<usize> {
        let ConvAxis { stride, padding, .. } = self.axis;
        let pair = ((output + 1) * stride + tap).checked_sub(padding)?;
        (pair < self.pairs()).then(|| self.block(pair))
    }

    /// The blocks that some even output pixel reads, each with its two pixels.
    pub fn needed(&self) -> impl Iterator<Item = (usize, [Option<usize>; 2])> {
        let ConvAxis { kernel, padding, stride, input, .. } = self.axis;
        let residue = move |pair: usize| (pair + padding) % self.step();
        let needed = move |pair: &usize| {
            (0..kernel).any(|tap| (stride + tap) % (2 * stride) == residue(*pair))
        };
        let inside = move |pixel: usize| (pixel < input).then_some(pixel);
        (0..self.pairs()).filter(needed).map(move |pair| {
            (self.block(pair), [pair.checked_sub(stride).and_then(inside), inside(pair)])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_that_is_read_is_packed_with_the_pixels_that_the_outputs_read() {
        for input in 1..9 {
            for kernel in 1..6 {
                for padding in 0..4 {
                    for stride in [1, 2].into_iter().filter(|_| kernel <= input + 2 * padding) {
                        let output = (input + 2 * padding - kernel) / stride + 1;
                        let axis = ConvAxis { input, output, kernel, padding, stride };
                        check(&axis);
                    }
                }
            }
        }
    }

    fn check(axis: &ConvAxis) {
        let pairs = PixelPairs::new(axis);
        let packed: Vec<_> = pairs.needed().collect();
        assert!(packed.iter().all(|(block, _)| *block < pairs.blocks()), "{axis:?}");
        for x in (0..axis.output).step_by(2) {
            for tap in 0..axis.kernel {
                let read = |x: usize| {
                    let pixel = (x * axis.stride + tap).checked_sub(axis.padding)?;
                    (pixel < axis.input).then_some(pixel)
                };
                let expected = [read(x), read(x + 1)];
                match pairs.read_by(x, tap) {
                    Some(block) => assert!(packed.contains(&(block, expected)), "{axis:?}"),
                    None => assert_eq!(expected, [None; 2], "{axis:?}"),
                }
            }
        }
    }
}
