//! The backward pass, from the last unit to the first.
//!
//! A task processes a few blocks of images of one unit. It computes dz from z and the gradient dy of
//! the unit's output, recomputes the unit's input from the previous unit's z, and from the two computes
//! the gradients of weights and input. While the input's gradient and the previous unit's z are in
//! cache, it also computes the sums that the previous unit's batch norm needs. So each stored
//! convolution is read twice, and each gradient between two units is written once and read once.

use std::cmp::Ordering;

use rayon::prelude::*;

use super::conv_kernel::ConvKernel;
use super::epilogue::{Affine, Epilogue, GradientSums, NormBackward};
use super::forward::{InputSource, StackForward, epilogue, images_of_block, write_rows};
use super::geometry::{Direction, TapOverlap};
use super::layer::{ConvLayer, PackedConv};
use super::layout::{
    CHANNELS, FeatureMap, IMAGES, Im2col, InputTransform, add_to_image, live_images, pack_images,
};
use super::product::{ImageOperands, correlate, weight_gradient};
use super::stack::{Parameters, Stack, StackError};
use super::weights::{packed_gradient_len, unpack_weight_gradient};
use crate::buffer::Buffer;
use crate::engine::with_kernel;

/// The gradients of a stack.
#[derive(Debug)]
pub struct StackGradients {
    /// Of the images, N x C x H x W, if requested.
    pub images: Option<Buffer>,
    /// Of each unit's parameters; empty for units whose gradients were not requested.
    pub units: Vec<UnitGradients>,
}

/// How far back gradients are computed, from the last unit on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradientsTo {
    /// Those of all parameters and of the images.
    Images,
    /// Those of the parameters of this unit and the later ones. The units before it are frozen.
    Unit(usize),
}

impl GradientsTo {
    fn first_unit(self) -> usize {
        match self {
            GradientsTo::Images => 0,
            GradientsTo::Unit(unit) => unit,
        }
    }
}

/// The gradients of a unit's parameters; empty for those that it does not have.
#[derive(Debug, Default)]
pub struct UnitGradients {
    /// Filters x channels x height x width.
    pub weight: Buffer,
    /// One per filter. Zero with batch norm by the statistics of the batch, which cancels any bias.
    pub bias: Vec<f32>,
    /// One per filter.
    pub gamma: Vec<f32>,
    /// One per filter.
    pub beta: Vec<f32>,
    /// One per filter.
    pub slope: Vec<f32>,
}

/// The gradients of the parameters and the images, as far back as `to`.
///
/// `images` and `parameters` must be those of the forward pass.
///
/// # Errors
/// When the size of an argument does not match the stack.
pub fn backward(
    forward: &StackForward,
    stack: &Stack,
    images: &[f32],
    parameters: &[Parameters<'_>],
    output_gradient: &[f32],
    to: GradientsTo,
) -> Result<StackGradients, StackError> {
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
    expect("the forward pass's output", forward.count * size, count * size)?;
    expect("the output's gradient", count * size, output_gradient.len())?;
    let inputs = BackwardInputs { forward, stack, images, parameters, count };
    Ok(with_kernel!(forward.engine, |kernel| run_backward(kernel, &inputs, output_gradient, to)))
}

/// The inputs of the backward pass.
struct BackwardInputs<'a> {
    forward: &'a StackForward,
    stack: &'a Stack,
    images: &'a [f32],
    parameters: &'a [Parameters<'a>],
    count: usize,
}

/// The most partial sums of a weight gradient, each over a few blocks of images.
const MAX_PARTS: usize = 8;
/// The most bytes of these partial sums, if there are more than two.
const MAX_PARTS_BYTES: usize = 64 << 20;

