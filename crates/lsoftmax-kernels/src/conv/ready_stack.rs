//! What the backward pass reads: its arguments, and the units as the forward pass has left them.

use super::conv_kernel::ConvKernel;
use super::epilogue::GradientSums;
use super::forward::{StackForward, saved_block};
use super::layer::ConvLayer;
use super::layout::{CHANNELS, FeatureMap};
use super::output::{ReadyUnit, Saved, stored_output};
use super::share::BatchShare;
use super::shortcut::{StoredOutput, UnitWords, Upstream};
use super::stack::{Parameters, Stack};
use crate::buffer::Buffer;

/// The inputs of the backward pass.
pub(super) struct BackwardInputs<'a> {
    pub forward: &'a StackForward,
    pub stack: &'a Stack,
    pub images: &'a [f32],
    pub parameters: &'a [Parameters<'a>],
    pub count: usize,
}

/// The inputs, and the units as they were in the forward pass.
pub(super) struct ReadyStack<'a> {
    pub inputs: &'a BackwardInputs<'a>,
    pub units: Vec<ReadyUnit>,
}

impl<'a> ReadyStack<'a> {
    pub fn new<K: ConvKernel>(inputs: &'a BackwardInputs<'a>) -> Self {
        let BackwardInputs { forward, stack, parameters, .. } = *inputs;
        let unit = |index| {
            let layer = ConvLayer::new::<K>(stack, index);
            ReadyUnit::new(stack, index, layer, &parameters[index], &forward.moments[index])
        };
        Self { inputs, units: (0..stack.units().len()).map(unit).collect() }
    }

    /// One block of what the forward pass has stored.
    pub fn block<K: ConvKernel>(&self, block: usize, saved: Saved) -> &[K::Word] {
        let StackForward { convolved, sums, .. } = self.inputs.forward;
        saved_block::<K>(convolved, sums, &self.units, block, saved)
    }

    pub fn convolved<K: ConvKernel>(&self, unit: usize, block: usize) -> StoredOutput<'_, K> {
        self.units[unit].own(self.block::<K>(block, Saved::Convolution(unit)))
    }

    /// The unit that is added to a unit's sum and has no other use.
    pub fn projection(&self, unit: usize) -> Option<usize> {
        let stack = self.inputs.stack;
        stack.addend(unit).filter(|addend| stack.uses(*addend).readers.is_empty())
    }

    /// What the sums of a unit are computed from.
    pub fn words<K: ConvKernel>(&self, unit: usize, block: usize) -> UnitWords<'_, K> {
        let activation = self.units[unit].sum_activation();
        UnitWords {
            own: self.convolved(unit, block),
            sum: activation
                .map(|_| stored_output(&self.units, unit, |saved| self.block::<K>(block, saved))),
            projection: self.projection(unit).map(|projection| self.convolved(projection, block)),
        }
    }

    /// The gradient of a unit's output, `dy`, or of its sum if it is a residual unit.
    pub fn upstream<'w, K: ConvKernel>(
        &'w self,
        unit: usize,
        dy: &'w Buffer,
        block: usize,
    ) -> Upstream<'w, K> {
        let ready = &self.units[unit];
        let sum = |affine| (affine, self.block::<K>(block, Saved::Sum(unit)));
        let map = ready.layer.pooled;
        let words = map.words::<K>();
        let dy = &dy.words()[block * words..][..words];
        Upstream { dy, map, sum: ready.sum_activation().map(sum) }
    }

    /// The last unit to be computed that reads the gradient of a unit's output.
    pub fn last_use(&self, unit: usize) -> usize {
        let stack = self.inputs.stack;
        match stack.addend(unit) {
            Some(addend) => *stack.uses(addend).readers.first().unwrap_or(&addend),
            None => unit,
        }
    }
}

/// The sums of all tasks of all ranks, over the pixels of a map.
pub(super) fn total(
    tasks: Vec<Vec<GradientSums>>,
    map: FeatureMap,
    share: &BatchShare,
) -> Vec<GradientSums> {
    let tasks = tasks.iter().map(|groups| groups.iter().flat_map(GradientSums::flat).collect());
    let sums = share.reduce(tasks.collect(), |left, right| {
        left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
    });
    let mut sums: Vec<_> = sums.chunks_exact(3 * CHANNELS).map(GradientSums::from_flat).collect();
    if map.folded {
        sums.iter_mut().for_each(GradientSums::fold);
    }
    sums
}
