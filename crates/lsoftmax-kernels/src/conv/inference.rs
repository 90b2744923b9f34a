//! The forward pass in inference, with given statistics.

use rayon::prelude::*;

use super::conv_kernel::ConvKernel;
use super::forward::{ForwardScratch, InputSource, UnitForward, unpack_block, unpack_images};
use super::geometry::Direction;
use super::layer::{ConvLayer, PackedConv};
use super::layout::{IMAGES, MapRows, live_images};
use super::output::{ReadyUnit, Saved};
use super::share::BatchShare;
use super::shortcut::KeptRows;
use super::slots::Slots;
use super::stack::{Moments, Parameters, Stack, StackError};
use crate::buffer::Buffer;
use crate::engine::Engine;
use crate::engine::with_kernel;

/// The output of a stack in inference, N x C x H x W, with the given statistics.
///
/// # Errors
/// When the sizes of images, parameters or statistics do not match the stack.
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
    Ok(with_kernel!(engine, |kernel| run_inference(
        kernel, stack, images, count, parameters, moments
    )))
}

fn run_inference<K: ConvKernel>(
    kernel: K,
    stack: &Stack,
    images: &[f32],
    count: usize,
    parameters: &[Parameters<'_>],
    moments: &[Moments],
) -> Buffer {
    let given = parameters.iter().zip(moments).enumerate();
    let units: Vec<ReadyUnit> = given
        .map(|(index, (parameters, moments))| {
            ReadyUnit::new(stack, index, ConvLayer::new::<K>(stack, index), parameters, moments)
        })
        .collect();
    let packed = units.iter().zip(parameters);
    let packed: Vec<PackedConv> = packed
        .map(|(unit, parameters)| {
            PackedConv::new(kernel, &unit.layer, Direction::Forward, parameters)
        })
        .collect();
    let source = |index| InputSource { stack, images, units: &units, index };
    let steps: Vec<UnitForward<'_>> = (0..units.len())
        .map(|index| UnitForward {
            layer: &units[index].layer,
            packed: &packed[index],
            source: source(index),
            bias: parameters[index].bias,
            wants_moments: false,
        })
        .collect();
    let (last, slots) = (source(units.len()), Slots::new(stack));

    // Without statistics no result depends on the division into tasks, so the number of threads may decide.
    let (blocks, threads) = (count.div_ceil(IMAGES), rayon::current_num_threads());
    if blocks.is_multiple_of(threads) || blocks >= 4 * threads {
        return infer_by_block(kernel, &steps, &last, &slots, count);
    }
    let (mut memory, share) = (InferenceMemory::new(&slots), BatchShare::alone(count));
    for step in &steps {
        let (mut z, mut sum) = memory.take(&slots, step);
        let words = |block, saved| memory.block::<K>(&slots, &units, block, saved);
        step.run(kernel, words, (count, &share), &mut z, sum.as_mut().map(|(_, sum)| sum));
        memory.put(&slots, step, z, sum);
    }
    let words = |block, saved| memory.block::<K>(&slots, &units, block, saved);
    unpack_images(kernel, &last, words, count, None)
}

/// The buffers of inference, by [`Slots`].
struct InferenceMemory {
    slots: Vec<Buffer>,
}

impl InferenceMemory {
    fn new(slots: &Slots) -> Self {
        let mut buffers = Vec::new();
        buffers.resize_with(slots.count, Buffer::default);
        Self { slots: buffers }
    }

    /// The buffers that a unit writes: that of its convolution, and that of the sum it stores, if any.
    fn take(&mut self, slots: &Slots, step: &UnitForward<'_>) -> (Buffer, Option<(usize, Buffer)>) {
        let z = slots.of(Saved::Convolution(step.source.index));
        let sum = step.source.first_sum().and_then(|unit| slots.of_sum(unit));
        let z = std::mem::take(&mut self.slots[z]);
        (z, sum.map(|slot| (slot, std::mem::take(&mut self.slots[slot]))))
    }

    /// Puts back what [`InferenceMemory::take`] took.
    fn put(
        &mut self,
        slots: &Slots,
        step: &UnitForward<'_>,
        z: Buffer,
        sum: Option<(usize, Buffer)>,
    ) {
        self.slots[slots.of(Saved::Convolution(step.source.index))] = z;
        if let Some((slot, sum)) = sum {
            self.slots[slot] = sum;
        }
    }

    fn block<K: ConvKernel>(
        &self,
        slots: &Slots,
        units: &[ReadyUnit],
        block: usize,
        saved: Saved,
    ) -> &[K::Word] {
        let (Saved::Convolution(unit) | Saved::Sum(unit)) = saved;
        let words = units[unit].layer.output.words::<K>();
        &self.slots[slots.of(saved)].words()[block * words..][..words]
    }
}

/// A block of images passes through all units before the next one, so that its activations stay in cache.
fn infer_by_block<K: ConvKernel>(
    kernel: K,
    steps: &[UnitForward<'_>],
    last: &InputSource<'_>,
    slots: &Slots,
    count: usize,
) -> Buffer {
    let size: usize = last.stack.output().iter().product();
    let mut output = Buffer::new(count * size);
    let blocks = output.par_chunks_mut(IMAGES * size).enumerate();
    blocks.for_each_init(
        || (ForwardScratch::default(), InferenceMemory::new(slots)),
        |(scratch, memory), (block, output)| {
            let live = live_images(block, count);
            for step in steps {
                let ConvLayer { input, output: map, .. } = *step.layer;
                let (mut z, mut sum) = memory.take(slots, step);
                z.resize(map.words::<K>());
                let kept = sum.as_mut().map(|(_, sum)| {
                    sum.resize(input.words::<K>());
                    KeptRows { rows: 0..input.height, sums: MapRows::whole(input, sum.words_mut()) }
                });
                let mut kept = kept;
                let words = |saved| memory.block::<K>(slots, last.units, 0, saved);
                let read = step.source.output(words);
                let mut out = MapRows::whole(map, z.words_mut());
                let (block, rows) = ((block, live), 0..map.height);
                step.rows(kernel, block, &rows, read.as_ref(), kept.as_mut(), scratch, &mut out);
                memory.put(slots, step, z, sum);
            }
            let words = |saved| memory.block::<K>(slots, last.units, 0, saved);
            let result = last.output(words).expect("the output of a unit");
            unpack_block(kernel, last, &result, live, None, output);
        },
    );
    output
}
