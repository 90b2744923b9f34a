//! The backward pass, from the last unit to the first.
//!
//! A task processes some blocks of images of one unit, or some rows of one block. It goes through the rows
//! in waves: it computes dz from z and the gradient dy of the unit's output, recomputes the unit's input from
//! the previous unit's z, and from the two computes the gradients of weights and input. While the input's
//! gradient and the previous unit's z are in cache, it also computes the sums that the previous unit's batch
//! norm needs. So each stored convolution is read twice, and each gradient between two units is written once
//! and read once.

use std::cmp::Ordering;
use std::ops::Range;

use rayon::prelude::*;

use super::conv_kernel::ConvKernel;
use super::epilogue::{Affine, GradientSums, NormBackward};
use super::forward::{InputSource, StackForward, epilogue, images_of_block, write_rows};
use super::geometry::{Direction, Waves};
use super::layer::{ConvLayer, PackedConv};
use super::layout::{
    CHANNELS, FeatureMap, IMAGES, Im2col, InputTransform, MapRows, add_to_image, live_images,
    pack_images,
};
use super::product::{LineOperands, correlate};
use super::share::BatchShare;
use super::stack::{Parameters, Stack, StackError};
use super::weights::{add_siblings, packed_gradient_len, unpack_weight_gradient};
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

/// The most partial sums of a weight gradient of `len` floats in all ranks, each by one task: a power of two, from
/// 4 to 32.
fn most_parts(len: usize) -> usize {
    let parts_of = |bytes: usize| bytes / (4 * len);
    1 << parts_of(64 << 20).clamp(4, 8).max(parts_of(16 << 20).min(32)).ilog2()
}

fn run_backward<K: ConvKernel>(
    kernel: K,
    inputs: &BackwardInputs<'_>,
    output_gradient: &[f32],
    to: GradientsTo,
) -> StackGradients {
    let BackwardInputs { forward, stack, parameters, .. } = *inputs;
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
        let values = forward.share.total() * layer.output.pixels();
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
            let map = layer.pooled;
            let mut dy = MapRows::whole(map, dy);
            let identity = InputTransform::Identity;
            pack_images(kernel, images, shape, identity, map, 0..map.height, &mut dy);
            let z = block_words::<K>(z, layer.output, block);
            let mut sums = vec![GradientSums::default(); map.groups()];
            let dy = |group, pixel| dy.pixel(group, pixel);
            last.add_sums(kernel, z, dy, 0..map.height, live, &mut sums);
            sums
        })
        .collect();
    (dy, total(found, &inputs.forward.share))
}

/// The sums of all tasks of all ranks.
fn total(tasks: Vec<Vec<GradientSums>>, share: &BatchShare) -> Vec<GradientSums> {
    let tasks = tasks.iter().map(|groups| groups.iter().flat_map(GradientSums::flat).collect());
    let sums = share.reduce(tasks.collect(), |left, right| {
        left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
    });
    sums.chunks_exact(3 * CHANNELS).map(GradientSums::from_flat).collect()
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
    /// A row of the unit's input, before it is packed.
    row: Buffer,
    dz: Buffer,
    operands: LineOperands,
}

/// Some waves of a block, and where its results go.
struct SectionTask<'a, K: ConvKernel> {
    block: usize,
    live: usize,
    /// The waves, by index.
    waves: Range<usize>,
    /// The rows of the input's gradient that these waves complete, if it is wanted.
    dx: Option<MapRows<'a, K>>,
    /// The gradient of the block's images, if it is wanted.
    images: &'a mut [f32],
}

