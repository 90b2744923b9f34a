//! The path that runs everywhere: plain Rust, whatever vectors the compiler finds.

use std::marker::PhantomData;

use crate::buffer::Buffer;
use crate::f32_words::{F32Words, left_columns, pack_right, pack_right_transposed};
use crate::kernel::{Kernel, Left, TileArgs};

const ROWS: usize = 4;
const COLS: usize = 16;

/// Plain Rust, on f32 words.
#[derive(Clone, Copy, Default)]
pub(crate) struct Portable<E>(PhantomData<E>);

impl<E: F32Words> Kernel for Portable<E> {
    type Word = f32;
    type Session = ();
    const ROWS: usize = ROWS;
    const COLS: usize = COLS;

    #[inline(always)]
    fn session(self) {}

    #[inline(always)]
    fn vectorize<R>(self, f: impl FnOnce() -> R) -> R {
        f()
    }

    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }

    unsafe fn tile(self, args: TileArgs<f32>) {
        match args.rows {
            // SAFETY: the caller's contract, passed on; the row count is the one matched.
            1 => unsafe { tile::<1>(args) },
            // SAFETY: as above.
            2 => unsafe { tile::<2>(args) },
            // SAFETY: as above.
            3 => unsafe { tile::<3>(args) },
            // SAFETY: as above.
            _ => unsafe { tile::<4>(args) },
        }
    }

    fn left_rows<'a>(
        self,
        source: &'a [f32],
        depth: usize,
        scratch: &'a mut Buffer,
    ) -> Left<'a, f32> {
        E::left_rows(self, source, depth, scratch)
    }

    fn left_columns(self, source: &[f32], rows: usize, out: &mut [f32]) -> (usize, usize) {
        left_columns::<E>(source, rows, out)
    }

    fn pack_right(self, source: &[f32], cols: usize, panel: usize, out: &mut [f32]) {
        pack_right::<E, COLS>(source, cols, panel, out);
    }

    fn pack_right_transposed(self, source: &[f32], depth: usize, out: &mut [f32]) {
        pack_right_transposed::<E, COLS>(source, depth, out);
    }
}

/// # Safety
/// The contract of [`Kernel::tile`] with `args.rows == R`.
unsafe fn tile<const R: usize>(args: TileArgs<f32>) {
    let mut sum = [[0.0f32; COLS]; R];
    for d in 0..args.depth {
        // SAFETY: `right` has `depth · COLS` readable words.
        let right: [f32; COLS] = unsafe { args.right.add(d * COLS).cast::<[f32; COLS]>().read() };
        for (r, sum) in sum.iter_mut().enumerate() {
            // SAFETY: the caller vouches for every (row, depth) of `left`.
            let left = unsafe { *args.left.add(r * args.row_step + d * args.depth_step) };
            for (s, right) in sum.iter_mut().zip(right) {
                *s += left * right;
            }
        }
    }
    for (r, sum) in sum.iter().enumerate() {
        // SAFETY: `out` has `R` writable rows of COLS floats, `out_step` apart.
        let out = unsafe { &mut *args.out.add(r * args.out_step).cast::<[f32; COLS]>() };
        for (o, s) in out.iter_mut().zip(sum) {
            *o = if args.add { *o + s } else { *s };
        }
    }
}
