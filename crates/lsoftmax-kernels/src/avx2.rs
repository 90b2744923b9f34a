//! AVX2 with FMA: f32 words, tiles of 6 rows by 16 columns in twelve of the sixteen registers.

use std::arch::x86_64::*;

use crate::f32_words::F32Vectors;
use crate::kernel::{TileArgs, Vectors};

const ROWS: usize = 6;
const COLS: usize = 16;

/// AVX2 and FMA.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn is_available() -> bool {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
    }

    /// # Safety
    /// The CPU has AVX2 and FMA.
    pub(crate) unsafe fn assume() -> Self {
        Self(())
    }
}

/// Runs `f` compiled for AVX2.
///
/// # Safety
/// The CPU has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
unsafe fn with_avx2<R>(f: impl FnOnce() -> R) -> R {
    f()
}

impl Vectors for Avx2 {
    #[inline(always)]
    fn vectorize<R>(self, f: impl FnOnce() -> R) -> R {
        // SAFETY: `self` is only made where the CPU has these.
        unsafe { with_avx2(f) }
    }

    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

impl F32Vectors for Avx2 {
    const ROWS: usize = ROWS;
    const COLS: usize = COLS;

    unsafe fn tile(self, args: TileArgs<'_, f32>) {
        macro_rules! rows {
            ($n:literal) => {
                // SAFETY: `self` is only made where the CPU has these; the caller's contract is
                // passed on.
                unsafe { tile::<$n>(args) }
            };
        }
        match args.rows {
            1 => rows!(1),
            2 => rows!(2),
            3 => rows!(3),
            4 => rows!(4),
            5 => rows!(5),
            _ => rows!(6),
        }
    }
}

/// # Safety
/// The contract of [`F32Vectors::tile`] with `args.rows == R`, on a CPU with AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
unsafe fn tile<const R: usize>(args: TileArgs<'_, f32>) {
    let mut sum = [[_mm256_setzero_ps(); 2]; R];
    for segment in args.segments {
        let mut left = args.left.wrapping_add(segment.left);
        let mut right = args.right.wrapping_add(segment.right);
        for _ in 0..args.depth {
            // SAFETY: the caller vouches for COLS words of right at every depth and for every
            // (row, depth) of left; the pointers wrap since they end one step past the last word.
            unsafe {
                let first = _mm256_loadu_ps(right);
                let second = _mm256_loadu_ps(right.wrapping_add(8));
                for (r, sum) in sum.iter_mut().enumerate() {
                    let word = _mm256_set1_ps(*left.wrapping_add(r * args.row_step));
                    sum[0] = _mm256_fmadd_ps(word, first, sum[0]);
                    sum[1] = _mm256_fmadd_ps(word, second, sum[1]);
                }
            }
            left = left.wrapping_add(args.depth_step);
            right = right.wrapping_add(args.right_step);
        }
    }
    for (r, sum) in sum.iter().enumerate() {
        // SAFETY: `out` has R writable rows of COLS floats, `out_step` apart.
        unsafe {
            let out = args.out.add(r * args.out_step);
            let (mut first, mut second) = (sum[0], sum[1]);
            if args.add {
                first = _mm256_add_ps(_mm256_loadu_ps(out), first);
                second = _mm256_add_ps(_mm256_loadu_ps(out.add(8)), second);
            }
            _mm256_storeu_ps(out, first);
            _mm256_storeu_ps(out.add(8), second);
        }
    }
}
