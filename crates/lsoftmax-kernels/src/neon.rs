//! NEON (aarch64): f32 words, register blocks of 6 rows by 16 columns.
//!
//! 24 of the 32 registers hold sums, four hold a row of the right operand, and one the word of the left
//! operand.

use std::arch::aarch64::*;

use crate::f32_kernel::F32MicroKernel;
use crate::kernel::{MicroKernelArgs, Simd, micro_kernel_of_rows};
use crate::lanes::{LANES, lanes_of_registers};

const MR: usize = 6;
const NR: usize = 16;

/// NEON, which every aarch64 CPU has and the compiler uses by default.
#[derive(Clone, Copy)]
pub(crate) struct Neon;

impl Simd for Neon {
    #[inline(always)]
    fn vectorize<R>(self, f: impl FnOnce() -> R) -> R {
        f()
    }

    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    type Lanes = NeonLanes;

    #[inline(always)]
    fn lanes(self, values: &[f32; LANES]) -> NeonLanes {
        // SAFETY: every aarch64 CPU has NEON.
        unsafe { NeonLanes::load(values) }
    }
}

lanes_of_registers!(
    NeonLanes, float32x4_t, uint32x4_t, 8,
    load: vld1q_f32,
    store: vst1q_f32,
    add: vaddq_f32,
    sub: vsubq_f32,
    mul: vmulq_f32,
    mul_add: mul_add,
    greater: vcgtq_f32,
    greater_or_nan: greater_or_nan,
    select: vbslq_f32
);

/// `a · b + c`.
///
/// # Safety
/// The CPU has NEON.
#[inline(always)]
unsafe fn mul_add(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
    // SAFETY: guaranteed by the caller.
    unsafe { vfmaq_f32(c, a, b) }
}

/// Where `a` is greater than `b`, or NaN.
///
/// # Safety
/// The CPU has NEON.
#[inline(always)]
unsafe fn greater_or_nan(a: float32x4_t, b: float32x4_t) -> uint32x4_t {
    // SAFETY: guaranteed by the caller.
    unsafe { vorrq_u32(vcgtq_f32(a, b), vmvnq_u32(vceqq_f32(a, a))) }
}

impl F32MicroKernel for Neon {
    const MR: usize = MR;
    const NR: usize = NR;

    unsafe fn micro_kernel(self, args: MicroKernelArgs<'_, f32>) {
        micro_kernel_of_rows!(micro_kernel, args, 1 2 3 4 5, 6)
    }
}

/// A register block of `R` rows.
///
/// # Safety
/// The contract of [`F32MicroKernel::micro_kernel`] with `args.rows == R`.
#[target_feature(enable = "neon")]
unsafe fn micro_kernel<const R: usize>(args: MicroKernelArgs<'_, f32>) {
    let mut sum = [[vdupq_n_f32(0.0); 4]; R];
    for segment in args.segments {
        let mut left = args.left.wrapping_add(segment.left);
        let mut right = args.right.wrapping_add(segment.right);
        for _ in 0..args.depth {
            // SAFETY: the caller guarantees NR readable words of right at every depth, and every
            // (row, depth) of left. The pointers use wrapping arithmetic because they end one
            // stride past the last word that is read.
            unsafe {
                let mut row = [vdupq_n_f32(0.0); 4];
                for (i, row) in row.iter_mut().enumerate() {
                    *row = vld1q_f32(right.wrapping_add(4 * i));
                }
                for (r, sum) in sum.iter_mut().enumerate() {
                    let word = *left.wrapping_add(r * args.row_stride);
                    for (sum, row) in sum.iter_mut().zip(row) {
                        *sum = vfmaq_n_f32(*sum, row, word);
                    }
                }
            }
            left = left.wrapping_add(args.depth_stride);
            right = right.wrapping_add(args.right_stride);
        }
    }
    for (r, sum) in sum.iter().enumerate() {
        for (i, sum) in sum.iter().enumerate() {
            // SAFETY: `out` has R writable rows of NR floats, `out_stride` apart.
            unsafe {
                let out = args.out.add(r * args.out_stride + 4 * i);
                let before = if args.add { vld1q_f32(out) } else { vdupq_n_f32(0.0) };
                vst1q_f32(out, vaddq_f32(before, *sum));
            }
        }
    }
}
