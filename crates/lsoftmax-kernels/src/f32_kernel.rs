//! Products of f32 words, exact or rounded to bf16, for the paths without bf16 instructions.

use std::marker::PhantomData;

use crate::bf16;
use crate::buffer::Buffer;
use crate::kernel::{Bf16Pair, Kernel, LeftOperand, MicroKernelArgs, Simd};

/// SIMD instructions with a micro-kernel for f32 words.
pub(crate) trait F32MicroKernel: Simd {
    /// See [`Kernel::MR`].
    const MR: usize;
    /// See [`Kernel::NR`].
    const NR: usize;
    /// See [`Kernel::STREAMS`].
    const STREAMS: bool = false;

    /// # Safety
    /// The contract of [`Kernel::micro_kernel`].
    unsafe fn micro_kernel(self, args: MicroKernelArgs<'_, f32>);

    /// Packs the transpose of rows of `depth` words as a right operand.
    fn pack_transposed(self, rows: &[f32], depth: usize, out: &mut [f32]) {
        let panels = rows.chunks(Self::NR * depth).zip(out.chunks_exact_mut(Self::NR * depth));
        for (rows, out) in panels {
            for (d, out) in out.chunks_exact_mut(Self::NR).enumerate() {
                let column = rows[d..].iter().step_by(depth);
                out.iter_mut().zip(column).for_each(|(o, value)| *o = *value);
                out[rows.len() / depth..].fill(0.0);
            }
        }
    }
}

/// How an f32 is converted to a word.
pub(crate) trait F32Encoding: Copy + Send + Sync + 'static {
    /// Whether a word equals the number it encodes.
    const EXACT: bool;

    fn encode(value: f32) -> f32;
}

/// f32, unchanged.
#[derive(Clone, Copy)]
pub(crate) struct ExactF32;

/// f32 rounded to bf16, for bf16 products on a path without bf16 instructions.
#[derive(Clone, Copy)]
pub(crate) struct RoundedToBf16;

impl F32Encoding for ExactF32 {
    const EXACT: bool = true;

    #[inline(always)]
    fn encode(value: f32) -> f32 {
        value
    }
}

impl F32Encoding for RoundedToBf16 {
    const EXACT: bool = false;

    #[inline(always)]
    fn encode(value: f32) -> f32 {
        bf16::round(value)
    }
}

/// The kernel made of a path's f32 micro-kernel and an encoding.
#[derive(Clone, Copy)]
pub(crate) struct F32Kernel<S, E>(S, PhantomData<E>);

impl<S: F32MicroKernel, E: F32Encoding> F32Kernel<S, E> {
    pub(crate) fn new(simd: S) -> Self {
        Self(simd, PhantomData)
    }

    fn encode(self, source: &[f32], out: &mut [f32]) {
        self.vectorize(
            #[inline(always)]
            || encode::<E>(source, out),
        );
    }
}

impl<S: F32MicroKernel, E: F32Encoding> Kernel for F32Kernel<S, E> {
    type Word = f32;
    type Simd = S;
    type Session = ();
    const MR: usize = S::MR;
    const NR: usize = S::NR;
    const STREAMS: bool = S::STREAMS;

    #[inline(always)]
    fn simd(self) -> S {
        self.0
    }

    #[inline(always)]
    fn session(self) {}

    unsafe fn micro_kernel(self, args: MicroKernelArgs<'_, f32>) {
        // SAFETY: the caller upholds the contract.
        unsafe { self.0.micro_kernel(args) }
    }

