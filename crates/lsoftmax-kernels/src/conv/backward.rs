//! The backward pass, from the last unit to the first.
//!
//! A task takes a few blocks of images of one unit: it finds dz from z and the gradient of the
//! unit's output, finds the unit's input again from the convolution before, and from the two the
//! gradients of weights and input. While that input's gradient and the z that it belongs to are
//! near, it also sums what the batch norm of the unit before will need. So every kept convolution is
//! read twice, and every gradient between two units written once and read once.

use rayon::prelude::*;

use super::forward::{Forward, Source, block_of, finish, write_rows};
use super::geometry::{Direction, Meeting};
use super::layer::{Layer, Packed};
use super::layout::{CHANNELS, Entry, IMAGES, Map, Patches, add_plain, fill, live};
use super::pointwise::{Affine, Finish, Sums, Through};
use super::product::{ImageOperands, correlate, weight_gradient};
use super::stack::{Parameters, Stack, StackError};
use super::weights::{gradient_len, unpack_gradient};
use super::words::Activations;
use crate::buffer::Buffer;
use crate::path::with_kernel;

/// The gradients of a stack.
#[derive(Debug)]
pub struct Gradients {
    /// Of the images, N x C x H x W, if they were wanted.
    pub images: Option<Buffer>,
    /// Of every unit's parameters.
    pub units: Vec<UnitGradients>,
}

/// The gradients of a unit's parameters; empty for those that it does not have.
#[derive(Debug, Default)]
pub struct UnitGradients {
    /// Filters x channels x height x width.
    pub weight: Buffer,
    /// One a filter. Batch norm takes any bias away again, so beside it this is zero.
    pub bias: Vec<f32>,
    /// One a filter.
    pub gamma: Vec<f32>,
    /// One a filter.
    pub beta: Vec<f32>,
    /// One a filter.
    pub slope: Vec<f32>,
}

/// The gradients of everything that `forward` was computed from.
///
/// `images` and `parameters` must be those of the forward pass.
///
/// # Errors
/// When an argument is not of the stack's sizes.
pub fn backward(
    forward: &Forward,
    stack: &Stack,
    images: &[f32],
    parameters: &[Parameters<'_>],
    output_gradient: &[f32],
    want_images: bool,
) -> Result<Gradients, StackError> {
    let count = stack.images(images)?;
    stack.check(parameters)?;
    let [channels, height, width] = stack.output();
    if *stack != forward.stack {
        return Err(StackError::OtherStack);
    }
    let size = channels * height * width;
    let unit = stack.units().len() - 1;
    let expect = |what, expected, found| match found == expected {
        true => Ok(()),
        false => Err(StackError::Length { what, unit, expected, found }),
    };
    expect("the images of the forward pass, as outputs", forward.count * size, count * size)?;
    expect("the output's gradient", count * size, output_gradient.len())?;
    let pass = Pass { forward, stack, images, parameters, count };
    Ok(with_kernel!(forward.engine, pass_back(&pass, output_gradient, want_images)))
}

/// What the backward pass is computed from.
struct Pass<'a> {
    forward: &'a Forward,
    stack: &'a Stack,
    images: &'a [f32],
    parameters: &'a [Parameters<'a>],
    count: usize,
}

/// Bytes of weight gradients in pieces, at most (but for two).
const PIECES_BYTES: usize = 64 << 20;
/// Pieces at most.
const PIECES: usize = 8;

fn pass_back<K: Activations>(
    kernel: K,
    pass: &Pass<'_>,
    output_gradient: &[f32],
    want_images: bool,
) -> Gradients {
    let Pass { forward, stack, parameters, count, .. } = *pass;
    let units = stack.units();
    let ready: Vec<(Layer, Vec<Affine>)> = (0..units.len())
        .map(|index| {
            let (given, moments) = (&parameters[index], &forward.moments[index]);
            (Layer::new(stack, index), Affine::new(units[index].filters, given, moments))
        })
        .collect();
    let mut gradients: Vec<UnitGradients> = Vec::new();
    let mut images = None;
    let (mut dy, mut sums) = enter(kernel, pass, &ready[units.len() - 1], output_gradient);
    for index in (0..units.len()).rev() {
        let (layer, affine) = &ready[index];
        let values = count * layer.output.pixels();
        let through: Vec<_> = affine
            .iter()
            .zip(&sums)
            .map(|(affine, sums)| match units[index].norm {
                true => Through::norm(affine, sums, values),
                false => Through::NONE,
            })
            .collect();
        let step = Step {
            pass,
            index,
            layer,
            affine,
            through: &through,
            before: index.checked_sub(1).map(|i| &ready[i]),
        };
        let (weight, next) = step.run(kernel, &dy, want_images);
        gradients.push(parameter_gradients(stack, index, weight, &sums));
        match next {
            Next::Unit(gradient, found) => (dy, sums) = (gradient, found),
            Next::Images(gradient) => images = gradient,
        }
    }
    gradients.reverse();
    Gradients { images, units: gradients }
}

