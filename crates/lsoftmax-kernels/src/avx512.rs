//! AVX-512: register blocks of 14 rows by 32 columns.
//!
//! 28 of the 32 registers hold sums, two hold a row of the right operand, and one the broadcast word
//! of the left operand. Where 16 columns suffice, 14 hold sums.

use std::arch::x86_64::*;

use crate::f32_kernel::F32MicroKernel;
use crate::kernel::{
    MicroKernelArgs, OperandWord, Simd, WIDE_LANES, micro_kernel_of_rows, wide_products,
};
use crate::lanes::{LANES, lanes_of_registers};

pub(crate) const MR: usize = 14;
pub(crate) const NR: usize = 32;

/// AVX-512 F, BW, DQ and VL, AVX2 and FMA.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    pub(crate) fn is_available() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
    }

    /// # Safety
    /// The CPU has AVX-512 F, BW, DQ and VL, AVX2 and FMA.
    pub(crate) unsafe fn assume() -> Self {
        Self(())
    }
}

/// Runs `f` compiled for AVX-512.
///
/// # Safety
/// The CPU has AVX-512 F, BW, DQ and VL, AVX2 and FMA.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn with_avx512<R>(f: impl FnOnce() -> R) -> R {
    f()
}

impl Simd for Avx512 {
    #[inline(always)]
    fn vectorize<R>(self, f: impl FnOnce() -> R) -> R {
        // SAFETY: `self` exists only where the CPU supports these instructions.
        unsafe { with_avx512(f) }
    }

    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    type Lanes = Avx512Lanes;

    #[inline(always)]
    fn lanes(self, values: &[f32; LANES]) -> Avx512Lanes {
        // SAFETY: `self` exists only where the CPU supports these instructions.
        unsafe { Avx512Lanes::load(values) }
    }

    #[inline(always)]
    fn wide_dots<const N: usize>(self, pairs: [(&[f32], &[f32]); N]) -> [f64; N] {
        // SAFETY: `self` exists only where the CPU supports these instructions.
        unsafe { wide_dots(pairs) }
    }

    #[inline(always)]
    fn stream(self, from: &[f32], to: &mut [f32]) {
        // SAFETY: `self` exists only where the CPU supports these instructions.
        unsafe { stream(from, to) }
    }

    #[inline(always)]
    fn fence(self) {
        // SAFETY: every x86-64 CPU has SSE.
        unsafe { _mm_sfence() };
    }
}

lanes_of_registers!(
    Avx512Lanes, __m512, __mmask16, 2,
    load: _mm512_loadu_ps,
    store: _mm512_storeu_ps,
    add: _mm512_add_ps,
    sub: _mm512_sub_ps,
    mul: _mm512_mul_ps,
    mul_add: _mm512_fmadd_ps,
    greater: _mm512_cmp_ps_mask::<_CMP_GT_OQ>,
    greater_or_nan: greater_or_nan,
    select: select
);

/// Where `a` is greater than `b`, or NaN.
///
/// # Safety
/// The CPU has AVX-512 F.
#[inline(always)]
unsafe fn greater_or_nan(a: __m512, b: __m512) -> __mmask16 {
    // SAFETY: guaranteed by the caller.
    unsafe { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b) | _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a) }
}

/// # Safety
/// The CPU has AVX-512 F.
#[inline(always)]
unsafe fn select(mask: __mmask16, a: __m512, b: __m512) -> __m512 {
    // SAFETY: guaranteed by the caller.
    unsafe { _mm512_mask_blend_ps(mask, b, a) }
}

impl F32MicroKernel for Avx512 {
    const MR: usize = MR;
    const NR: usize = NR;
    const STREAMS: bool = true;

    unsafe fn micro_kernel(self, args: MicroKernelArgs<'_, f32>) {
        // SAFETY: `self` exists only where the CPU supports AVX-512, and the caller upholds the
        // contract.
        unsafe { f32_micro_kernel::any(args) }
    }

    fn pack_transposed(self, rows: &[f32], depth: usize, out: &mut [f32]) {
        // SAFETY: `self` exists only where the CPU supports AVX-512.
        unsafe { pack_transposed(rows, depth, out) };
    }
}

