//! The weight gradient of one unit's convolution, by one thread: directly, or by Winograd's algorithm.

use super::conv_kernel::ConvKernel;
use super::geometry::{Wave, Waves};
use super::layer::ConvLayer;
use super::layout::MapRows;
use super::product::LineOperands;
use super::tile_pixels::Lines;
use super::winograd_gradient::WinogradGradient;
use crate::buffer::Buffer;

/// Working memory of a [`WeightGradient`].
#[derive(Default)]
pub(super) struct WeightGradientScratch {
    /// Rows of the convolution's input: a ring for Winograd's algorithm, else the one that is packed next, if rows are packed.
    rows: Buffer,
    operands: LineOperands,
    winograd: WinogradGradient,
}

/// A sum of weight gradients. Rows of the input go in one after the other; as soon as a wave has those that it reads, its terms
/// are added.
pub(super) struct WeightGradient<'a> {
    layer: &'a ConvLayer,
    waves: &'a Waves,
    scratch: &'a mut WeightGradientScratch,
    /// Packed (see [`packed_gradient_len`](super::weights::packed_gradient_len)). Complete after [`Self::finish`].
    sum: &'a mut [f32],
}

impl<'a> WeightGradient<'a> {
    /// A sum of no terms.
    pub fn new<K: ConvKernel>(
        layer: &'a ConvLayer,
        waves: &'a Waves,
        scratch: &'a mut WeightGradientScratch,
        sum: &'a mut [f32],
    ) -> Self {
        let row_words = layer.input.words::<K>() / layer.input.height;
        match &layer.tiles {
            Some(tiles) => {
                scratch.rows.resize(waves.slots * row_words);
                scratch.winograd.clear(tiles);
            }
            None => {
                scratch.rows.resize(row_words);
                scratch.operands.resize::<K>(waves, &layer.axes, layer.input, layer.output);
                sum.fill(0.0);
            }
        }
        Self { layer, waves, scratch, sum }
    }

    /// Takes row `y` of the input, which `write` writes. It may overwrite a row that only previous waves read.
    pub fn take_row<K: ConvKernel>(
        &mut self,
        kernel: K,
        y: usize,
        write: impl FnOnce(&mut MapRows<'_, K>),
    ) {
        let ConvLayer { axes, input, tiles, .. } = self.layer;
        let WeightGradientScratch { rows, operands, .. } = &mut *self.scratch;
        let slots = self.waves.slots;
        match tiles {
            Some(_) => write(&mut MapRows::in_ring(*input, rows.words_mut(), slots, y)),
            None if K::LINES_IN_PLACE => {
                write(&mut MapRows::in_ring(*input, operands.left.words_mut(), slots, y));
            }
            None => {
                write(&mut MapRows::in_ring(*input, rows.words_mut(), 1, y));
                operands.pack_left(kernel, self.waves, axes, *input, y, rows.words());
            }
        }
    }

    /// Adds the terms of a wave, from the gradient of the convolution's output.
    pub fn add<K: ConvKernel>(&mut self, kernel: K, wave: &Wave, dz: &[K::Word], live: usize) {
        let ConvLayer { axes, input, output, tiles, .. } = self.layer;
        let WeightGradientScratch { rows, operands, winograd } = &mut *self.scratch;
        match tiles {
            Some(tiles) => {
                let input = Lines { words: rows.words(), map: *input, slots: self.waves.slots };
                let dz = Lines::whole(*output, dz);
                winograd.add(kernel, tiles, &wave.outputs, input, dz, live);
            }
            None => {
                let (wave, dz) = ((self.waves, wave), (*output, dz));
                operands.add_weight_gradient(kernel, wave, axes, *input, dz, self.sum);
            }
        }
    }

    /// Completes the sum.
    pub fn finish<K: ConvKernel>(self, kernel: K) {
        if let Some(tiles) = &self.layer.tiles {
            self.scratch.winograd.finish(kernel, tiles, self.sum);
        }
    }
}
