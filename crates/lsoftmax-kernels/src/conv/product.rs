//! The three products of a convolution on one block of images.

use super::geometry::{Meeting, Strips};
use super::layout::{CHANNELS, IMAGES, Map};
use super::words::{Activations, ImageSteps};
use crate::buffer::Buffer;
use crate::kernel::{Left, STRIP_COLS, StripArgs, strip};

/// Computes all strips: the convolution's output, or its gradient to the input.
///
/// `store(group, pixel, rows)` takes every strip's rows of 32 channels: all live images of the first
/// pixel, then of the next.
pub(super) fn correlate<K: Activations>(
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
    for (group, right) in right.chunks_exact(strips.panel()).enumerate() {
        for run in &strips.strips {
            let rows = run.pixels * live;
            let args = StripArgs {
                left: Left { words: from, row_step: K::WORDS, depth_step: 1 },
                right,
                segments: &run.segments,
                rows,
                depth: strips.depth,
            };
            let out = &mut sums[..rows * STRIP_COLS];
            strip(kernel, &session, &args, out, false);
            store(group, run.pixel, out);
        }
    }
}

/// What the weight gradient reads from, beyond activations.
#[derive(Default)]
pub(super) struct ImageOperands {
    left: Buffer,
    right: Buffer,
}

/// Adds one block's weight gradient to `gradient`, which is in blocks (see
/// [`gradient_len`](super::weights::gradient_len)).
pub(super) fn weight_gradient<K: Activations>(
    kernel: K,
    chunks: &[Vec<Meeting>],
    (input, x): (Map, &[K::Word]),
    (output, dz): (Map, &[K::Word]),
    operands: &mut ImageOperands,
    gradient: &mut [f32],
) {
    let steps = K::left_steps(input.width);
    let (left, right): (&[K::Word], &[K::Word]) = if K::IMAGES_IN_PLACE {
        (x, dz)
    } else {
        operands.pack(kernel, steps, (input, x), (output, dz));
        (operands.left.words(), operands.right.words())
    };
    let left_group = input.height * steps.line;
    let right_group = output.pixels() * K::IMAGE_WORDS * CHANNELS;
    let session = kernel.session();
    for taps in chunks {
        let blocks = gradient.chunks_exact_mut(input.groups() * CHANNELS * STRIP_COLS);
        for (place, blocks) in blocks.enumerate() {
            let (to, tap) = (place / taps.len(), place % taps.len());
            let Meeting { depth, segments } = &taps[tap];
            if segments.is_empty() {
                continue;
            }
            for (from, block) in blocks.chunks_exact_mut(CHANNELS * STRIP_COLS).enumerate() {
                let args = StripArgs {
                    left: Left {
                        words: &left[from * left_group..][..left_group],
                        row_step: steps.channel,
                        depth_step: steps.depth,
                    },
                    right: &right[to * right_group..][..right_group],
                    segments,
                    rows: input.group(from).len(),
                    depth: *depth,
                };
                strip(kernel, &session, &args, block, true);
            }
        }
    }
}

impl ImageOperands {
    fn pack<K: Activations>(
        &mut self,
        kernel: K,
        steps: ImageSteps,
        (input, x): (Map, &[K::Word]),
        (output, dz): (Map, &[K::Word]),
    ) {
        let line = |map: Map| map.width * Map::tile_words::<K>();
        self.left.resize(input.groups() * input.height * steps.line);
        let lines = self.left.words_mut().chunks_exact_mut(steps.line);
        for (out, x) in lines.zip(x.chunks_exact(line(input))) {
            kernel.images_left(x, out);
        }
        self.right.resize(dz.len());
        let lines = self.right.words_mut().chunks_exact_mut(line(output));
        for (out, dz) in lines.zip(dz.chunks_exact(line(output))) {
            kernel.images_right(dz, out);
        }
    }
}
