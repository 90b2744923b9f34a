//! f32 words, exact or rounded to bf16: what the paths without bf16 instructions share.

use crate::bf16;
use crate::buffer::Buffer;
use crate::kernel::{Kernel, Left};

/// How an f32 becomes a word.
pub(crate) trait F32Words: Copy + Default + Send + Sync + 'static {
    fn word(value: f32) -> f32;

    /// See [`Kernel::left_rows`].
    fn left_rows<'a>(
        kernel: impl Kernel<Word = f32>,
        source: &'a [f32],
        depth: usize,
        scratch: &'a mut Buffer,
    ) -> Left<'a, f32>;
}

/// f32 as it is.
#[derive(Clone, Copy, Default)]
pub(crate) struct Exact;

/// f32 rounded to bf16: bf16 products on a path without bf16 instructions.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rounded;

impl F32Words for Exact {
    #[inline(always)]
    fn word(value: f32) -> f32 {
        value
    }

    fn left_rows<'a>(
        _: impl Kernel<Word = f32>,
        source: &'a [f32],
        depth: usize,
        _: &'a mut Buffer,
    ) -> Left<'a, f32> {
        Left { words: source, row_step: depth, depth_step: 1 }
    }
}

impl F32Words for Rounded {
    #[inline(always)]
    fn word(value: f32) -> f32 {
        bf16::round(value)
    }

    fn left_rows<'a>(
        kernel: impl Kernel<Word = f32>,
        source: &'a [f32],
        depth: usize,
        scratch: &'a mut Buffer,
    ) -> Left<'a, f32> {
        scratch.resize(source.len());
        kernel.vectorize(
            #[inline(always)]
            || encode::<Self>(source, scratch),
        );
        Left { words: scratch, row_step: depth, depth_step: 1 }
    }
}

#[inline(always)]
fn encode<E: F32Words>(source: &[f32], out: &mut [f32]) {
    for (o, s) in out.iter_mut().zip(source) {
        *o = E::word(*s);
    }
}

/// See [`Kernel::left_columns`]: f32 words need no joining, only a copy.
#[inline(always)]
pub(crate) fn left_columns<E: F32Words>(
    source: &[f32],
    rows: usize,
    out: &mut [f32],
) -> (usize, usize) {
    encode::<E>(source, out);
    (1, rows)
}

/// See [`Kernel::pack_right`].
#[inline(always)]
pub(crate) fn pack_right<E: F32Words, const COLS: usize>(
    source: &[f32],
    cols: usize,
    panel: usize,
    out: &mut [f32],
) {
    let depth = source.len() / cols;
    // The source is read row by row, as it lies in memory.
    for (d, row) in source.chunks_exact(cols).enumerate() {
        for (offset, out) in out.chunks_exact_mut(depth * COLS).enumerate() {
            let start = (panel + offset) * COLS;
            let end = cols.min(start + COLS);
            let (out, padding) = out[d * COLS..][..COLS].split_at_mut(end - start);
            encode::<E>(&row[start..end], out);
            padding.fill(0.0);
        }
    }
}

/// See [`Kernel::pack_right_transposed`].
#[inline(always)]
pub(crate) fn pack_right_transposed<E: F32Words, const COLS: usize>(
    source: &[f32],
    depth: usize,
    out: &mut [f32],
) {
    let panels = source.chunks(COLS * depth).zip(out.chunks_exact_mut(COLS * depth));
    for (rows, out) in panels {
        for (d, out) in out.chunks_exact_mut(COLS).enumerate() {
            let column = rows[d..].iter().step_by(depth);
            let width = rows.len() / depth;
            out.iter_mut().zip(column).for_each(|(o, value)| *o = E::word(*value));
            out[width..].fill(0.0);
        }
    }
}
