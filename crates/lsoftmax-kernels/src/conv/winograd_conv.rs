//! A 3x3 convolution, or its gradient with respect to the input, by Winograd's algorithm, on one block of images (see
//! `winograd`).
//!
//! Some tiles at a time, the inputs are transformed, multiplied by the transformed weights, point by point, and the products
//! transformed into outputs. All of that is in the L2 cache.

use std::ops::Range;

use rayon::prelude::*;

use super::conv_kernel::{ConvKernel, KernelLanes};
use super::geometry::{Direction, divide};
use super::layout::{CHANNELS, FeatureMap};
use super::tile_pixels::{LINE, Lines, decode, point_words, zero_pixel};
use super::winograd::{
    KERNEL, POINTS, SIDE, TAPS, Tiles, WINDOW, transform_input, transform_kernel,
    transform_products,
};
use crate::buffer::Buffer;
use crate::kernel::{LeftOperand, STRIP_COLS, Segment, Simd, StripArgs, strip_product};
use crate::lanes::Lanes;

/// Bytes of transformed inputs that are multiplied at a time, if they are of more than one tile.
const INPUT_BYTES: usize = 256 << 10;
/// The most rows, one per tile and image, that are multiplied at a time.
const PRODUCT_ROWS: usize = 64;

/// Working memory of a thread.
#[derive(Default)]
pub(super) struct WinogradScratch {
    /// Transformed inputs: `[point][channel group][tile][image][32 channels]`.
    inputs: Buffer,
    /// `[point][tile][image][32 filters]`.
    products: Buffer,
    /// `[row of the tile][pixel][image][32 filters]`.
    outputs: Buffer,
}

/// A 3x3 convolution, or its gradient with respect to the input, with transformed weights.
pub(super) struct WinogradConv {
    tiles: Tiles,
    /// `[output group][point][input group][depth][32]`.
    right: Buffer,
}

impl WinogradConv {
    pub fn new<K: ConvKernel>(
        kernel: K,
        tiles: Tiles,
        direction: Direction,
        weight: &[f32],
    ) -> Self {
        let mut packed = Self { tiles, right: Buffer::default() };
        let panel = packed.panel_words::<K>();
        packed.right.resize(tiles.to.groups() * panel);
        let panels = packed.right.words_mut::<K::Word>().par_chunks_exact_mut(panel);
        panels.enumerate().for_each(|(group, panel)| {
            kernel.vectorize(
                #[inline(always)]
                || pack_panel(kernel, tiles, direction, weight, group, panel),
            );
        });
        packed
    }

    /// Words of the right operand for one group of output channels.
    fn panel_words<K: ConvKernel>(&self) -> usize {
        POINTS * self.tiles.from.groups() * K::ROW_WORDS * STRIP_COLS
    }

    /// Computes some rows, which start at an even one, as [`correlate`](super::product::correlate) does.
    pub fn correlate<K: ConvKernel>(
        &self,
        kernel: K,
        rows: &Range<usize>,
        from: &[K::Word],
        live: usize,
        scratch: &mut WinogradScratch,
        mut store: impl FnMut(usize, usize, &mut [f32]),
    ) {
        let Tiles { from: input, to, .. } = self.tiles;
        debug_assert!(rows.start.is_multiple_of(SIDE));
        let lines = Lines::whole(input, from);
        let tile_bytes = POINTS * input.groups() * live * K::ROW_WORDS * size_of::<K::Word>();
        let most = (INPUT_BYTES / tile_bytes).clamp(1, (PRODUCT_ROWS / live).max(1));
        let session = kernel.session();
        for y in rows.clone().step_by(SIDE) {
            for tiles in divide(self.tiles.per_row(), most, 1) {
                let run = TileRun { y, tiles, live };
                self.transform_inputs(kernel, lines, &run, &mut scratch.inputs);
                for group in 0..to.groups() {
                    self.multiply(kernel, &session, group, &run, scratch);
                    self.transform_products(kernel, &run, scratch);
                    let pixels = run.pixels(to);
                    let row_len = SIDE * run.tiles.len() * live * CHANNELS;
                    let outputs = scratch.outputs.chunks_exact_mut(row_len);
                    for (y, outputs) in (y..to.height).zip(outputs) {
                        let sums = &mut outputs[..pixels.len() * live * CHANNELS];
                        store(group, y * to.width + pixels.start, sums);
                    }
                }
            }
        }
    }

    fn transform_inputs<K: ConvKernel>(
        &self,
        kernel: K,
        lines: Lines<'_, K::Word>,
        run: &TileRun,
        inputs: &mut Buffer,
    ) {
        let rows = run.rows();
        let point_words = point_words::<K>(self.tiles.from, rows);
        inputs.resize(POINTS * point_words);
        let inputs = inputs.words_mut::<K::Word>();
        let zeros = zero_pixel::<K>();
        kernel.vectorize(
            #[inline(always)]
            || {
                for (index, tile) in run.tiles.clone().enumerate() {
                    let window = self.tiles.window([run.y, tile * SIDE]);
                    for group in 0..self.tiles.from.groups() {
                        let pixels = lines.pixels::<K, WINDOW>(group, &window, &zeros);
                        for image in 0..run.live {
                            let points = transform_input(decode(kernel, &pixels, image));
                            let row = group * rows + index * run.live + image;
                            for (point, lanes) in points.as_flattened().iter().enumerate() {
                                let start = point * point_words + row * K::ROW_WORDS;
                                kernel.encode_lanes(*lanes, &mut inputs[start..]);
                            }
                        }
                    }
                }
            },
        );
    }

