//! Packing of weights as right operands, and unpacking of their gradients.

use lsoftmax_comm::are_siblings;
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

/// Floats that are added together.
const BLOCK: usize = CHANNELS * STRIP_COLS;

/// Adds a block of packed gradients, which are nodes of a tree, as far as they are siblings.
#[derive(Default)]
struct BlockSum {
    /// The nodes that have no sibling yet, and their sums.
    ids: Vec<u64>,
    sums: Vec<[f32; BLOCK]>,
}

impl BlockSum {
    /// The sums of the nodes that remain, in order. The block is at `start` of each part.
    fn add(&mut self, parts: &[f32], len: usize, ids: &[u64], start: usize) -> &[[f32; BLOCK]] {
        self.ids.clear();
        self.sums.clear();
        for (id, part) in ids.iter().zip(parts.chunks_exact(len)) {
            let mut id = *id;
            let part = &part[start..][..BLOCK];
            self.sums.push(part.try_into().expect("a block"));
            while let Some(left) = self.ids.pop_if(|left| are_siblings(*left, id)) {
                let right = self.sums.pop().expect("a sum per node");
                let sum = self.sums.last_mut().expect("a sum per node");
                sum.iter_mut().zip(&right).for_each(|(sum, right)| *sum += right);
                id = left / 2;
            }
            self.ids.push(id);
        }
        &self.sums
    }
}

/// Adds packed gradients of `len` floats each, the nodes `ids` of a tree, as far as they are siblings: to `count`
/// nodes.
pub(super) fn add_siblings(parts: &[f32], len: usize, ids: &[u64], count: usize) -> Buffer {
    let mut nodes = Buffer::new(count * len);
    let mut blocks: Vec<Vec<&mut [f32]>> = Vec::new();
    blocks.resize_with(len / BLOCK, Vec::new);
    for node in nodes.chunks_exact_mut(len) {
        for (block, all) in node.chunks_exact_mut(BLOCK).zip(&mut blocks) {
            all.push(block);
        }
    }
    blocks.into_par_iter().enumerate().for_each_init(BlockSum::default, |sum, (block, out)| {
        for (out, sum) in out.into_iter().zip(sum.add(parts, len, ids, block * BLOCK)) {
            out.copy_from_slice(sum);
        }
    });
    nodes
}

/// Adds packed gradients of `len` floats each, the nodes `ids` that are the whole tree, and unpacks the sum to the
/// layout of weights.
pub(super) fn unpack_weight_gradient(
    parts: &[f32],
    len: usize,
    ids: &[u64],
    input: FeatureMap,
    output: FeatureMap,
    shape: WeightShape,
) -> Buffer {
    let mut gradient = Buffer::new(shape.filters * shape.channels * shape.taps);
    // A task owns 32 filters, which are contiguous in the gradient.
    let rows = STRIP_COLS * shape.channels * shape.taps;
    let groups = gradient.par_chunks_mut(rows).enumerate();
    groups.for_each_init(BlockSum::default, |sum, (group, gradient)| {
        let filters = output.group(group).len();
        for tap in 0..shape.taps {
            for from in 0..input.groups() {
                let start = ((group * shape.taps + tap) * input.groups() + from) * BLOCK;
                let sum = &sum.add(parts, len, ids, start)[0];
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
