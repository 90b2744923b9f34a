//! The path that runs everywhere: plain Rust, whatever vectors the compiler finds.

use crate::f32_words::F32Vectors;
use crate::kernel::{TileArgs, Vectors};

const ROWS: usize = 4;
const COLS: usize = 16;

/// Plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

impl Vectors for Portable {
    #[inline(always)]
    fn vectorize<R>(self, f: impl FnOnce() -> R) -> R {
        f()
    }

    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
}

impl F32Vectors for Portable {
    const ROWS: usize = ROWS;
    const COLS: usize = COLS;

    unsafe fn tile(self, args: TileArgs<'_, f32>) {
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
}

/// # Safety
/// The contract of [`F32Vectors::tile`] with `args.rows == R`.
unsafe fn tile<const R: usize>(args: TileArgs<'_, f32>) {
    let mut sum = [[0.0f32; COLS]; R];
    for segment in args.segments {
        for d in 0..args.depth {
            // SAFETY: `right` has COLS readable words at every depth of a segment.
            let right = unsafe { args.right.add(segment.right + d * args.right_step) };
            // SAFETY: as above; words need no more alignment than a float.
            let right: [f32; COLS] = unsafe { right.cast::<[f32; COLS]>().read() };
            for (r, sum) in sum.iter_mut().enumerate() {
                let place = segment.left + r * args.row_step + d * args.depth_step;
                // SAFETY: the caller vouches for every (row, depth) of `left`.
                let left = unsafe { *args.left.add(place) };
                for (s, right) in sum.iter_mut().zip(right) {
                    *s += left * right;
                }
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
