//! The forward pass: with the batch's own statistics, or with given ones.

use rayon::prelude::*;

use super::geometry::Direction;
use super::layer::{Layer, Packed};
use super::layout::{CHANNELS, IMAGES, Map, fill, live};
use super::moments::BlockMoments;
use super::pointwise::{Affine, Finish, clear_dead};
use super::product::correlate;
use super::stack::{Moments, Parameters, Stack, StackError};
use super::words::Activations;
use crate::buffer::Buffer;
use crate::path::{Engine, with_kernel};

/// A forward pass in training: its output, its statistics, and what backward needs.
#[derive(Debug)]
pub struct Forward {
    /// N x C x H x W. It may be taken away: backward does without.
    pub output: Buffer,
    /// Each unit's statistics over the batch.
    pub moments: Vec<Moments>,
    /// Each unit's convolution, in blocks.
    pub(super) convolved: Vec<Buffer>,
    pub(super) engine: Engine,
    pub(super) stack: Stack,
    /// Images.
    pub(super) count: usize,
}

/// The output of a stack in training, with the statistics of this batch.
///
/// # Errors
/// When images or parameters are not of the stack's sizes.
pub fn forward(
    engine: Engine,
    stack: &Stack,
    images: &[f32],
    parameters: &[Parameters<'_>],
) -> Result<Forward, StackError> {
    let count = stack.images(images)?;
    stack.check(parameters)?;
    Ok(with_kernel!(engine, train(engine, stack, images, count, parameters)))
}

/// The output of a stack with the given statistics, N x C x H x W.
///
/// # Errors
/// When images, parameters or statistics are not of the stack's sizes.
pub fn infer(
    engine: Engine,
    stack: &Stack,
    images: &[f32],
    parameters: &[Parameters<'_>],
    moments: &[Moments],
) -> Result<Buffer, StackError> {
    let count = stack.images(images)?;
    stack.check(parameters)?;
    stack.check_moments(moments)?;
    Ok(with_kernel!(engine, embed(stack, images, count, parameters, moments)))
}

/// Working memory of a task.
#[derive(Default)]
struct Scratch {
    input: Buffer,
    convolved: Buffer,
    sums: Buffer,
}

fn train<K: Activations>(
    kernel: K,
    engine: Engine,
    stack: &Stack,
    images: &[f32],
    count: usize,
    parameters: &[Parameters<'_>],
) -> Forward {
    let mut convolved: Vec<Buffer> = Vec::new();
    let mut moments: Vec<Moments> = Vec::new();
    let mut before: Option<(Layer, Vec<Affine>)> = None;
    for (index, unit) in stack.units().iter().enumerate() {
        let layer = Layer::new(stack, index);
        let packed = Packed::new(kernel, &layer, Direction::Forward, count, &parameters[index]);
        let source = Source { stack, images, before: before.as_ref(), index };
        let words = layer.output.words::<K>();
        let mut z = Buffer::new(count.div_ceil(IMAGES) * words);
        let previous = convolved.last();
        let blocks = z.words_mut::<K::Word>().par_chunks_exact_mut(words).enumerate();
        let sums: Vec<BlockMoments> = blocks
            .map_init(Scratch::default, |scratch, (block, z)| {
                let live = live(block, count);
                scratch.input.resize(layer.input.words::<K>());
                source.read(kernel, &layer, previous, block, live, scratch.input.words_mut());
                let mut found = BlockMoments::new(layer.output.groups());
                let store = |group: usize, pixel: usize, rows: &mut [f32]| {
                    let bias = bias(parameters[index].bias, group);
                    kernel.vectorize(
                        #[inline(always)]
                        || {
                            add_bias(rows, bias);
                            if unit.norm {
                                found.add::<K::Vectors>(group, rows);
                            }
                            write_rows(kernel, layer.output, live, group, pixel, rows, z);
                        },
                    );
                };
                let (strips, input) = (packed.strips(live), scratch.input.words());
                let right = packed.right.words();
                correlate(kernel, strips, input, right, live, &mut scratch.sums, store);
                clear_dead::<K>(z, live);
                found
            })
            .collect();
        let found =
            if unit.norm { BlockMoments::combine(&sums, unit.filters) } else { Moments::default() };
        before = Some((layer, Affine::new(unit.filters, &parameters[index], &found)));
        moments.push(found);
        convolved.push(z);
    }
    let (layer, affine) = before.as_ref().expect("a stack has units");
    let last = finish(stack, stack.units().len() - 1, layer, affine);
    let z = convolved.last().expect("a stack has units");
    let output = to_images(kernel, last, z, count);
    Forward { output, moments, convolved, engine, stack: stack.clone(), count }
}

/// The way of a unit from its convolution to its output.
pub(super) fn finish<'a>(
    stack: &Stack,
    index: usize,
    layer: &Layer,
    affine: &'a [Affine],
) -> Finish<'a> {
    let pool = stack.units()[index].pool;
    Finish { affine, pool, map: layer.output, pooled: layer.pooled }
}

/// Where a unit's input comes from: the images, or the convolution of the unit before.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub stack: &'a Stack,
    pub images: &'a [f32],
    /// The unit before, unless this is the first.
    pub before: Option<&'a (Layer, Vec<Affine>)>,
    pub index: usize,
}

impl Source<'_> {
    /// Writes one block of the unit's input.
    pub fn read<K: Activations>(
        self,
        kernel: K,
        layer: &Layer,
        previous: Option<&Buffer>,
        block: usize,
        live: usize,
        out: &mut [K::Word],
    ) {
        match (self.before, previous) {
            (Some((before, affine)), Some(z)) => {
                let words = before.output.words::<K>();
                let z = &z.words()[block * words..][..words];
                finish(self.stack, self.index - 1, before, affine).write(kernel, z, live, out);
            }
            _ => {
                let images = block_of(self.images, self.stack.input(), block, live);
                let entry = layer.entry.expect("the first unit reads images");
                fill(kernel, images, self.stack.input(), entry, layer.input, out);
            }
        }
    }
}