impl UnitBackwardPass<'_> {
    fn run<K: ConvKernel>(
        &self,
        kernel: K,
        dy: &Buffer,
        wanted: WantedInput,
    ) -> (Buffer, InputGradient) {
        let BackwardInputs { stack, count, parameters, forward, .. } = *self.inputs;
        let (layer, share) = (self.layer, &forward.share);
        let blocks = count.div_ceil(IMAGES);
        let waves = layer.waves::<K>(stack.units()[self.index].pool);
        // Pixels of the images get gradients from several rows, so a block of them is one task.
        let sections = match wanted {
            WantedInput::Images => std::iter::once(0..waves.waves.len()).collect(),
            _ => share.sections(waves.waves.len(), waves.rows),
        };
        let packed = (wanted != WantedInput::None)
            .then(|| PackedConv::new(kernel, layer, Direction::Backward, &parameters[self.index]));
        let words = match wanted {
            WantedInput::PreviousUnit => layer.input.words::<K>(),
            _ => 0,
        };
        let mut dx = Buffer::new(blocks * words);
        let size: usize = match wanted {
            WantedInput::Images => stack.input().iter().product(),
            _ => 0,
        };
        let mut images = Buffer::new(count * size);
        images.fill(0.0);
        let tasks = {
            let rows: Vec<_> =
                sections.iter().map(|waves_of| self.input_rows(&waves, waves_of)).collect();
            let mut dx = MapRows::<K>::divided(layer.input, dx.words_mut(), &rows).into_iter();
            let mut images = &mut images[..];
            let tasks = (0..blocks * sections.len()).map(|task| {
                let block = task / sections.len();
                let live = live_images(block, count);
                let images = images.split_off_mut(..live * size).unwrap_or_default();
                let waves = sections[task % sections.len()].clone();
                SectionTask { block, live, waves, dx: dx.next(), images }
            });
            tasks.collect::<Vec<_>>()
        };

        let len = packed_gradient_len(layer.input, layer.output, layer.weight.taps);
        let nodes = share.parts(sections.len(), most_parts(len));
        let mut weight = Buffer::new(nodes.len() * len);
        let mut tasks = tasks.into_iter();
        let parts: Vec<(&mut [f32], Vec<SectionTask<'_, K>>)> = weight
            .chunks_exact_mut(len)
            .zip(&nodes)
            .map(|(weight, node)| (weight, tasks.by_ref().take(node.leaves.len()).collect()))
            .collect();
        let sums: Vec<Vec<Vec<GradientSums>>> = parts
            .into_par_iter()
            .map_init(StackBackwardScratch::default, |scratch, (weight, tasks)| {
                weight.fill(0.0);
                let tasks = tasks.into_iter();
                tasks
                    .map(|task| {
                        self.section(kernel, &waves, packed.as_ref(), dy, task, scratch, weight)
                    })
                    .collect()
            })
            .collect();

        let ids: Vec<u64> = nodes.iter().map(|node| node.id).collect();
        let weight = self.sum_weight(&weight, len, &ids, sections.len());
        let next = match wanted {
            WantedInput::PreviousUnit => {
                InputGradient::PreviousUnit(dx, total(sums.concat(), share))
            }
            WantedInput::Images => InputGradient::Images(images),
            WantedInput::None => InputGradient::None,
        };
        (weight, next)
    }

    /// The weight gradient: the sum of the parts of all ranks, of which this one has the nodes `ids`.
    fn sum_weight(&self, parts: &[f32], len: usize, ids: &[u64], sections: usize) -> Buffer {
        let ConvLayer { input, output, weight, .. } = *self.layer;
        let share = &self.inputs.forward.share;
        if !share.is_divided() {
            return unpack_weight_gradient(parts, len, ids, input, output, weight);
        }
        let nodes = add_siblings(parts, len, ids, share.nodes(sections));
        let sum = share.sum(sections, &nodes, len);
        unpack_weight_gradient(&sum, len, &[1], input, output, weight)
    }

    /// The rows of the input's gradient that some waves complete.
    fn input_rows(&self, waves: &Waves, range: &Range<usize>) -> Range<usize> {
        let axis = &self.layer.axes.vertical;
        let [first, last] = [range.start, range.end - 1].map(|wave| &waves.waves[wave].outputs);
        axis.complete(first.start)..axis.complete(last.end)
    }

    /// Computes a task: adds to `weight`, writes the input's gradient, and returns the previous unit's sums.
    #[allow(clippy::too_many_arguments, reason = "called once")]
    fn section<K: ConvKernel>(
        &self,
        kernel: K,
        waves: &Waves,
        packed: Option<&PackedConv>,
        dy: &Buffer,
        mut task: SectionTask<'_, K>,
        scratch: &mut StackBackwardScratch,
        weight: &mut [f32],
    ) -> Vec<GradientSums> {
        let Self { layer, index, .. } = *self;
        let BackwardInputs { forward, stack, images, .. } = *self.inputs;
        let SectionTask { block, live, .. } = task;
        let StackBackwardScratch { row, dz, operands } = scratch;
        let ConvLayer { axes, input, output, .. } = layer;
        dz.resize(output.words::<K>());
        row.resize(input.words::<K>() / input.height);
        operands.resize::<K>(waves, axes, *input, *output);
        let z_and_dy = (
            block_words::<K>(&forward.convolved[index], *output, block),
            block_words::<K>(dy, layer.pooled, block),
        );
        let epilogue = epilogue(stack, index, layer, self.affine);
        let source = InputSource { stack, images, previous: self.previous, index };
        let previous_z = index.checked_sub(1);
        let previous_z = previous_z
            .map(|previous| source.previous_block::<K>(&forward.convolved[previous], block));

        let mut sums = Vec::new();
        let dx_rows = self.input_rows(waves, &task.waves);
        let mut dx_start = dx_rows.start;
        // The first rows of the input's gradient also read rows of dz before the first wave.
        let first = &waves.waves[task.waves.start].outputs;
        let mut dz_start = match &task.dx {
            Some(_) => first.start.min(axes.vertical.outputs(&dx_rows).start),
            None => first.start,
        };
        let mut lines_read = 0;
        for wave in &waves.waves[task.waves.clone()] {
            let pooled = match epilogue.pool {
                true => dz_start / 2..wave.outputs.end.div_ceil(2),
                false => dz_start..wave.outputs.end,
            };
            let mut map = MapRows::whole(*output, dz.words_mut());
            epilogue.gradient(kernel, z_and_dy, self.norm, pooled, live, &mut map);
            dz_start = wave.outputs.end;

            let lines = axes.vertical.inputs(&wave.outputs);
            for y in lines.start.max(lines_read)..lines.end {
                let from = (block, live, previous_z);
                let (words, slots) = match K::LINES_IN_PLACE {
                    true => (operands.left.words_mut(), waves.slots),
                    false => (row.words_mut(), 1),
                };
                let mut out = MapRows::in_ring(*input, words, slots, y);
                source.read(kernel, layer, from, y..y + 1, &mut out);
                if !K::LINES_IN_PLACE {
                    operands.pack_left(kernel, waves, axes, y, row.words());
                }
            }
            lines_read = lines.end;
            let dz_map = (*output, dz.words());
            operands.add_weight_gradient(kernel, (waves, wave), axes, *input, dz_map, weight);

            if let (Some(dx), Some(packed)) = (&mut task.dx, packed) {
                let rows = dx_start..axes.vertical.complete(wave.outputs.end).max(dx_start);
                dx_start = rows.end;
                let right = packed.right.words();
                correlate(
                    kernel,
                    &packed.strips,
                    &rows,
                    dz.words(),
                    right,
                    live,
                    |group, pixel, rows| {
                        kernel.vectorize(
                            #[inline(always)]
                            || write_rows(kernel, live, group, pixel, rows, dx),
                        );
                    },
                );
                self.add_previous_sums(kernel, previous_z, rows, live, dx, &mut sums);
            }
        }
        if let (None, Some(packed)) = (&task.dx, packed) {
            self.image_gradient(kernel, packed, live, dz.words(), task.images);
        }
        sums
    }

    /// Adds the sums that the previous unit needs, over some rows of its output's gradient.
    fn add_previous_sums<K: ConvKernel>(
        &self,
        kernel: K,
        previous_z: Option<&[K::Word]>,
        rows: Range<usize>,
        live: usize,
        dx: &MapRows<'_, K>,
        sums: &mut Vec<GradientSums>,
    ) {
        let (Some((previous, affine)), Some(z)) = (self.previous, previous_z) else { return };
        sums.resize(affine.len(), GradientSums::default());
        let epilogue = epilogue(self.inputs.stack, self.index - 1, previous, affine);
        epilogue.add_sums(kernel, z, |group, pixel| dx.pixel(group, pixel), rows, live, sums);
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

    /// Adds the gradient of one block of images to `images`.
    fn image_gradient<K: ConvKernel>(
        &self,
        kernel: K,
        packed: &PackedConv,
        live: usize,
        dz: &[K::Word],
        images: &mut [f32],
    ) {
        let map: FeatureMap = self.layer.input;
        let shape = self.inputs.stack.input();
        let right = packed.right.words();
        correlate(
            kernel,
            &packed.strips,
            &(0..map.height),
            dz,
            right,
            live,
            |group, pixel, rows| {
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
            },
        );
    }
}

/// One block of a feature map.
fn block_words<K: ConvKernel>(map_words: &Buffer, map: FeatureMap, block: usize) -> &[K::Word] {
    let words = map.words::<K>();
    &map_words.words()[block * words..][..words]
}