/// See [`Simd::wide_dots`]. The pairs are processed together: numbers that they share are converted once. The
/// product of two f32 is exact in f64, so fused additions give the same bits as others.
#[inline]
#[target_feature(enable = "avx512f")]
fn wide_dots<const N: usize>(pairs: [(&[f32], &[f32]); N]) -> [f64; N] {
    let mut sums = [[_mm512_setzero_pd(); 2]; N];
    for (sums, (a, b)) in sums.iter_mut().zip(pairs) {
        let rest = wide_products(a.as_chunks::<WIDE_LANES>().1, b.as_chunks::<WIDE_LANES>().1);
        // SAFETY: sixteen numbers fill two registers.
        *sums = unsafe { [_mm512_loadu_pd(rest.as_ptr()), _mm512_loadu_pd(rest[8..].as_ptr())] };
    }
    let rows = pairs.map(|(a, b)| (a.as_chunks::<8>().0, b.as_chunks::<8>().0));
    let halves =
        pairs.iter().map(|(a, b)| a.len().min(b.len()) / WIDE_LANES * 2).min().unwrap_or(0);
    for half in (0..halves).step_by(2) {
        for (sums, (a, b)) in sums.iter_mut().zip(rows) {
            for (offset, sum) in sums.iter_mut().enumerate() {
                let (a, b) = (&a[half + offset], &b[half + offset]);
                // SAFETY: eight floats fill a register of half the size.
                let [a, b] = unsafe { [_mm256_loadu_ps(a.as_ptr()), _mm256_loadu_ps(b.as_ptr())] };
                *sum = _mm512_fmadd_pd(_mm512_cvtps_pd(a), _mm512_cvtps_pd(b), *sum);
            }
        }
    }
    let mut dots = [0.0; N];
    for (dot, [low, high]) in dots.iter_mut().zip(sums) {
        let mut lanes = [0.0; WIDE_LANES];
        // SAFETY: as above.
        unsafe {
            _mm512_storeu_pd(lanes.as_mut_ptr(), low);
            _mm512_storeu_pd(lanes[8..].as_mut_ptr(), high);
        }
        *dot = lanes.iter().sum();
    }
    dots
}

/// Copies whole cache lines past the caches, and anything else as usual.
#[target_feature(enable = "avx512f")]
fn stream(from: &[f32], to: &mut [f32]) {
    assert_eq!(from.len(), to.len());
    if !to.len().is_multiple_of(16) || !to.as_ptr().cast::<__m512>().is_aligned() {
        to.copy_from_slice(from);
        return;
    }
    for (from, to) in from.as_chunks::<16>().0.iter().zip(to.as_chunks_mut::<16>().0) {
        // SAFETY: both are sixteen floats, and `to` is aligned.
        unsafe { _mm512_stream_ps(to.as_mut_ptr(), _mm512_loadu_ps(from.as_ptr())) };
    }
}

/// Packs the transpose of rows of `depth` words as a right operand.
#[target_feature(enable = "avx512f")]
pub(crate) fn pack_transposed<W: OperandWord>(rows: &[W], depth: usize, out: &mut [W]) {
    let panels = rows.chunks(NR * depth).zip(out.chunks_exact_mut(NR * depth));
    for (rows, out) in panels {
        let width = rows.len() / depth;
        let (whole_width, whole_depth) = (width / 16 * 16, depth / 16 * 16);
        for c in (0..whole_width).step_by(16) {
            for d in (0..whole_depth).step_by(16) {
                let (from, to) = (&rows[c * depth + d..], &mut out[d * NR + c..]);
                assert!(from.len() >= 15 * depth + 16 && to.len() >= 15 * NR + 16);
                // SAFETY: a word has 32 bits, and both slices contain sixteen rows of sixteen words.
                unsafe { transpose(from.as_ptr().cast(), depth, to.as_mut_ptr().cast(), NR) };
            }
        }
        for c in 0..NR {
            let from = if c < whole_width { whole_depth } else { 0 };
            for d in from..depth {
                out[d * NR + c] = if c < width { rows[c * depth + d] } else { W::default() };
            }
        }
    }
}

/// Transposes sixteen rows of sixteen 32-bit words.
///
/// # Safety
/// The rows, `from_stride` and `to_stride` words apart, are readable and writable, on a CPU with
/// AVX-512 F.
#[target_feature(enable = "avx512f")]
unsafe fn transpose(from: *const i32, from_stride: usize, to: *mut i32, to_stride: usize) {
    let mut rows = [_mm512_setzero_si512(); 16];
    for (r, row) in rows.iter_mut().enumerate() {
        // SAFETY: the caller guarantees that the rows are readable.
        *row = unsafe { _mm512_loadu_si512(from.add(r * from_stride).cast()) };
    }
    for (r, row) in transposed(rows).into_iter().enumerate() {
        // SAFETY: the caller guarantees that the rows are writable.
        unsafe { _mm512_storeu_si512(to.add(r * to_stride).cast(), row) };
    }
}