/// The images of a block.
pub(super) fn block_of(images: &[f32], shape: [usize; 3], block: usize, live: usize) -> &[f32] {
    let size: usize = shape.iter().product();
    &images[block * IMAGES * size..][..live * size]
}

/// The bias of a group's channels.
fn bias(bias: &[f32], group: usize) -> Option<[f32; CHANNELS]> {
    let bias = bias.get(group * CHANNELS..)?;
    (!bias.is_empty()).then(|| std::array::from_fn(|c| bias.get(c).copied().unwrap_or(0.0)))
}

#[inline(always)]
fn add_bias(rows: &mut [f32], bias: Option<[f32; CHANNELS]>) {
    if let Some(bias) = bias {
        for row in rows.as_chunks_mut::<CHANNELS>().0 {
            for (value, bias) in row.iter_mut().zip(bias) {
                *value += bias;
            }
        }
    }
}

/// Writes a strip's rows, `live` to a pixel, into a map.
#[inline(always)]
pub(super) fn write_rows<K: Activations>(
    kernel: K,
    map: Map,
    live: usize,
    group: usize,
    pixel: usize,
    rows: &[f32],
    out: &mut [K::Word],
) {
    let tile = Map::tile_words::<K>();
    let out = &mut out[(group * map.pixels() + pixel) * tile..];
    let pixels = rows.chunks_exact(live * CHANNELS).zip(out.chunks_exact_mut(tile));
    for (rows, tile) in pixels {
        let rows = rows.as_chunks::<CHANNELS>().0;
        for (row, words) in rows.iter().zip(tile.chunks_exact_mut(K::WORDS)) {
            kernel.encode(row, words);
        }
    }
}

/// The output of the last unit, N x C x H x W.
fn to_images<K: Activations>(kernel: K, last: Finish<'_>, z: &Buffer, count: usize) -> Buffer {
    let size = last.pooled.channels * last.pooled.pixels();
    let mut output = Buffer::new(count * size);
    let words = last.map.words::<K>();
    output.par_chunks_mut(IMAGES * size).enumerate().for_each(|(block, output)| {
        let z = &z.words()[block * words..][..words];
        unpack(kernel, last, z, live(block, count), output);
    });
    output
}

fn unpack<K: Activations>(
    kernel: K,
    last: Finish<'_>,
    z: &[K::Word],
    live: usize,
    output: &mut [f32],
) {
    let map = last.pooled;
    let size = map.channels * map.pixels();
    kernel.vectorize(
        #[inline(always)]
        || {
            last.outputs(
                kernel,
                z,
                live,
                #[inline(always)]
                |group, pixel, image, a| {
                    let image = &mut output[image * size..][..size];
                    for (value, channel) in a.iter().zip(map.group(group)) {
                        image[channel * map.pixels() + pixel] = *value;
                    }
                },
            );
        },
    );
}

fn embed<K: Activations>(
    kernel: K,
    stack: &Stack,
    images: &[f32],
    count: usize,
    parameters: &[Parameters<'_>],
    moments: &[Moments],
) -> Buffer {
    let units = stack.units().iter().zip(parameters).zip(moments).enumerate();
    let layers: Vec<_> = units
        .map(|(index, ((unit, parameters), moments))| {
            let layer = Layer::new(stack, index);
            let packed = Packed::new(kernel, &layer, Direction::Forward, count, parameters);
            (packed, (layer, Affine::new(unit.filters, parameters, moments)))
        })
        .collect();
    let size: usize = stack.output().iter().product();
    let mut output = Buffer::new(count * size);
    // A block of images goes through all units before the next one: what is between stays near.
    let blocks = output.par_chunks_mut(IMAGES * size).enumerate();
    blocks.for_each_init(Scratch::default, |scratch, (block, output)| {
        let live = live(block, count);
        for (index, (packed, (layer, _))) in layers.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| &layers[before].1);
            let source = Source { stack, images, before, index };
            scratch.input.resize(layer.input.words::<K>());
            source.read_near(kernel, layer, &scratch.convolved, block, live, &mut scratch.input);
            scratch.convolved.resize(layer.output.words::<K>());
            let z = scratch.convolved.words_mut();
            let store = |group: usize, pixel: usize, rows: &mut [f32]| {
                let bias = bias(parameters[index].bias, group);
                kernel.vectorize(
                    #[inline(always)]
                    || {
                        add_bias(rows, bias);
                        write_rows(kernel, layer.output, live, group, pixel, rows, z);
                    },
                );
            };
            let (strips, input) = (packed.strips(live), scratch.input.words());
            let right = packed.right.words();
            correlate(kernel, strips, input, right, live, &mut scratch.sums, store);
        }
        let index = layers.len() - 1;
        let (layer, affine) = &layers[index].1;
        let last = finish(stack, index, layer, affine);
        unpack(kernel, last, scratch.convolved.words(), live, output);
    });
    output
}

impl Source<'_> {
    /// Writes a unit's input from this block's own convolution of the unit before.
    fn read_near<K: Activations>(
        self,
        kernel: K,
        layer: &Layer,
        previous: &Buffer,
        block: usize,
        live: usize,
        out: &mut Buffer,
    ) {
        match self.before {
            Some((before, affine)) => {
                let last = finish(self.stack, self.index - 1, before, affine);
                last.write(kernel, previous.words(), live, out.words_mut());
            }
            None => self.read(kernel, layer, None, block, live, out.words_mut()),
        }
    }
}
