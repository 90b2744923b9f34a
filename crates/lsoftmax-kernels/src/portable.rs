//! The portable path: plain Rust, vectorised by the compiler for the target's baseline.

use crate::f32_kernel::F32MicroKernel;
use crate::kernel::{MicroKernelArgs, Simd, micro_kernel_of_rows};
use crate::lanes::{LANES, PlainLanes};

const MR: usize = 4;
const NR: usize = 16;

/// Plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

impl Simd for Portable {
    #[inline(always)]
    fn vectorize<R>(self, f: impl FnOnce() -> R) -> R {
        f()
    }

    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }

    type Lanes = PlainLanes;

    #[inline(always)]
    fn lanes(self, values: &[f32; LANES]) -> PlainLanes {
        PlainLanes(*values)
    }
}

impl F32MicroKernel for Portable {
    const MR: usize = MR;
    const NR: usize = NR;

    unsafe fn micro_kernel(self, args: MicroKernelArgs<'_, f32>) {
        micro_kernel_of_rows!(micro_kernel, args, 1 2 3, 4)
    }
}

/// A register block of `R` rows.
///
/// # Safety
/// The contract of [`F32MicroKernel::micro_kernel`] with `args.rows == R`.
unsafe fn micro_kernel<const R: usize>(args: MicroKernelArgs<'_, f32>) {
    let mut sum = [[0.0f32; NR]; R];
    for segment in args.segments {
        for d in 0..args.depth {
            // SAFETY: `right` has NR readable words at every depth of a segment.
            let right = unsafe { args.right.add(segment.right + d * args.right_stride) };
            // SAFETY: as above; the words are aligned as floats.
            let right: [f32; NR] = unsafe { right.cast::<[f32; NR]>().read() };
            for (r, sum) in sum.iter_mut().enumerate() {
                let offset = segment.left + r * args.row_stride + d * args.depth_stride;
                // SAFETY: the caller guarantees that every (row, depth) of `left` is readable.
                let left = unsafe { *args.left.add(offset) };
                for (s, right) in sum.iter_mut().zip(right) {
                    *s += left * right;
                }
            }
        }
    }
    for (r, sum) in sum.iter().enumerate() {
        // SAFETY: `out` has `R` writable rows of NR floats, `out_stride` apart.
        let out = unsafe { &mut *args.out.add(r * args.out_stride).cast::<[f32; NR]>() };
        for (o, s) in out.iter_mut().zip(sum) {
            *o = if args.add { *o + s } else { *s };
        }
    }
}
