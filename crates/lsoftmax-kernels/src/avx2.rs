//! AVX2 with FMA: f32 words, register blocks of 6 rows by 16 columns.
//!
//! Twelve of the sixteen registers hold sums, two hold a row of the right operand, and one the
//! broadcast word of the left operand.

use std::arch::x86_64::*;

use crate::f32_kernel::F32MicroKernel;
use crate::kernel::{MicroKernelArgs, Simd, micro_kernel_of_rows};
use crate::lanes::{LANES, lanes_of_registers};

const MR: usize = 6;
const NR: usize = 16;

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

impl Simd for Avx2 {
    #[inline(always)]
    fn vectorize<R>(self, f: impl FnOnce() -> R) -> R {
        // SAFETY: `self` exists only where the CPU supports AVX2 and FMA.
        unsafe { with_avx2(f) }
    }

    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    type Lanes = Avx2Lanes;

    #[inline(always)]
    fn lanes(self, values: &[f32; LANES]) -> Avx2Lanes {
        // SAFETY: `self` exists only where the CPU supports these instructions.
        unsafe { Avx2Lanes::load(values) }
    }
}

lanes_of_registers!(
    Avx2Lanes, __m256, __m256, 4,
    load: _mm256_loadu_ps,
    store: _mm256_storeu_ps,
    add: _mm256_add_ps,
    sub: _mm256_sub_ps,
    mul: _mm256_mul_ps,
    mul_add: _mm256_fmadd_ps,
    greater: _mm256_cmp_ps::<_CMP_GT_OQ>,
    greater_or_nan: greater_or_nan,
    select: select
);

/// Where `a` is greater than `b`, or NaN.
///
/// # Safety
/// The CPU has AVX.
#[inline(always)]
unsafe fn greater_or_nan(a: __m256, b: __m256) -> __m256 {
    // SAFETY: guaranteed by the caller.
    unsafe { _mm256_or_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(a, b), _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a)) }
}

/// # Safety
/// The CPU has AVX.
#[inline(always)]
unsafe fn select(mask: __m256, a: __m256, b: __m256) -> __m256 {
    // SAFETY: guaranteed by the caller.
    unsafe { _mm256_blendv_ps(b, a, mask) }
}

impl F32MicroKernel for Avx2 {
    const MR: usize = MR;
    const NR: usize = NR;

    unsafe fn micro_kernel(self, args: MicroKernelArgs<'_, f32>) {
        micro_kernel_of_rows!(micro_kernel, args, 1 2 3 4 5, 6)
    }
}

/// A register block of `R` rows.
///
/// # Safety
/// The contract of [`F32MicroKernel::micro_kernel`] with `args.rows == R`, on a CPU with AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
unsafe fn micro_kernel<const R: usize>(args: MicroKernelArgs<'_, f32>) {
    let mut sum = [[_mm256_setzero_ps(); 2]; R];
    for segment in args.segments {
        let mut left = args.left.wrapping_add(segment.left);
        let mut right = args.right.wrapping_add(segment.right);
        for _ in 0..args.depth {
            // SAFETY: the caller guarantees NR readable words of right at every depth, and every
            // (row, depth) of left. The pointers use wrapping arithmetic because they end one
            // stride past the last word that is read.
            unsafe {
                let first = _mm256_loadu_ps(right);
                let second = _mm256_loadu_ps(right.wrapping_add(8));
                for (r, sum) in sum.iter_mut().enumerate() {
                    let word = _mm256_set1_ps(*left.wrapping_add(r * args.row_stride));
                    sum[0] = _mm256_fmadd_ps(word, first, sum[0]);
                    sum[1] = _mm256_fmadd_ps(word, second, sum[1]);
                }
            }
            left = left.wrapping_add(args.depth_stride);
            right = right.wrapping_add(args.right_stride);
        }
    }
    for (r, sum) in sum.iter().enumerate() {
        // SAFETY: `out` has R writable rows of NR floats, `out_stride` apart.
        unsafe {
            let out = args.out.add(r * args.out_stride);
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
