//! The three products of a convolution on one block of images.

use std::ops::Range;

use super::conv_kernel::ConvKernel;
use super::geometry::{ConvAxes, Strips, TapOverlap, Wave, Waves, divide};
use super::layout::{CHANNELS, FeatureMap, IMAGES};
use crate::buffer::Buffer;
use crate::kernel::{LeftOperand, STRIP_COLS, StripArgs, strip_product};

/// The most rows of a strip that are computed before they are stored: eight pixels of all images of a block.
/// Their sums, at most 16 KB, stay in the L1 cache.
const STORED_ROWS: usize = 8 * IMAGES;

/// Computes the strips of some rows (see [`PackedConv::correlate`](super::layer::PackedConv::correlate)).
pub(super) fn correlate<K: ConvKernel>(
    kernel: K,
    strips: &Strips,
    rows: &Range<usize>,
    from: &[K::Word],
    right: &[K::Word],
    live: usize,
    mut store: impl FnMut(usize, usize, &mut [f32]),
) {
    // In a row of two images, of which the last is missing, it is computed, too: it is zero in `from`.
    let (live, width) = (strips.to.row_images(live), strips.to.row_channels());
    let (pixel_words, image_words) =
        (strips.from.pixel_words::<K>(), strips.from.image_words::<K>());
    let mut sums = [0.0; STORED_ROWS * STRIP_COLS];
    let session = kernel.session();
    for (group, right) in right.chunks_exact(strips.panel_words()).enumerate() {
        // Columns beyond the last channel are zero, and need not be computed.
        let cols = strips.to.group(group).len();
        if group > 0 && cols < STRIP_COLS {
            sums.fill(0.0);
        }
        for strip in strips.of_rows(rows) {
            for part in divide(strip.pixels, STORED_ROWS / live, 1) {
                let sums = &mut sums[..part.len() * live * width];
                // The rows of a product are a fixed distance apart. If images are missing, they are the
                // images of one pixel or the pixels of one image, whichever are more.
                let (products, rows, row_stride) = match (live, part.len()) {
                    (IMAGES, pixels) => (1, pixels * live, image_words),
                    (live, pixels) if live < pixels => (live, pixels, pixel_words),
                    (live, pixels) => (pixels, live, image_words),
                };
                let (from_step, out_step, out_stride) = match row_stride == image_words {
                    true => (pixel_words, live * width, width),
                    false => (image_words, width, live * width),
                };
                for product in 0..products {
                    let start = part.start * pixel_words + product * from_step;
                    let words = &from[start..];
                    let args = StripArgs {
                        left: LeftOperand { words, row_stride, depth_stride: 1 },
                        right,
                        right_stride: STRIP_COLS,
                        segments: &strip.segments,
                        rows,
                        cols,
                        depth: strips.depth,
                        out_stride,
                    };
                    strip_product(kernel, &session, &args, &mut sums[product * out_step..], false);
                }
                store(group, strip.pixel + part.start, sums);
            }
        }
    }
}

/// Operands of the weight gradient. The left one is a ring of lines of the input (see [`Waves`]); where the
/// path cannot read lines of the output's gradient in place, the right one is a wave of them, packed.
#[derive(Default)]
pub(super) struct LineOperands {
    pub left: Buffer,
    right: Buffer,
}

impl LineOperands {
    pub fn resize<K: ConvKernel>(
        &mut self,
        waves: &Waves,
        axes: &ConvAxes,
        input: FeatureMap,
        output: FeatureMap,
    ) {
        let left = K::left_line(&axes.horizontal, input.row_channels());
        self.left.resize(input.groups() * waves.slots * left);
        if !K::LINES_IN_PLACE {
            let right = K::right_line(&axes.horizontal, output.row_channels());
            self.right.resize(output.groups() * waves.rows * right);
        }
    }

    /// Packs row `y` of the input, all channel groups, into the ring.
    pub fn pack_left<K: ConvKernel>(
        &mut self,
        kernel: K,
        waves: &Waves,
        axes: &ConvAxes,
        input: FeatureMap,
        y: usize,
        row: &[K::Word],
    ) {
        let line = input.width * input.pixel_words::<K>();
        let packed = K::left_line(&axes.horizontal, input.row_channels());
        let rings = self.left.words_mut().chunks_exact_mut(waves.slots * packed);
        for (ring, row) in rings.zip(row.chunks_exact(line)) {
            let out = &mut ring[y % waves.slots * packed..][..packed];
            kernel.pack_left_line(&axes.horizontal, input.row_channels(), row, out);
        }
    }

    fn pack_right<K: ConvKernel>(
        &mut self,
        kernel: K,
        waves: &Waves,
        axes: &ConvAxes,
        rows: &Range<usize>,
        (output, dz): (FeatureMap, &[K::Word]),
    ) {
        let line = output.width * output.pixel_words::<K>();
        let packed = K::right_line(&axes.horizontal, output.row_channels());
        let groups = self.right.words_mut().chunks_exact_mut(waves.rows * packed);
        for (out, dz) in groups.zip(dz.chunks_exact(output.group_words::<K>())) {
            let lines = dz.chunks_exact(line).skip(rows.start).take(rows.len());
            for (out, line) in out.chunks_exact_mut(packed).zip(lines) {
                kernel.pack_right_line(output.row_channels(), line, out);
            }
        }
    }

    /// Adds one wave's weight gradient to `gradient`, which is packed (see
    /// [`packed_gradient_len`](super::weights::packed_gradient_len)). The lines of the input that it reads
    /// must be in the ring.
    pub fn add_weight_gradient<K: ConvKernel>(
        &mut self,
        kernel: K,
        (waves, wave): (&Waves, &Wave),
        axes: &ConvAxes,
        input: FeatureMap,
        (output, dz): (FeatureMap, &[K::Word]),
        gradient: &mut [f32],
    ) {
        let (right, right_group) = if K::LINES_IN_PLACE {
            (dz, output.group_words::<K>())
        } else {
            self.pack_right(kernel, waves, axes, &wave.outputs, (output, dz));
            let line = K::right_line(&axes.horizontal, output.row_channels());
            (self.right.words(), waves.rows * line)
        };
        let left: &[K::Word] = self.left.words();
        let left_group = waves.slots * K::left_line(&axes.horizontal, input.row_channels());
        let (row_stride, depth_stride) = K::left_strides(input.row_channels());
        let session = kernel.session();
        for taps in &wave.columns {
            let blocks = gradient.chunks_exact_mut(input.groups() * CHANNELS * STRIP_COLS);
            for (index, blocks) in blocks.enumerate() {
                let (to, tap) = (index / taps.len(), index % taps.len());
                let TapOverlap { depth, segments } = &taps[tap];
                if segments.is_empty() {
                    continue;
                }
                for (from, block) in blocks.chunks_exact_mut(CHANNELS * STRIP_COLS).enumerate() {
                    let words = &left[from * left_group..][..left_group];
                    let args = StripArgs {
                        left: LeftOperand { words, row_stride, depth_stride },
                        right: &right[to * right_group..][..right_group],
                        right_stride: output.row_channels(),
                        segments,
                        rows: K::gradient_rows(input.group(from).len()),
                        cols: output.group(to).len(),
                        depth: *depth,
                        out_stride: STRIP_COLS,
                    };
                    strip_product(kernel, &session, &args, block, true);
                }
            }
        }
    }
}
