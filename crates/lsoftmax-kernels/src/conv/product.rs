//! The three products of a convolution on one block of images.

use super::conv_kernel::{ConvKernel, ImageStrides};
use super::geometry::{Strips, TapOverlap};
use super::layout::{CHANNELS, FeatureMap, IMAGES};
use crate::buffer::Buffer;
use crate::kernel::{LeftOperand, STRIP_COLS, StripArgs, strip_product};

/// Computes all strips: the convolution's output, or its gradient with respect to the input.
///
/// Calls `store(group, pixel, rows)` with the rows of 32 channels of each strip: all live images of
/// its first pixel, then of the next.
pub(super) fn correlate<K: ConvKernel>(
    kernel: K,
    strips: &Strips,
    from: &[K::Word],
    right: &[K::Word],
    live: usize,
    sums: &mut Buffer,
    mut store: impl FnMut(usize, usize, &mut [f32]),
) {
    let longest = strips.strips.iter().map(|strip| strip.pixels).max().unwrap_or(0);
    sums.resize(longest * IMAGES * STRIP_COLS);
    let session = kernel.session();
    for (group, right) in right.chunks_exact(strips.panel_words()).enumerate() {
        for run in &strips.strips {
            let rows = run.pixels * live;
            let args = StripArgs {
                left: LeftOperand { words: from, row_stride: K::ROW_WORDS, depth_stride: 1 },
                right,
                segments: &run.segments,
                rows,
                depth: strips.depth,
            };
            let out = &mut sums[..rows * STRIP_COLS];
            strip_product(kernel, &session, &args, out, false);
            store(group, run.pixel, out);
        }
    }
}

/// Packed operands of the weight gradient, for paths that cannot read the activations directly.
#[derive(Default)]
pub(super) struct ImageOperands {
    left: Buffer,
    right: Buffer,
}

/// Adds one block's weight gradient to `gradient`, which is packed (see
/// [`packed_gradient_len`](super::weights::packed_gradient_len)).
pub(super) fn weight_gradient<K: ConvKernel>(
    kernel: K,
    chunks: &[Vec<TapOverlap>],
    (input, x): (FeatureMap, &[K::Word]),
    (output, dz): (FeatureMap, &[K::Word]),
    operands: &mut ImageOperands,
    gradient: &mut [f32],
) {
    let strides = K::left_strides(input.width);
    let (left, right): (&[K::Word], &[K::Word]) = if K::IMAGES_IN_PLACE {
        (x, dz)
    } else {
        operands.pack(kernel, strides, (input, x), (output, dz));
        (operands.left.words(), operands.right.words())
    };
    let left_group = input.height * strides.line;
    let right_group = output.pixels() * K::IMAGE_WORDS * CHANNELS;
    let session = kernel.session();
    for taps in chunks {
        let blocks = gradient.chunks_exact_mut(input.groups() * CHANNELS * STRIP_COLS);
        for (index, blocks) in blocks.enumerate() {
            let (to, tap) = (index / taps.len(), index % taps.len());
            let TapOverlap { depth, segments } = &taps[tap];
            if segments.is_empty() {
                continue;
            }
            for (from, block) in blocks.chunks_exact_mut(CHANNELS * STRIP_COLS).enumerate() {
                let args = StripArgs {
                    left: LeftOperand {
                        words: &left[from * left_group..][..left_group],
                        row_stride: strides.channel,
                        depth_stride: strides.depth,
                    },
                    right: &right[to * right_group..][..right_group],
                    segments,
                    rows: input.group(from).len(),
                    depth: *depth,
                };
                strip_product(kernel, &session, &args, block, true);
            }
        }
    }
}

impl ImageOperands {
    fn pack<K: ConvKernel>(
        &mut self,
        kernel: K,
        strides: ImageStrides,
        (input, x): (FeatureMap, &[K::Word]),
        (output, dz): (FeatureMap, &[K::Word]),
    ) {
        let line = |map: FeatureMap| map.width * FeatureMap::pixel_words::<K>();
        self.left.resize(input.groups() * input.height * strides.line);
        let lines = self.left.words_mut().chunks_exact_mut(strides.line);
        for (out, x) in lines.zip(x.chunks_exact(line(input))) {
            kernel.pack_images_left(x, out);
        }
        self.right.resize(dz.len());
        let lines = self.right.words_mut().chunks_exact_mut(line(output));
        for (out, dz) in lines.zip(dz.chunks_exact(line(output))) {
            kernel.pack_images_right(dz, out);
        }
    }
}