fn parameter_gradients(
    stack: &Stack,
    index: usize,
    weight: Buffer,
    sums: &[Sums],
) -> UnitGradients {
    let unit = stack.units()[index];
    let per_filter = |wanted: bool, value: &dyn Fn(&Sums, usize) -> f64| -> Vec<f32> {
        let filters = if wanted { unit.filters } else { 0 };
        (0..filters).map(|f| value(&sums[f / CHANNELS], f % CHANNELS) as f32).collect()
    };
    UnitGradients {
        weight,
        bias: per_filter(unit.bias, &|sums, c| if unit.norm { 0.0 } else { sums.du[c] }),
        gamma: per_filter(unit.norm, &|sums, c| sums.du_hat[c]),
        beta: per_filter(unit.norm, &|sums, c| sums.du[c]),
        slope: per_filter(unit.prelu, &|sums, c| sums.dy_u[c]),
    }
}

/// The gradient of the stack's output, in blocks, and the last unit's sums.
fn enter<K: Activations>(
    kernel: K,
    pass: &Pass<'_>,
    (layer, affine): &(Layer, Vec<Affine>),
    gradient: &[f32],
) -> (Buffer, Vec<Sums>) {
    let index = pass.stack.units().len() - 1;
    let last = finish(pass.stack, index, layer, affine);
    let z = &pass.forward.convolved[index];
    let words = layer.pooled.words::<K>();
    let mut dy = Buffer::new(pass.count.div_ceil(IMAGES) * words);
    let blocks = dy.words_mut::<K::Word>().par_chunks_exact_mut(words).enumerate();
    let found: Vec<_> = blocks
        .map(|(block, dy)| {
            let live = live(block, pass.count);
            let shape = pass.stack.output();
            let images = block_of(gradient, shape, block, live);
            fill(kernel, images, shape, Entry::Plain, layer.pooled, dy);
            block_sums(kernel, last, z, block, live, dy)
        })
        .collect();
    (dy, total(&found))
}

fn block_sums<K: Activations>(
    kernel: K,
    finish: Finish<'_>,
    z: &Buffer,
    block: usize,
    live: usize,
    dy: &[K::Word],
) -> Vec<Sums> {
    let words = finish.map.words::<K>();
    let mut sums = vec![Sums::default(); finish.map.groups()];
    finish.sums(kernel, &z.words()[block * words..][..words], dy, live, &mut sums);
    sums
}

/// Sums of all blocks, added in their order.
fn total(blocks: &[Vec<Sums>]) -> Vec<Sums> {
    let mut total = vec![Sums::default(); blocks[0].len()];
    for block in blocks {
        total.iter_mut().zip(block).for_each(|(total, sums)| total.add(sums));
    }
    total
}

/// What a unit hands on.
enum Next {
    /// The gradient of the output of the unit before, and that unit's sums.
    Unit(Buffer, Vec<Sums>),
    /// The gradient of the images, if it was wanted.
    Images(Option<Buffer>),
}

/// The backward pass of one unit.
struct Step<'a> {
    pass: &'a Pass<'a>,
    index: usize,
    layer: &'a Layer,
    affine: &'a [Affine],
    through: &'a [Through],
    before: Option<&'a (Layer, Vec<Affine>)>,
}

/// Working memory of a task.
#[derive(Default)]
struct Scratch {
    input: Buffer,
    dz: Buffer,
    operands: ImageOperands,
    sums: Buffer,
}

