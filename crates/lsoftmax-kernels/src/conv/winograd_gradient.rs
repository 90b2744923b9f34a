//! The weight gradient of a 3x3 convolution by Winograd's algorithm, on one block of images (see `winograd`).
//!
//! Images and tiles are the depth of a product of transformed inputs and transformed gradients, point by point. The sums are
//! transformed into the gradient of the weights once all of them are added.

use std::ops::Range;

use super::conv_kernel::{ConvKernel, KernelLanes};
use super::geometry::divide;
use super::layout::{CHANNELS, FeatureMap};
use super::tile_pixels::{Lines, decode, point_words, zero_pixel};
use super::winograd::{
    POINTS, SIDE, TAPS, Tiles, WINDOW, transform_gradient, transform_input, transform_sums,
};
use crate::buffer::Buffer;
use crate::kernel::{
    LeftOperand, OperandWord, STRIP_COLS, Segment, Simd, StripArgs, strip_product,
};
use crate::lanes::Lanes;

/// The most tiles whose terms are computed at a time.
const GRADIENT_TILES: usize = 16;

/// The weight gradient of a thread.
#[derive(Default)]
pub(super) struct WinogradGradient {
    /// Transformed inputs: `[point][channel group][tile][image][32 channels]`, adjacent images paired if a word is a pair.
    left: Buffer,
    /// Transformed gradients of outputs, in the same layout.
    right: Buffer,
    /// Sums: `[point][filter group][channel group][32 channels][32 filters]`.
    sums: Buffer,
}

impl WinogradGradient {
    pub fn clear(&mut self, tiles: &Tiles) {
        let blocks = tiles.from.groups() * tiles.to.groups();
        self.sums.resize(POINTS * blocks * CHANNELS * STRIP_COLS);
        self.sums.fill(0.0);
    }

    /// Adds the terms of some rows of outputs, which start at an even one. `input` has the rows that they read.
    pub fn add<K: ConvKernel>(
        &mut self,
        kernel: K,
        tiles: &Tiles,
        rows: &Range<usize>,
        input: Lines<'_, K::Word>,
        dz: Lines<'_, K::Word>,
        live: usize,
    ) {
        let Tiles { from, to, .. } = *tiles;
        let starts: Vec<[usize; 2]> = rows
            .clone()
            .step_by(SIDE)
            .flat_map(|y| (0..tiles.per_row()).map(move |tile| [y, tile * SIDE]))
            .collect();
        let (session, zeros) = (kernel.session(), zero_pixel::<K>());
        for part in divide(starts.len(), GRADIENT_TILES, 1) {
            let starts = &starts[part];
            // Images in pairs; a missing one is zero.
            let images = live.next_multiple_of(2);
            let rows = starts.len() * images;
            let depth = rows / K::Word::ELEMENTS;
            let shape = (from, starts.len(), images);
            write_operand(
                kernel,
                shape,
                &mut self.left,
                #[inline(always)]
                |group, tile| input.pixels::<K, WINDOW>(group, &tiles.window(starts[tile]), &zeros),
                #[inline(always)]
                |pixels, image| transform_input(decode(kernel, pixels, image)),
            );
            let shape = (to, starts.len(), images);
            write_operand(
                kernel,
                shape,
                &mut self.right,
                #[inline(always)]
                |group, tile| dz.pixels::<K, SIDE>(group, &tiles.outputs(starts[tile]), &zeros),
                #[inline(always)]
                |pixels, image| transform_gradient(decode(kernel, pixels, image)),
            );
            let left = self.left.words().chunks_exact(point_words::<K>(from, rows));
            let right = self.right.words().chunks_exact(point_words::<K>(to, rows));
            let blocks = from.groups() * to.groups() * CHANNELS * STRIP_COLS;
            let sums = self.sums.chunks_exact_mut(blocks);
            for ((left, right), sums) in left.zip(right).zip(sums) {
                let sums = sums.chunks_exact_mut(CHANNELS * STRIP_COLS).enumerate();
                for (index, sums) in sums {
                    let (to_group, from_group) = (index / from.groups(), index % from.groups());
                    let words: &[K::Word] = &left[from_group * depth * CHANNELS..];
                    let args = StripArgs {
                        left: LeftOperand { words, row_stride: 1, depth_stride: CHANNELS },
                        right: &right[to_group * depth * CHANNELS..],
                        right_stride: CHANNELS,
                        segments: &Segment::WHOLE,
                        rows: from.group(from_group).len(),
                        cols: to.group(to_group).len(),
                        depth,
                        out_stride: STRIP_COLS,
                    };
                    strip_product(kernel, &session, &args, sums, true);
                }
            }
        }
    }

    /// Writes the gradient of the weights, packed (see [`packed_gradient_len`](super::weights::packed_gradient_len)).
    pub fn finish<K: ConvKernel>(&self, kernel: K, tiles: &Tiles, gradient: &mut [f32]) {
        let (from_groups, simd) = (tiles.from.groups(), kernel.simd());
        let blocks = from_groups * tiles.to.groups();
        kernel.vectorize(
            #[inline(always)]
            || {
                let sums = self.sums.as_chunks::<STRIP_COLS>().0;
                let gradient = gradient.as_chunks_mut::<STRIP_COLS>().0;
                let half = simd.lanes(&[0.5; CHANNELS]);
                for row in 0..blocks * CHANNELS {
                    let (block, channel) = (row / CHANNELS, row % CHANNELS);
                    let (to, from) = (block / from_groups, block % from_groups);
                    let mut points = [[half; WINDOW]; WINDOW];
                    for (point, lanes) in points.as_flattened_mut().iter_mut().enumerate() {
                        *lanes = simd.lanes(&sums[point * blocks * CHANNELS + row]);
                    }
                    let taps = transform_sums(points, half);
                    for (tap, lanes) in taps.as_flattened().iter().enumerate() {
                        let block = (to * TAPS + tap) * from_groups + from;
                        gradient[block * CHANNELS + channel] = lanes.to_array();
                    }
                }
            },
        );
    }
}

/// Transforms some tiles of a map into an operand, a pair of images at a time. `pixels(group, tile)` has a tile's pixels, and
/// `transform(pixels, image)` its points.
fn write_operand<K: ConvKernel, P>(
    kernel: K,
    (map, tiles, images): (FeatureMap, usize, usize),
    out: &mut Buffer,
    pixels: impl Fn(usize, usize) -> P,
    transform: impl Fn(&P, usize) -> [[KernelLanes<K>; WINDOW]; WINDOW],
) {
    let point_words = point_words::<K>(map, tiles * images);
    out.resize(POINTS * point_words);
    let out = out.words_mut::<K::Word>();
    kernel.vectorize(
        #[inline(always)]
        || {
            for group in 0..map.groups() {
                for tile in 0..tiles {
                    let pixels = pixels(group, tile);
                    for image in (0..images).step_by(2) {
                        let [first, second] =
                            [transform(&pixels, image), transform(&pixels, image + 1)];
                        let row = (group * tiles + tile) * images + image;
                        let points = first.as_flattened().iter().zip(second.as_flattened());
                        for (point, (first, second)) in points.enumerate() {
                            let words = &mut out[point * point_words + row * K::ROW_WORDS..];
                            kernel.encode_depth_pair(*first, *second, words);
                        }
                    }
                }
            }
        },
    );
}