    /// The products of all points for one group of output channels.
    fn multiply<K: ConvKernel>(
        &self,
        kernel: K,
        session: &K::Session,
        group: usize,
        run: &TileRun,
        scratch: &mut WinogradScratch,
    ) {
        let (input, rows) = (self.tiles.from, run.rows());
        let point_words = point_words::<K>(input, rows);
        let cols = self.tiles.to.group(group).len();
        let segments: Vec<Segment> = (0..input.groups())
            .map(|from| Segment {
                left: from * rows * K::ROW_WORDS,
                right: from * K::ROW_WORDS * STRIP_COLS,
            })
            .collect();
        scratch.products.resize(POINTS * product_len(rows));
        if cols < STRIP_COLS {
            scratch.products.fill(0.0);
        }
        let (right, panel): (&[K::Word], _) = (self.right.words(), self.panel_words::<K>());
        let right = &right[group * panel..][..panel];
        let products = scratch.products.chunks_exact_mut(product_len(rows));
        let operands = scratch.inputs.words().chunks_exact(point_words);
        let operands = operands.zip(right.chunks_exact(panel / POINTS));
        for ((words, right), products) in operands.zip(products) {
            let args = StripArgs {
                left: LeftOperand { words, row_stride: K::ROW_WORDS, depth_stride: 1 },
                right,
                right_stride: STRIP_COLS,
                segments: &segments,
                rows,
                cols,
                depth: K::ROW_WORDS,
                out_stride: STRIP_COLS,
            };
            strip_product(kernel, session, &args, products, false);
        }
    }

    fn transform_products<K: ConvKernel>(
        &self,
        kernel: K,
        run: &TileRun,
        scratch: &mut WinogradScratch,
    ) {
        let rows = run.rows();
        let WinogradScratch { products, outputs, .. } = scratch;
        outputs.resize(SIDE * SIDE * rows * CHANNELS);
        let simd = kernel.simd();
        kernel.vectorize(
            #[inline(always)]
            || {
                let points = product_len(rows) / CHANNELS;
                let products = products.as_chunks::<CHANNELS>().0;
                let outputs = outputs.as_chunks_mut::<CHANNELS>().0;
                for row in 0..rows {
                    let (tile, image) = (row / run.live, row % run.live);
                    let first = simd.lanes(&products[row]);
                    let mut values = [[first; WINDOW]; WINDOW];
                    for (point, value) in values.as_flattened_mut().iter_mut().enumerate() {
                        *value = simd.lanes(&products[point * points + row]);
                    }
                    for (y, values) in transform_products(values).into_iter().enumerate() {
                        for (x, value) in values.into_iter().enumerate() {
                            let pixel = y * SIDE * run.tiles.len() + tile * SIDE + x;
                            outputs[pixel * run.live + image] = value.to_array();
                        }
                    }
                }
            },
        );
    }
}

/// Adjacent tiles of a row of tiles.
struct TileRun {
    /// The row of their first outputs.
    y: usize,
    tiles: Range<usize>,
    live: usize,
}

impl TileRun {
    /// Rows of the products: one per tile and image.
    fn rows(&self) -> usize {
        self.tiles.len() * self.live
    }

    /// The columns of their outputs.
    fn pixels(&self, to: FeatureMap) -> Range<usize> {
        self.tiles.start * SIDE..(self.tiles.end * SIDE).min(to.width)
    }
}

/// Floats of one point's products.
fn product_len(rows: usize) -> usize {
    rows * STRIP_COLS + 2 * LINE
}

/// Packs the transformed weights of one group of output channels.
#[inline(always)]
fn pack_panel<K: ConvKernel>(
    kernel: K,
    tiles: Tiles,
    direction: Direction,
    weight: &[f32],
    group: usize,
    panel: &mut [K::Word],
) {
    let block = panel.len() / (POINTS * tiles.from.groups());
    for from in 0..tiles.from.groups() {
        let channels = tiles.from.group(from);
        for depth in (0..CHANNELS).step_by(2) {
            let mut columns = [[[kernel.ordered(&[0.0; CHANNELS]); WINDOW]; WINDOW]; 2];
            for (channel, columns) in channels.clone().skip(depth).zip(&mut columns) {
                *columns = transform_weights(kernel, tiles, direction, weight, group, channel);
            }
            let [first, second] = &columns;
            let points = first.as_flattened().iter().zip(second.as_flattened());
            for (point, (first, second)) in points.enumerate() {
                let start = (point * tiles.from.groups() + from) * block + depth * K::ROW_WORDS;
                kernel.encode_depth_pair(*first, *second, &mut panel[start..]);
            }
        }
    }
}

/// The transformed weights of one input channel; their lanes are output channels.
#[inline(always)]
fn transform_weights<K: ConvKernel>(
    kernel: K,
    tiles: Tiles,
    direction: Direction,
    weight: &[f32],
    group: usize,
    from: usize,
) -> [[KernelLanes<K>; WINDOW]; WINDOW] {
    let mut taps = [[0.0; CHANNELS]; TAPS];
    for (lane, to) in tiles.to.group(group).enumerate() {
        let (start, flipped) = match direction {
            Direction::Forward => ((to * tiles.from.channels + from) * TAPS, false),
            Direction::Backward => ((from * tiles.to.channels + to) * TAPS, true),
        };
        for (index, value) in weight[start..][..TAPS].iter().enumerate() {
            taps[if flipped { TAPS - 1 - index } else { index }][lane] = *value;
        }
    }
    let half = kernel.ordered(&[0.5; CHANNELS]);
    let mut square = [[half; KERNEL]; KERNEL];
    for (tap, values) in square.as_flattened_mut().iter_mut().zip(&taps) {
        *tap = kernel.ordered(values);
    }
    transform_kernel(square, half)
}
