//! Packing of weights as right operands, and unpacking of their gradients.

use rayon::prelude::*;

use super::conv_kernel::ConvKernel;
use super::geometry::{Direction, Strips};
use super::layout::{CHANNELS, FeatureMap};
use crate::buffer::Buffer;
use crate::kernel::STRIP_COLS;

/// The shape of a unit's weight: filters x channels x taps.
#[derive(Clone, Copy, Debug)]
pub(super) struct WeightShape {
    pub filters: usize,
    pub channels: usize,
    pub taps: usize,
}

/// Packs weights as the right operand of `strips`: `[output group][tap][input group][depth][32]`.
/// Backward, input and output channels are exchanged.
pub(super) fn pack_weights<K: ConvKernel>(
    kernel: K,
    strips: &Strips,
    direction: Direction,
    shape: WeightShape,
    weight: &[f32],
) -> Buffer {
    let mut packed = Buffer::new(strips.to.groups() * strips.panel_words());
    let block = strips.depth * STRIP_COLS;
    let panels = packed.words_mut::<K::Word>().par_chunks_exact_mut(strips.panel_words());
    panels.enumerate().for_each(|(group, panel)| {
        let columns = strips.to.group(group);
        kernel.vectorize(
            #[inline(always)]
            || {
                for (index, block) in panel.chunks_exact_mut(block).enumerate() {
                    let (tap, from) = (index / strips.from.groups(), index % strips.from.groups());
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
                    // Encodes each column along the depth, then transposes the words.
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

/// Floats of a packed weight gradient: `[filter group][tap][channel group][32 channels][32 filters]`.
pub(super) fn packed_gradient_len(input: FeatureMap, output: FeatureMap, taps: usize) -> usize {
    output.groups() * taps * input.groups() * CHANNELS * STRIP_COLS
}

/// Sums packed gradients of `len` floats each, in order, and unpacks the sum to the layout of weights.
pub(super) fn unpack_weight_gradient(
    parts: &[f32],
    len: usize,
    input: FeatureMap,
    output: FeatureMap,
    shape: WeightShape,
) -> Buffer {
    let mut gradient = Buffer::new(shape.filters * shape.channels * shape.taps);
    let block = CHANNELS * STRIP_COLS;
    // A task owns 32 filters, which are contiguous in the gradient.
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
                        let index = (filter * shape.channels + channel) * shape.taps + tap;
                        gradient[index] = sum[c * STRIP_COLS + filter];
                    }
                }
            }
        }
    });
    gradient
}

const _: () = assert!(STRIP_COLS == CHANNELS);