impl Step<'_> {
    fn run<K: Activations>(&self, kernel: K, dy: &Buffer, want_images: bool) -> (Buffer, Next) {
        let Pass { stack, count, parameters, .. } = *self.pass;
        let layer = self.layer;
        let blocks = count.div_ceil(IMAGES);
        let meetings = layer.meetings::<K>();
        let len = gradient_len(layer.input, layer.output, layer.weight.taps);
        // So many pieces of so many blocks each: by the sizes alone.
        let pieces = (PIECES_BYTES / (4 * len)).clamp(2, PIECES).min(blocks);
        let piece_blocks = blocks.div_ceil(pieces);
        let pieces = blocks.div_ceil(piece_blocks);
        let mut weight = Buffer::new(pieces * len);

        let first = self.index == 0;
        let packed = (!first || want_images).then(|| {
            Packed::new(kernel, layer, Direction::Backward, count, &parameters[self.index])
        });
        let words = if first { 0 } else { layer.input.words::<K>() };
        let mut dx = Buffer::new(blocks * words);
        let size: usize = if first && want_images { stack.input().iter().product() } else { 0 };
        let mut images = Buffer::new(count * size);
        images.fill(0.0);

        let sums: Vec<Vec<Vec<Sums>>> = {
            let dx = split(dx.words_mut::<K::Word>(), piece_blocks * words, pieces);
            let images = split(&mut images, piece_blocks * IMAGES * size, pieces);
            let tasks: Vec<_> =
                weight.chunks_exact_mut(len).zip(dx).zip(images).enumerate().collect();
            tasks
                .into_par_iter()
                .map_init(Scratch::default, |scratch, (piece, ((weight, dx), images))| {
                    weight.fill(0.0);
                    let dx = split(dx, words, piece_blocks);
                    let images = split(images, IMAGES * size, piece_blocks);
                    let mine = (piece * piece_blocks..blocks).zip(dx).zip(images);
                    mine.map(|((block, dx), images)| {
                        let live = live(block, count);
                        self.weight_gradient(kernel, &meetings, dy, block, live, scratch, weight);
                        match &packed {
                            Some(packed) if first => {
                                self.image_gradient(kernel, packed, live, scratch, images);
                                Vec::new()
                            }
                            Some(packed) => {
                                self.input_gradient(kernel, packed, block, live, scratch, dx)
                            }
                            None => Vec::new(),
                        }
                    })
                    .collect()
                })
                .collect()
        };
        let shape = layer.weight;
        let weight = unpack_gradient(&weight, len, layer.input, layer.output, shape);
        let next = if first {
            Next::Images(want_images.then_some(images))
        } else {
            Next::Unit(dx, total(&sums.concat()))
        };
        (weight, next)
    }

    /// Leaves dz in the scratch.
    #[allow(clippy::too_many_arguments, reason = "one call")]
    fn weight_gradient<K: Activations>(
        &self,
        kernel: K,
        meetings: &[Vec<Meeting>],
        dy: &Buffer,
        block: usize,
        live: usize,
        scratch: &mut Scratch,
        weight: &mut [f32],
    ) {
        let Self { layer, index, .. } = *self;
        let Pass { forward, stack, images, .. } = *self.pass;
        let (z_words, dy_words) = (layer.output.words::<K>(), layer.pooled.words::<K>());
        let z = &forward.convolved[index].words()[block * z_words..][..z_words];
        let dy = &dy.words()[block * dy_words..][..dy_words];
        scratch.dz.resize(z_words);
        let finish = finish(stack, index, layer, self.affine);
        finish.gradient(kernel, z, dy, self.through, live, scratch.dz.words_mut());

        scratch.input.resize(layer.input.words::<K>());
        let previous = index.checked_sub(1).map(|before| &forward.convolved[before]);
        let source = Source { stack, images, before: self.before, index };
        source.read(kernel, layer, previous, block, live, scratch.input.words_mut());
        let x = (layer.input, scratch.input.words());
        let dz = (layer.output, scratch.dz.words());
        weight_gradient(kernel, meetings, x, dz, &mut scratch.operands, weight);
    }

    /// Writes the gradient of the unit's input; returns the sums of the unit before.
    fn input_gradient<K: Activations>(
        &self,
        kernel: K,
        packed: &Packed,
        block: usize,
        live: usize,
        scratch: &mut Scratch,
        dx: &mut [K::Word],
    ) -> Vec<Sums> {
        let map = self.layer.input;
        let (strips, dz) = (packed.strips(live), scratch.dz.words());
        let right = packed.right.words();
        correlate(kernel, strips, dz, right, live, &mut scratch.sums, |group, pixel, rows| {
            kernel.vectorize(
                #[inline(always)]
                || write_rows(kernel, map, live, group, pixel, rows, dx),
            );
        });
        let (before, affine) = self.before.expect("only the first unit has none before it");
        let finish = finish(self.pass.stack, self.index - 1, before, affine);
        block_sums(kernel, finish, &self.pass.forward.convolved[self.index - 1], block, live, dx)
    }

    /// Adds the gradient of the images.
    fn image_gradient<K: Activations>(
        &self,
        kernel: K,
        packed: &Packed,
        live: usize,
        scratch: &mut Scratch,
        images: &mut [f32],
    ) {
        let map: Map = self.layer.input;
        let shape = self.pass.stack.input();
        let (strips, dz) = (packed.strips(live), scratch.dz.words());
        let right = packed.right.words();
        correlate(kernel, strips, dz, right, live, &mut scratch.sums, |group, pixel, rows| {
            for (row, values) in rows.as_chunks::<CHANNELS>().0.iter().enumerate() {
                let (pixel, image) = (pixel + row / live, row % live);
                match self.layer.entry {
                    Some(Entry::Patches { kernel: window, padding, stride }) => {
                        let patches = Patches { shape, window, padding, stride };
                        patches.add(values, map, group, pixel, image, images);
                    }
                    _ => add_plain(values, map, group, pixel, image, images),
                }
            }
        });
    }
}

/// `parts` slices of `len` numbers, the last ones shorter or empty where there are no more.
fn split<T>(mut slice: &mut [T], len: usize, parts: usize) -> Vec<&mut [T]> {
    (0..parts)
        .map(|_| {
            let len = len.min(slice.len());
            let (part, rest) = std::mem::take(&mut slice).split_at_mut(len);
            slice = rest;
            part
        })
        .collect()
}
