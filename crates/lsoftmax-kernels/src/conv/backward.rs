//! The backward pass, from the last unit to the first.
//!
//! Where several units use an output, its gradient has several terms. The last unit to be computed, which is the
//! first that reads the output, completes it: it adds its own term to those that the other units have
//! written, and the gradient of a sum that the output was added to, which is recomputed from that sum.

use rayon::prelude::*;

use super::conv_kernel::ConvKernel;
use super::epilogue::{GradientSums, NormBackward};
use super::forward::{StackForward, images_of_block};
use super::layout::{
    CHANNELS, FeatureMap, IMAGES, InputTransform, MapRows, live_images, pack_images,
};
use super::output::ReadyUnit;
use super::ready_stack::{BackwardInputs, ReadyStack, total};
use super::stack::{Parameters, Stack, StackError, Uses};
use super::unit::Pool;
use super::unit_backward::{OutputTerms, UnitBackwardPass, UnitGradients, WantedInput};
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

/// The gradients of the outputs, as far as they have been computed and are still needed.
struct OutputGradients {
    /// Complete or, while units that read the output are missing, partial.
    dy: Vec<Option<Buffer>>,
    /// Those of complete gradients (see [`UnitWords::add_sums`]).
    sums: Vec<Vec<GradientSums>>,
}

fn run_backward<K: ConvKernel>(
    kernel: K,
    inputs: &BackwardInputs<'_>,
    output_gradient: &[f32],
    to: GradientsTo,
) -> StackGradients {
    let BackwardInputs { forward, stack, .. } = *inputs;
    let units = stack.units();
    let ready = ReadyStack::new::<K>(inputs);
    let mut gradients: Vec<UnitGradients> = Vec::new();
    gradients.resize_with(units.len(), UnitGradients::default);
    let mut images = None;
    let mut outputs = OutputGradients { dy: Vec::new(), sums: vec![Vec::new(); units.len()] };
    outputs.dy.resize_with(units.len(), || None);
    let last = units.len() - 1;
    let (dy, sums) = pack_output_gradient(kernel, &ready, output_gradient);
    (outputs.dy[last], outputs.sums[last]) = (Some(dy), sums);
    for index in (to.first_unit()..units.len()).rev() {
        let ReadyUnit { layer, affine, .. } = &ready.units[index];
        // The output of a projection is only added, so its gradient is that of the sum.
        let Uses { readers, adder } = stack.uses(index);
        let upstream = adder.filter(|_| readers.is_empty()).unwrap_or(index);
        let sums = match upstream == index {
            true => outputs.sums[index][..affine.len()].to_vec(),
            false => outputs.sums[upstream][affine.len()..].to_vec(),
        };
        let values = forward.share.total() * layer.output.pixels();
        let norm: Vec<_> = affine
            .iter()
            .zip(&sums)
            .map(|(affine, sums)| match units[index].norm && !forward.fixed[index] {
                true => NormBackward::new(affine, sums, values),
                false => NormBackward::NONE,
            })
            .collect();
        let wanted = match stack.source(index) {
            None if to == GradientsTo::Images => WantedInput::Images,
            Some(source) if source >= to.first_unit() => {
                WantedInput::Output(OutputTerms::new(&ready, index, source))
            }
            _ => WantedInput::None,
        };
        let mut input_gradient = match wanted {
            WantedInput::Output(terms) => outputs.dy[terms.unit].take(),
            _ => None,
        };
        let step = UnitBackwardPass {
            ready: &ready,
            index,
            layer,
            norm: &norm,
            upstream,
            dy: &outputs.dy,
            wanted,
            adds: input_gradient.is_some(),
        };
        let (weight, found) = step.run(kernel, &mut input_gradient);
        gradients[index] = step.parameter_gradients(weight, &sums);
        match (wanted, input_gradient) {
            (WantedInput::Output(terms), dy) => {
                outputs.dy[terms.unit] = dy;
                outputs.sums[terms.unit] = found;
            }
            (WantedInput::Images, gradient) => images = gradient,
            (WantedInput::None, _) => {}
        }
        for unit in index..units.len() {
            if ready.last_use(unit) == index {
                outputs.dy[unit] = None;
            }
        }
    }
    StackGradients { images, units: gradients }
}

/// The gradient of the stack's output, in the blocked layout, and the last unit's sums.
fn pack_output_gradient<K: ConvKernel>(
    kernel: K,
    ready: &ReadyStack<'_>,
    gradient: &[f32],
) -> (Buffer, Vec<GradientSums>) {
    let BackwardInputs { stack, count, .. } = *ready.inputs;
    let index = stack.units().len() - 1;
    let map = ready.units[index].layer.pooled;
    let words = map.words::<K>();
    let shape = stack.output();
    let mut dy = Buffer::new(count.div_ceil(IMAGES) * words);
    let blocks = dy.words_mut::<K::Word>().par_chunks_exact_mut(words).enumerate();
    let found: Vec<_> = blocks
        .map(|(block, dy)| {
            let live = live_images(block, count);
            let images = images_of_block(gradient, shape, block, live);
            let mut dy = MapRows::whole(map, dy);
            if stack.units()[index].pool == Pool::Average {
                pack_average_gradient(kernel, images, map, &mut dy);
            } else {
                let identity = InputTransform::Identity;
                pack_images(kernel, images, shape, identity, map, 0..map.height, &mut dy);
            }
            let unit = ready.words::<K>(index, block);
            let mut sums = vec![GradientSums::default(); unit.sums()];
            let dy = |group, pixel| dy.pixel(group, pixel);
            unit.add_sums(kernel, dy, 0..map.height, live, &mut sums);
            sums
        })
        .collect();
    (dy, total(found, map, &ready.inputs.forward.share))
}

/// The gradient of every pixel, given that of the mean of all pixels of each live image and channel.
fn pack_average_gradient<K: ConvKernel>(
    kernel: K,
    gradient: &[f32],
    map: FeatureMap,
    dy: &mut MapRows<'_, K>,
) {
    let live = gradient.len() / map.channels;
    for row in 0..map.rows(live) {
        for group in 0..map.groups() {
            let mut values = [0.0; CHANNELS];
            for (lane, image, channel) in map.places(group, row, live) {
                values[lane] = gradient[image * map.channels + channel] / map.pixels() as f32;
            }
            for pixel in 0..map.pixels() {
                let words = &mut dy.pixels_mut(group, pixel)[row * K::ROW_WORDS..];
                kernel.vectorize(
                    #[inline(always)]
                    || kernel.encode(&values, words),
                );
            }
        }
    }
}
