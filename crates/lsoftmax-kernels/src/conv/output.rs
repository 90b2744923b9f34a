//! How a unit's output is computed from what the forward pass stores.

use std::ops::Range;

use super::conv_kernel::ConvKernel;
use super::epilogue::{Affine, Epilogue};
use super::layer::ConvLayer;
use super::layout::MapRows;
use super::shortcut::{FreshSum, KeptRows, StoredOutput};
use super::stack::{Moments, Parameters, Stack};
use super::unit::{Activation, Pool, ShortcutOrder};

/// A unit whose convolution and statistics are known.
pub(super) struct ReadyUnit {
    pub layer: ConvLayer,
    /// Batch norm, and the activation unless it follows a sum.
    pub affine: Vec<Affine>,
    /// In a residual unit, the activation after the sum, or nothing.
    after_sum: Option<Vec<Affine>>,
    /// Whether there is an activation after the sum.
    activates_sum: bool,
    max_pool: bool,
}

impl ReadyUnit {
    pub fn new(
        stack: &Stack,
        index: usize,
        layer: ConvLayer,
        parameters: &Parameters<'_>,
        moments: &Moments,
    ) -> Self {
        let unit = stack.units()[index];
        let (before, after) = match unit.shortcut.map(|shortcut| shortcut.order) {
            None => (unit.activation, None),
            Some(ShortcutOrder::AfterActivation) => (unit.activation, Some(Activation::None)),
            Some(ShortcutOrder::BeforeActivation) => (Activation::None, Some(unit.activation)),
        };
        let map = layer.output;
        let activation = |activation| Affine::activation(map, activation, parameters.slope);
        Self {
            layer,
            affine: Affine::new(map, before, parameters, moments),
            after_sum: after.map(activation),
            activates_sum: after.is_some_and(|after| after != Activation::None),
            max_pool: unit.pool == Pool::Max,
        }
    }

    pub fn is_sum(&self) -> bool {
        self.after_sum.is_some()
    }

    /// What follows the convolution; in a residual unit, up to the sum.
    pub fn epilogue(&self) -> Epilogue<'_> {
        let ConvLayer { output: map, pooled, .. } = self.layer;
        Epilogue { affine: &self.affine, pool: self.max_pool, map, pooled }
    }

    /// What follows the sum of a residual unit, or the convolution of another.
    fn last_epilogue(&self) -> Epilogue<'_> {
        let affine = self.after_sum.as_ref().unwrap_or(&self.affine);
        Epilogue { affine, ..self.epilogue() }
    }

    /// The activation after the sum, if there is one.
    pub fn sum_activation(&self) -> Option<&[Affine]> {
        self.after_sum.as_deref().filter(|_| self.activates_sum)
    }

    /// The convolution of a block, and what follows it.
    pub fn own<'a, K: ConvKernel>(&'a self, words: &'a [K::Word]) -> StoredOutput<'a, K> {
        StoredOutput { epilogue: self.epilogue(), words }
    }
}

/// What is stored of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Saved {
    Convolution(usize),
    /// The sum of a residual unit.
    Sum(usize),
}

/// A unit's output, where its sum, if it is a residual unit, has been stored. `words` has what is stored of a
/// block.
pub(super) fn stored_output<'a, K: ConvKernel>(
    units: &'a [ReadyUnit],
    index: usize,
    words: impl Fn(Saved) -> &'a [K::Word],
) -> StoredOutput<'a, K> {
    let unit = &units[index];
    let saved = if unit.is_sum() { Saved::Sum(index) } else { Saved::Convolution(index) };
    StoredOutput { epilogue: unit.last_epilogue(), words: words(saved) }
}

/// A unit's output, for one block of images.
pub(super) enum BlockOutput<'a, K: ConvKernel> {
    Stored(StoredOutput<'a, K>),
    Fresh(FreshSum<'a, K>),
}

impl<'a, K: ConvKernel> BlockOutput<'a, K> {
    /// The output of unit `index`, whose sum is stored unless it is read for the first time.
    pub fn new(
        stack: &Stack,
        units: &'a [ReadyUnit],
        index: usize,
        first: bool,
        words: impl Fn(Saved) -> &'a [K::Word],
    ) -> Self {
        match stack.addend(index).filter(|_| first) {
            Some(addend) => Self::Fresh(FreshSum {
                own: units[index].own(words(Saved::Convolution(index))),
                addend: stored_output(units, addend, words),
                epilogue: units[index].last_epilogue(),
            }),
            None => Self::Stored(stored_output(units, index, words)),
        }
    }

    /// Calls `visit(group, pixel, row, a)` for every row of words of some rows of pixels.
    #[inline(always)]
    pub fn outputs(
        &self,
        kernel: K,
        rows: Range<usize>,
        live: usize,
        kept: Option<&mut KeptRows<'_, K>>,
        visit: impl FnMut(usize, usize, usize, super::conv_kernel::KernelLanes<K>),
    ) {
        match self {
            Self::Stored(stored) => {
                stored.epilogue.outputs(kernel, stored.words, rows, live, visit)
            }
            Self::Fresh(sum) => sum.outputs(kernel, rows, live, kept, visit),
        }
    }

    /// Writes some rows as the input of another unit, with zeros for missing images.
    pub fn write(
        &self,
        kernel: K,
        rows: Range<usize>,
        live: usize,
        kept: Option<&mut KeptRows<'_, K>>,
        out: &mut MapRows<'_, K>,
    ) {
        let width = match self {
            Self::Stored(stored) => stored.epilogue.pooled.width,
            Self::Fresh(sum) => sum.epilogue.pooled.width,
        };
        kernel.vectorize(
            #[inline(always)]
            || {
                self.outputs(
                    kernel,
                    rows.clone(),
                    live,
                    kept,
                    #[inline(always)]
                    |group, pixel, row, a| {
                        let out = &mut out.pixels_mut(group, pixel)[row * K::ROW_WORDS..];
                        kernel.encode_lanes(a, out);
                    },
                );
                out.zero_padding_images(rows.start * width..rows.end * width, live);
            },
        );
    }
}