    fn left_rows<'a>(
        self,
        source: &'a [f32],
        depth: usize,
        scratch: &'a mut Buffer,
    ) -> LeftOperand<'a, f32> {
        let words = if E::EXACT {
            source
        } else {
            scratch.resize(source.len());
            self.encode(source, scratch);
            scratch
        };
        LeftOperand { words, row_stride: depth, depth_stride: 1 }
    }

    fn round_rows(self, source: &[f32], depth: usize, out: &mut [Bf16Pair]) {
        let stride = Self::bf16_stride(depth);
        self.vectorize(
            #[inline(always)]
            || {
                let rows = source.chunks_exact(depth).zip(out.chunks_exact_mut(stride));
                rows.for_each(|(row, out)| round_row(row, out));
            },
        );
    }

    fn left_bf16_rows<'a>(
        self,
        rows: &'a [Bf16Pair],
        depth: usize,
        scratch: &'a mut Buffer,
    ) -> LeftOperand<'a, f32> {
        let stride = Self::bf16_stride(depth);
        scratch.resize(rows.len() / stride * depth);
        self.vectorize(
            #[inline(always)]
            || {
                let rows = rows.chunks_exact(stride).zip(scratch.chunks_exact_mut(depth));
                rows.for_each(|(row, out)| widen_row(row, out));
            },
        );
        LeftOperand { words: scratch, row_stride: depth, depth_stride: 1 }
    }

    fn pack_right_bf16(self, rows: &[Bf16Pair], cols: usize, out: &mut [f32]) {
        let mut wide = Buffer::default();
        let rows = self.left_bf16_rows(rows, cols, &mut wide);
        self.pack_right(rows.words, cols, 0, out);
    }

    fn left_columns(self, source: &[f32], rows: usize, out: &mut [f32]) -> (usize, usize) {
        self.encode(source, out);
        (1, rows)
    }

    fn pack_right(self, source: &[f32], cols: usize, panel: usize, out: &mut [f32]) {
        const { assert!(S::NR == 16 || S::NR == 32, "panels are compiled for these widths") };
        self.vectorize(
            #[inline(always)]
            || match S::NR {
                16 => pack_right::<E, 16>(source, cols, panel, out),
                _ => pack_right::<E, 32>(source, cols, panel, out),
            },
        );
    }

    fn pack_right_transposed(self, source: &[f32], depth: usize, out: &mut [f32]) {
        let mut rounded = Buffer::default();
        let rows = self.left_rows(source, depth, &mut rounded);
        self.0.pack_transposed(rows.words, depth, out);
    }
}

#[inline(always)]
fn encode<E: F32Encoding>(source: &[f32], out: &mut [f32]) {
    for (o, s) in out.iter_mut().zip(source) {
        *o = E::encode(*s);
    }
}

/// See [`Kernel::round_rows`].
#[inline(always)]
fn round_row(row: &[f32], out: &mut [Bf16Pair]) {
    let (pairs, rest) = row.as_chunks::<2>();
    pairs.iter().zip(&mut *out).for_each(|(two, out)| *out = bf16::pair(two[0], two[1]));
    if let (Some(last), Some(out)) = (rest.first(), out.last_mut()) {
        *out = bf16::pair(*last, 0.0);
    }
}

/// The inverse of [`round_row`].
#[inline(always)]
fn widen_row(row: &[Bf16Pair], out: &mut [f32]) {
    let (pairs, rest) = out.as_chunks_mut::<2>();
    pairs.iter_mut().zip(row).for_each(|(out, pair)| *out = bf16::unpair(*pair));
    if let (Some(out), Some(last)) = (rest.first_mut(), row.last()) {
        *out = bf16::unpair(*last)[0];
    }
}

/// See [`Kernel::pack_right`]. Reads the source row by row, in memory order.
#[inline(always)]
fn pack_right<E: F32Encoding, const NR: usize>(
    source: &[f32],
    cols: usize,
    panel: usize,
    out: &mut [f32],
) {
    let depth = source.len() / cols;
    for (d, row) in source.chunks_exact(cols).enumerate() {
        let (whole, rest) = row.as_chunks::<NR>();
        for (index, out) in (panel..).zip(out.chunks_exact_mut(depth * NR)) {
            let (out, _) = out[d * NR..].as_chunks_mut::<NR>();
            if let Some(row) = whole.get(index) {
                // By value, which the compiler vectorises.
                let mut values = *row;
                values.iter_mut().for_each(|value| *value = E::encode(*value));
                out[0] = values;
            } else {
                let (out, padding) = out[0].split_at_mut(rest.len());
                encode::<E>(rest, out);
                padding.fill(0.0);
            }
        }
    }
}
