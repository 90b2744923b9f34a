//! Weights as right operands, and gradients back in the order of weights.

use rayon::prelude::*;

use super::geometry::{Direction, Strips};
use super::layout::{CHANNELS, Map};
use super::words::Activations;
use crate::buffer::Buffer;
use crate::kernel::STRIP_COLS;

/// The shape of a unit's weight: filters x channels x taps.
#[derive(Clone, Copy, Debug)]
pub(super) struct WeightShape {
    pub filters: usize,
    pub channels: usize,
    pub taps: usize,
}

/// Packs weights as the right operand of `strips`: for each group of 32 output channels, by tap, by
/// group of input channels, by depth, 32 columns. Backward the two kinds of channels change places.
pub(super) fn pack<K: Activations>(
    kernel: K,
    strips: &Strips,
    direction: Direction,
    shape: WeightShape,
    weight: &[f32],
) -> Buffer {
    let mut packed = Buffer::new(strips.to.groups() * strips.panel());
    let block = strips.depth * STRIP_COLS;
    let panels = packed.words_mut::<K::Word>().par_chunks_exact_mut(strips.panel());
    panels.enumerate().for_each(|(group, panel)| {
        let columns = strips.to.group(group);
        kernel.vectorize(
            #[inline(always)]
            || {
                for (place, block) in panel.chunks_exact_mut(block).enumerate() {
                    let (tap, from) = (place / strips.from.groups(), place % strips.from.groups());
                    let depth = strips.from.group(from);
                    let at = |column: usize, depth: usize| {
                        let (filter, channel) = match direction {
                            Direction::Forward => (column, depth),
                            Direction::Backward => (depth, column),
                        };
                        weight[(filter * shape.channels + channel) * shape.taps + tap]
                    };
                    let mut rows = [[0.0; CHANNELS]; CHANNELS];
                    for (column, values) in columns.clone().zip(&mut rows) {
                        for (d, value) in depth.clone().zip(values) {
                            *value = at(column, d);
                        }
                    }
                    // A column's depth becomes words; the words then stand one below the other.
                    for (column, values) in rows.iter().enumerate() {
                        let mut words = [K::Word::default(); CHANNELS];
                        kernel.encode(values, &mut words);
                        for (d, word) in words[..strips.depth].iter().enumerate() {
                            block[d * STRIP_COLS + column] = *word;
                        }
                    }
                }
            },
        );
    });
    packed
}

/// Floats of a weight gradient in blocks: `[filter group][tap][channel group][32][32]`, channels by
/// filters.
pub(super) fn gradient_len(input: Map, output: Map, taps: usize) -> usize {
    output.groups() * taps * input.groups() * CHANNELS * STRIP_COLS
}

/// Adds up gradients in blocks, one after the other, into the order of the weights.
pub(super) fn unpack_gradient(
    parts: &[f32],
    len: usize,
    input: Map,
    output: Map,
    shape: WeightShape,
) -> Buffer {
    let mut gradient = Buffer::new(shape.filters * shape.channels * shape.taps);
    let block = CHANNELS * STRIP_COLS;
    // A task takes 32 filters: rows of the gradient that no other task writes.
    let rows = STRIP_COLS * shape.channels * shape.taps;
    gradient.par_chunks_mut(rows).enumerate().for_each(|(group, gradient)| {
        let filters = output.group(group).len();
        for tap in 0..shape.taps {
            for from in 0..input.groups() {
                let start = ((group * shape.taps + tap) * input.groups() + from) * block;
                let mut sum = [0.0f32; CHANNELS * STRIP_COLS];
                for part in parts.chunks_exact(len) {
                    for (sum, value) in sum.iter_mut().zip(&part[start..][..block]) {
                        *sum += value;
                    }
                }
                for (c, channel) in input.group(from).enumerate() {
                    for filter in 0..filters {
                        let place = (filter * shape.channels + channel) * shape.taps + tap;
                        gradient[place] = sum[c * STRIP_COLS + filter];
                    }
                }
            }
        }
    });
    gradient
}

const _: () = assert!(STRIP_COLS == CHANNELS);