/// The transpose of sixteen rows of sixteen 32-bit words.
#[inline]
#[target_feature(enable = "avx512f")]
pub(crate) fn transposed(mut rows: [__m512i; 16]) -> [__m512i; 16] {
    // Transposes words, then pairs of words, within groups of four, and then the groups.
    for r in (0..16).step_by(2) {
        let (a, b) = (rows[r], rows[r + 1]);
        rows[r] = _mm512_unpacklo_epi32(a, b);
        rows[r + 1] = _mm512_unpackhi_epi32(a, b);
    }
    for r in (0..16).step_by(4) {
        let [a, b, c, d] = [rows[r], rows[r + 1], rows[r + 2], rows[r + 3]];
        rows[r] = _mm512_unpacklo_epi64(a, c);
        rows[r + 1] = _mm512_unpackhi_epi64(a, c);
        rows[r + 2] = _mm512_unpacklo_epi64(b, d);
        rows[r + 3] = _mm512_unpackhi_epi64(b, d);
    }
    for r in 0..4 {
        let [a, b, c, d] = [rows[r], rows[r + 4], rows[r + 8], rows[r + 12]];
        let (ab_low, ab_high) =
            (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b));
        let (cd_low, cd_high) =
            (_mm512_shuffle_i32x4::<0x88>(c, d), _mm512_shuffle_i32x4::<0xdd>(c, d));
        rows[r] = _mm512_shuffle_i32x4::<0x88>(ab_low, cd_low);
        rows[r + 4] = _mm512_shuffle_i32x4::<0x88>(ab_high, cd_high);
        rows[r + 8] = _mm512_shuffle_i32x4::<0xdd>(ab_low, cd_low);
        rows[r + 12] = _mm512_shuffle_i32x4::<0xdd>(ab_high, cd_high);
    }
    rows
}

/// Defines a module with the micro-kernel for one type of word.
macro_rules! micro_kernels {
    ($name:ident, $word:ty, $features:literal, $load:expr, $broadcast:expr, $step:expr) => {
        mod $name {
            use super::*;

            /// # Safety
            /// The contract of [`Kernel::micro_kernel`](crate::kernel::Kernel::micro_kernel), on
            /// a CPU with the given features.
            pub(super) unsafe fn any(args: MicroKernelArgs<'_, $word>) {
                if args.narrow {
                    micro_kernel_of_rows!(narrow, args, 1 2 3 4 5 6 7 8 9 10 11 12 13, 14)
                } else {
                    micro_kernel_of_rows!(wide, args, 1 2 3 4 5 6 7 8 9 10 11 12 13, 14)
                }
            }

            /// # Safety
            /// As for [`micro_kernel`].
            unsafe fn wide<const R: usize>(args: MicroKernelArgs<'_, $word>) {
                // SAFETY: guaranteed by the caller.
                unsafe { micro_kernel::<R, 2>(args) }
            }

            /// # Safety
            /// As for [`micro_kernel`].
            unsafe fn narrow<const R: usize>(args: MicroKernelArgs<'_, $word>) {
                // SAFETY: guaranteed by the caller.
                unsafe { micro_kernel::<R, 1>(args) }
            }

            /// `C` registers of 16 columns.
            ///
            /// # Safety
            /// The contract of [`Kernel::micro_kernel`](crate::kernel::Kernel::micro_kernel) with
            /// `args.rows == R`, on a CPU with the given features; `C` is 1 or 2.
            #[target_feature(enable = $features)]
            unsafe fn micro_kernel<const R: usize, const C: usize>(
                args: MicroKernelArgs<'_, $word>,
            ) {
                const { assert!(C <= 2, "a register block has 32 columns") };
                let mut sum = [[_mm512_setzero_ps(); C]; R];
                for segment in args.segments {
                    let mut left = args.left.wrapping_add(segment.left);
                    let mut right = args.right.wrapping_add(segment.right);
                    for _ in 0..args.depth {
                        // SAFETY: the caller guarantees NR readable words of right at every depth,
                        // and every (row, depth) of left. The pointers use wrapping arithmetic
                        // because they end one stride past the last word that is read.
                        unsafe {
                            let first = $load(right);
                            let last = $load(right.wrapping_add(16 * (C - 1)));
                            for (r, sum) in sum.iter_mut().enumerate() {
                                let word = $broadcast(left.wrapping_add(r * args.row_stride));
                                sum[0] = $step(sum[0], word, first);
                                if C == 2 {
                                    sum[C - 1] = $step(sum[C - 1], word, last);
                                }
                            }
                        }
                        left = left.wrapping_add(args.depth_stride);
                        right = right.wrapping_add(args.right_stride);
                    }
                }
                for (r, sum) in sum.iter().enumerate() {
                    for (c, sum) in sum.iter().enumerate() {
                        // SAFETY: `out` has R writable rows of NR floats, `out_stride` apart, which are
                        // aligned to 64 bytes if they are streamed.
                        unsafe {
                            let out = args.out.add(r * args.out_stride + 16 * c);
                            let sum = match args.add {
                                true => _mm512_add_ps(_mm512_loadu_ps(out), *sum),
                                false => *sum,
                            };
                            match args.stream {
                                true => _mm512_stream_ps(out, sum),
                                false => _mm512_storeu_ps(out, sum),
                            }
                        }
                    }
                }
            }
        }
    };
}
pub(crate) use micro_kernels;

micro_kernels!(
    f32_micro_kernel,
    f32,
    "avx512f",
    |p: *const f32| _mm512_loadu_ps(p),
    |p: *const f32| _mm512_set1_ps(*p),
    |sum, word, right| _mm512_fmadd_ps(word, right, sum)
);
