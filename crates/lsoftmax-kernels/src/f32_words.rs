//! f32 words, exact or rounded to bf16: what the paths without bf16 instructions share.

use std::marker::PhantomData;

use crate::bf16;
use crate::buffer::Buffer;
use crate::kernel::{Kernel, Left, TileArgs, Vectors};

/// Vector instructions with a tile of f32 words.
pub(crate) trait F32Vectors: Vectors {
    /// See [`Kernel::ROWS`].
    const ROWS: usize;
    /// See [`Kernel::COLS`].
    const COLS: usize;

    /// # Safety
    /// The contract of [`Kernel::tile`].
    unsafe fn tile(self, args: TileArgs<'_, f32>);

    /// Packs the transpose of rows of `depth` words as a right operand.
    fn pack_transposed(self, rows: &[f32], depth: usize, out: &mut [f32]) {
        let panels = rows.chunks(Self::COLS * depth).zip(out.chunks_exact_mut(Self::COLS * depth));
        for (rows, out) in panels {
            for (d, out) in out.chunks_exact_mut(Self::COLS).enumerate() {
                let column = rows[d..].iter().step_by(depth);
                out.iter_mut().zip(column).for_each(|(o, value)| *o = *value);
                out[rows.len() / depth..].fill(0.0);
            }
        }
    }
}

/// How an f32 becomes a word.
pub(crate) trait F32Words: Copy + Send + Sync + 'static {
    /// Whether a word is the number itself.
    const EXACT: bool;

    fn word(value: f32) -> f32;
}

/// f32 as it is.
#[derive(Clone, Copy)]
pub(crate) struct Exact;

/// f32 rounded to bf16: bf16 products on a path without bf16 instructions.
#[derive(Clone, Copy)]
pub(crate) struct Rounded;

impl F32Words for Exact {
    const EXACT: bool = true;

    #[inline(always)]
    fn word(value: f32) -> f32 {
        value
    }
}

impl F32Words for Rounded {
    const EXACT: bool = false;

    #[inline(always)]
    fn word(value: f32) -> f32 {
        bf16::round(value)
    }
}

/// Products of f32 words.
#[derive(Clone, Copy)]
pub(crate) struct F32<V, E>(V, PhantomData<E>);

impl<V, E> F32<V, E> {
    pub(crate) fn new(vectors: V) -> Self {
        Self(vectors, PhantomData)
    }
}

impl<V: F32Vectors, E: F32Words> Kernel for F32<V, E> {
    type Word = f32;
    type Vectors = V;
    type Session = ();
    const ROWS: usize = V::ROWS;
    const COLS: usize = V::COLS;

    #[inline(always)]
    fn vectors(self) -> V {
        self.0
    }

    #[inline(always)]
    fn session(self) {}

    unsafe fn tile(self, args: TileArgs<'_, f32>) {
        // SAFETY: the caller's contract, passed on.
        unsafe { self.0.tile(args) }
    }

    fn left_rows<'a>(
        self,
        source: &'a [f32],
        depth: usize,
        scratch: &'a mut Buffer,
    ) -> Left<'a, f32> {
        let words = if E::EXACT {
            source
        } else {
            scratch.resize(source.len());
            self.encode(source, scratch);
            scratch
        };
        Left { words, row_step: depth, depth_step: 1 }
    }

    fn left_columns(self, source: &[f32], rows: usize, out: &mut [f32]) -> (usize, usize) {
        self.encode(source, out);
        (1, rows)
    }

    fn pack_right(self, source: &[f32], cols: usize, panel: usize, out: &mut [f32]) {
        self.vectorize(
            #[inline(always)]
            || pack_right::<E>(source, cols, V::COLS, panel, out),
        );
    }

    fn pack_right_transposed(self, source: &[f32], depth: usize, out: &mut [f32]) {
        let mut rounded = Buffer::default();
        let rows = self.left_rows(source, depth, &mut rounded);
        self.0.pack_transposed(rows.words, depth, out);
    }
}

impl<V: F32Vectors, E: F32Words> F32<V, E> {
    fn encode(self, source: &[f32], out: &mut [f32]) {
        self.vectorize(
            #[inline(always)]
            || encode::<E>(source, out),
        );
    }
}

#[inline(always)]
fn encode<E: F32Words>(source: &[f32], out: &mut [f32]) {
    for (o, s) in out.iter_mut().zip(source) {
        *o = E::word(*s);
    }
}

/// See [`Kernel::pack_right`]. The source is read row by row, as it lies in memory.
#[inline(always)]
fn pack_right<E: F32Words>(
    source: &[f32],
    cols: usize,
    panel_cols: usize,
    panel: usize,
    out: &mut [f32],
) {
    let depth = source.len() / cols;
    for (d, row) in source.chunks_exact(cols).enumerate() {
        for (offset, out) in out.chunks_exact_mut(depth * panel_cols).enumerate() {
            let start = (panel + offset) * panel_cols;
            let end = cols.min(start + panel_cols);
            let (out, padding) = out[d * panel_cols..][..panel_cols].split_at_mut(end - start);
            encode::<E>(&row[start..end], out);
            padding.fill(0.0);
        }
    }
}