fn run_backward<K: ConvKernel>(
    kernel: K,
    inputs: &BackwardInputs<'_>,
    output_gradient: &[f32],
    to: GradientsTo,
) -> StackGradients {
    let BackwardInputs { forward, stack, parameters, count, .. } = *inputs;
    let units = stack.units();
    let ready: Vec<(ConvLayer, Vec<Affine>)> = (0..units.len())
        .map(|index| {
            let (given, moments) = (&parameters[index], &forward.moments[index]);
            (ConvLayer::new(stack, index), Affine::new(units[index].filters, given, moments))
        })
        .collect();
    let mut gradients: Vec<UnitGradients> = Vec::new();
    gradients.resize_with(units.len(), UnitGradients::default);
    let mut images = None;
    let (mut dy, mut sums) =
        pack_output_gradient(kernel, inputs, &ready[units.len() - 1], output_gradient);
    for index in (to.first_unit()..units.len()).rev() {
        let (layer, affine) = &ready[index];
        let values = count * layer.output.pixels();
        let norm: Vec<_> = affine
            .iter()
            .zip(&sums)
            .map(|(affine, sums)| match units[index].norm && !forward.fixed[index] {
                true => NormBackward::new(affine, sums, values),
                false => NormBackward::NONE,
            })
            .collect();
        let step = UnitBackwardPass {
            inputs,
            index,
            layer,
            affine,
            norm: &norm,
            previous: index.checked_sub(1).map(|i| &ready[i]),
        };
        let wanted = match index.cmp(&to.first_unit()) {
            Ordering::Greater => WantedInput::PreviousUnit,
            _ if to == GradientsTo::Images => WantedInput::Images,
            _ => WantedInput::None,
        };
        let (weight, next) = step.run(kernel, &dy, wanted);
        gradients[index] = step.parameter_gradients(weight, &sums);
        match next {
            InputGradient::PreviousUnit(gradient, found) => (dy, sums) = (gradient, found),
            InputGradient::Images(gradient) => images = Some(gradient),
            InputGradient::None => {}
        }
    }
    StackGradients { images, units: gradients }
}

/// The gradient of the stack's output, in the blocked layout, and the last unit's sums.
fn pack_output_gradient<K: ConvKernel>(
    kernel: K,
    inputs: &BackwardInputs<'_>,
    (layer, affine): &(ConvLayer, Vec<Affine>),
    gradient: &[f32],
) -> (Buffer, Vec<GradientSums>) {
    let index = inputs.stack.units().len() - 1;
    let last = epilogue(inputs.stack, index, layer, affine);
    let z = &inputs.forward.convolved[index];
    let words = layer.pooled.words::<K>();
    let mut dy = Buffer::new(inputs.count.div_ceil(IMAGES) * words);
    let blocks = dy.words_mut::<K::Word>().par_chunks_exact_mut(words).enumerate();
    let found: Vec<_> = blocks
        .map(|(block, dy)| {
            let live = live_images(block, inputs.count);
            let shape = inputs.stack.output();
            let images = images_of_block(gradient, shape, block, live);
            pack_images(kernel, images, shape, InputTransform::Identity, layer.pooled, dy);
            block_sums(kernel, last, z, block, live, dy)
        })
        .collect();
    (dy, total(&found))
}

/// The sums of one unit over one block of images.
fn block_sums<K: ConvKernel>(
    kernel: K,
    epilogue: Epilogue<'_>,
    z: &Buffer,
    block: usize,
    live: usize,
    dy: &[K::Word],
) -> Vec<GradientSums> {
    let words = epilogue.map.words::<K>();
    let mut sums = vec![GradientSums::default(); epilogue.map.groups()];
    epilogue.sums(kernel, &z.words()[block * words..][..words], dy, live, &mut sums);
    sums
}

/// The sums of all blocks, added in order.
fn total(blocks: &[Vec<GradientSums>]) -> Vec<GradientSums> {
    let mut total = vec![GradientSums::default(); blocks[0].len()];
    for block in blocks {
        total.iter_mut().zip(block).for_each(|(total, sums)| total.add(sums));
    }
    total
}

/// Which gradient of its input a unit computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WantedInput {
    PreviousUnit,
    Images,
    None,
}

/// The gradient of a unit's input.
enum InputGradient {
    /// The gradient of the previous unit's output, and that unit's sums.
    PreviousUnit(Buffer, Vec<GradientSums>),
    Images(Buffer),
    None,
}

