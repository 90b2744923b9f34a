//! W in bf16, kept between passes.

use std::ops::Range;

use crate::buffer::Buffer;
use crate::engine::Engine;
use crate::kernel::{Bf16Pair, Kernel, LeftOperand};

/// W rounded to bf16, in the layout of one engine's products: 2 bytes per weight (and up to 128 bytes per class
/// of padding for AMX).
///
/// A [`forward`](super::forward()) pass with [`Precision::Bf16Weights`](crate::Precision::Bf16Weights) makes it
/// while it rounds the weights anyway, and [returns it](super::HeadForward::bf16_weights). Its backward pass, and
/// further passes [with it](super::HeadProblem::with_bf16_weights), then read W at half the size and without
/// rounding. The results are the same bits as without it.
#[derive(Debug)]
pub struct Bf16Weights {
    pub(super) engine: Engine,
    pub(super) depth: usize,
    pub(super) stride: usize,
    pub(super) rows: Buffer,
    /// 1/|W_j| of every class, 0 where W_j is zero.
    pub(super) scales: Vec<f32>,
    /// The smallest and the largest |W_j|.
    pub(super) norms: (f32, f32),
}

impl Bf16Weights {
    /// The engine that made it, the only one that can use it.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.rows) + size_of_val(&*self.scales)
    }

    pub(super) fn is_for(&self, engine: Engine, classes: usize, depth: usize) -> bool {
        (self.engine, self.scales.len(), self.depth) == (engine, classes, depth)
    }

    pub(super) fn rows(&self, classes: &Range<usize>) -> &[Bf16Pair] {
        &self.rows.words()[classes.start * self.stride..classes.end * self.stride]
    }
}

/// The weights of a block's classes.
#[derive(Clone, Copy)]
pub(super) enum BlockWeights<'a> {
    F32(&'a [f32]),
    /// As made by [`Kernel::round_rows`].
    Bf16(&'a [Bf16Pair]),
}

impl<'a> BlockWeights<'a> {
    /// As the left operand of the logits.
    pub fn left<K: Kernel>(
        self,
        kernel: K,
        depth: usize,
        scratch: &'a mut Buffer,
    ) -> LeftOperand<'a, K::Word> {
        match self {
            Self::F32(rows) => kernel.left_rows(rows, depth, scratch),
            Self::Bf16(rows) => kernel.left_bf16_rows(rows, depth, scratch),
        }
    }

    /// As the right operand of the features' gradient.
    pub fn pack_right<K: Kernel>(self, kernel: K, depth: usize, out: &mut [K::Word]) {
        match self {
            Self::F32(rows) => kernel.pack_right(rows, depth, 0, out),
            Self::Bf16(rows) => kernel.pack_right_bf16(rows, depth, out),
        }
    }
}