/// The backward pass of one unit.
struct UnitBackwardPass<'a> {
    inputs: &'a BackwardInputs<'a>,
    index: usize,
    layer: &'a ConvLayer,
    affine: &'a [Affine],
    norm: &'a [NormBackward],
    previous: Option<&'a (ConvLayer, Vec<Affine>)>,
}

/// Working memory of a thread.
#[derive(Default)]
struct StackBackwardScratch {
    input: Buffer,
    dz: Buffer,
    operands: ImageOperands,
    sums: Buffer,
}

impl UnitBackwardPass<'_> {
    fn run<K: ConvKernel>(
        &self,
        kernel: K,
        dy: &Buffer,
        wanted: WantedInput,
    ) -> (Buffer, InputGradient) {
        let BackwardInputs { stack, count, parameters, .. } = *self.inputs;
        let layer = self.layer;
        let blocks = count.div_ceil(IMAGES);
        let overlaps = layer.tap_overlaps::<K>();
        let len = packed_gradient_len(layer.input, layer.output, layer.weight.taps);
        // The division into parts depends only on the sizes.
        let parts = (MAX_PARTS_BYTES / (4 * len)).clamp(2, MAX_PARTS).min(blocks);
        let part_blocks = blocks.div_ceil(parts);
        let parts = blocks.div_ceil(part_blocks);
        let mut weight = Buffer::new(parts * len);

        let packed = (wanted != WantedInput::None).then(|| {
            PackedConv::new(kernel, layer, Direction::Backward, count, &parameters[self.index])
        });
        let to_previous = wanted == WantedInput::PreviousUnit;
        let words = if to_previous { layer.input.words::<K>() } else { 0 };
        let mut dx = Buffer::new(blocks * words);
        let to_images = wanted == WantedInput::Images;
        let size: usize = if to_images { stack.input().iter().product() } else { 0 };
        let mut images = Buffer::new(count * size);
        images.fill(0.0);

        let sums: Vec<Vec<Vec<GradientSums>>> = {
            let dx = split(dx.words_mut::<K::Word>(), part_blocks * words, parts);
            let images = split(&mut images, part_blocks * IMAGES * size, parts);
            let tasks: Vec<_> =
                weight.chunks_exact_mut(len).zip(dx).zip(images).enumerate().collect();
            tasks
                .into_par_iter()
                .map_init(
                    StackBackwardScratch::default,
                    |scratch, (part, ((weight, dx), images))| {
                        weight.fill(0.0);
                        let dx = split(dx, words, part_blocks);
                        let images = split(images, IMAGES * size, part_blocks);
                        let own = (part * part_blocks..blocks).zip(dx).zip(images);
                        own.map(|((block, dx), images)| {
                            let live = live_images(block, count);
                            self.weight_gradient(
                                kernel, &overlaps, dy, block, live, scratch, weight,
                            );
                            match &packed {
                                Some(packed) if to_images => {
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
                    },
                )
                .collect()
        };
        let shape = layer.weight;
        let weight = unpack_weight_gradient(&weight, len, layer.input, layer.output, shape);
        let next = match wanted {
            WantedInput::PreviousUnit => InputGradient::PreviousUnit(dx, total(&sums.concat())),
            WantedInput::Images => InputGradient::Images(images),
            WantedInput::None => InputGradient::None,
        };
        (weight, next)
    }

    fn parameter_gradients(&self, weight: Buffer, sums: &[GradientSums]) -> UnitGradients {
        let unit = self.inputs.stack.units()[self.index];
        let per_filter = |wanted: bool, value: &dyn Fn(usize, usize) -> f64| -> Vec<f32> {
            let filters = if wanted { unit.filters } else { 0 };
            (0..filters).map(|f| value(f / CHANNELS, f % CHANNELS) as f32).collect()
        };
        // The statistics of the batch cancel any bias.
        let cancelled = unit.norm && !self.inputs.forward.fixed[self.index];
        let bias = |group: usize, c: usize| match cancelled {
            true => 0.0,
            false => f64::from(self.affine[group].scale[c]) * sums[group].du[c],
        };
        UnitGradients {
            weight,
            bias: per_filter(unit.bias, &bias),
            gamma: per_filter(unit.norm, &|group, c| sums[group].du_hat[c]),
            beta: per_filter(unit.norm, &|group, c| sums[group].du[c]),
            slope: per_filter(unit.prelu, &|group, c| sums[group].dy_u[c]),
        }
    }

    /// Adds the weight gradient of one block to `weight`, and leaves dz in `scratch`.
    #[allow(clippy::too_many_arguments, reason = "called once")]
    fn weight_gradient<K: ConvKernel>(
        &self,
        kernel: K,
        overlaps: &[Vec<TapOverlap>],
        dy: &Buffer,
        block: usize,
        live: usize,
        scratch: &mut StackBackwardScratch,
        weight: &mut [f32],
    ) {
        let Self { layer, index, .. } = *self;
        let BackwardInputs { forward, stack, images, .. } = *self.inputs;
        let (z_words, dy_words) = (layer.output.words::<K>(), layer.pooled.words::<K>());
        let z = &forward.convolved[index].words()[block * z_words..][..z_words];
        let dy = &dy.words()[block * dy_words..][..dy_words];
        scratch.dz.resize(z_words);
        let epilogue = epilogue(stack, index, layer, self.affine);
        epilogue.gradient(kernel, z, dy, self.norm, live, scratch.dz.words_mut());

        scratch.input.resize(layer.input.words::<K>());
        let previous_z = index.checked_sub(1).map(|previous| &forward.convolved[previous]);
        let source = InputSource { stack, images, previous: self.previous, index };
        source.read(kernel, layer, previous_z, block, live, scratch.input.words_mut());
        let x = (layer.input, scratch.input.words());
        let dz = (layer.output, scratch.dz.words());
        weight_gradient(kernel, overlaps, x, dz, &mut scratch.operands, weight);
    }

    /// Writes the gradient of the unit's input to `dx`, and returns the previous unit's sums.
    fn input_gradient<K: ConvKernel>(
        &self,
        kernel: K,
        packed: &PackedConv,
        block: usize,
        live: usize,
        scratch: &mut StackBackwardScratch,
        dx: &mut [K::Word],
    ) -> Vec<GradientSums> {
        let map = self.layer.input;
        let (strips, dz) = (packed.strips(live), scratch.dz.words());
        let right = packed.right.words();
        correlate(kernel, strips, dz, right, live, &mut scratch.sums, |group, pixel, rows| {
            kernel.vectorize(
                #[inline(always)]
                || write_rows(kernel, map, live, group, pixel, rows, dx),
            );
        });
        let (previous, affine) =
            self.previous.expect("every unit but the first has a previous unit");
        let epilogue = epilogue(self.inputs.stack, self.index - 1, previous, affine);
        block_sums(
            kernel,
            epilogue,
            &self.inputs.forward.convolved[self.index - 1],
            block,
            live,
            dx,
        )
    }

    /// Adds the gradient of one block of images to `images`.
    fn image_gradient<K: ConvKernel>(
        &self,
        kernel: K,
        packed: &PackedConv,
        live: usize,
        scratch: &mut StackBackwardScratch,
        images: &mut [f32],
    ) {
        let map: FeatureMap = self.layer.input;
        let shape = self.inputs.stack.input();
        let (strips, dz) = (packed.strips(live), scratch.dz.words());
        let right = packed.right.words();
        correlate(kernel, strips, dz, right, live, &mut scratch.sums, |group, pixel, rows| {
            for (row, values) in rows.as_chunks::<CHANNELS>().0.iter().enumerate() {
                let (pixel, image) = (pixel + row / live, row % live);
                match self.layer.transform {
                    Some(InputTransform::Im2col { kernel: window, padding, stride }) => {
                        let im2col = Im2col { shape, window, padding, stride };
                        im2col.add_to_image(values, map, group, pixel, image, images);
                    }
                    _ => add_to_image(values, map, group, pixel, image, images),
                }
            }
        });
    }
}

/// Splits a slice into `parts` slices of `len` numbers; the last ones may be shorter or empty.
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
