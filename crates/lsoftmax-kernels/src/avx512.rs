//! AVX-512: tiles of 14 rows by 32 columns.
//!
//! 28 of the 32 registers hold sums, two hold a row of the right operand, and one the broadcast word
//! of the left.

use std::arch::x86_64::*;

use crate::f32_words::F32Vectors;
use crate::kernel::{TileArgs, Vectors, Word};

pub(crate) const ROWS: usize = 14;
pub(crate) const COLS: usize = 32;

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

impl Vectors for Avx512 {
    #[inline(always)]
    fn vectorize<R>(self, f: impl FnOnce() -> R) -> R {
        // SAFETY: `self` is only made where the CPU has these.
        unsafe { with_avx512(f) }
    }

    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

impl F32Vectors for Avx512 {
    const ROWS: usize = ROWS;
    const COLS: usize = COLS;

    unsafe fn tile(self, args: TileArgs<'_, f32>) {
        // SAFETY: `self` is only made where the CPU has these; the caller's contract is passed on.
        unsafe { f32_tile::any(args) }
    }

    fn pack_transposed(self, rows: &[f32], depth: usize, out: &mut [f32]) {
        // SAFETY: `self` is only made where the CPU has these.
        unsafe { pack_transposed(rows, depth, out) };
    }
}

/// Packs the transpose of rows of `depth` words as a right operand.
#[target_feature(enable = "avx512f")]
pub(crate) fn pack_transposed<W: Word>(rows: &[W], depth: usize, out: &mut [W]) {
    let panels = rows.chunks(COLS * depth).zip(out.chunks_exact_mut(COLS * depth));
    for (rows, out) in panels {
        let width = rows.len() / depth;
        let (whole_width, whole_depth) = (width / 16 * 16, depth / 16 * 16);
        for c in (0..whole_width).step_by(16) {
            for d in (0..whole_depth).step_by(16) {
                let (from, to) = (&rows[c * depth + d..], &mut out[d * COLS + c..]);
                assert!(from.len() >= 15 * depth + 16 && to.len() >= 15 * COLS + 16);
                // SAFETY: a word has 32 bits, and sixteen rows of sixteen of them are in both.
                unsafe { transpose(from.as_ptr().cast(), depth, to.as_mut_ptr().cast(), COLS) };
            }
        }
        for c in 0..COLS {
            let from = if c < whole_width { whole_depth } else { 0 };
            for d in from..depth {
                out[d * COLS + c] = if c < width { rows[c * depth + d] } else { W::default() };
            }
        }
    }
}

/// Transposes sixteen rows of sixteen 32-bit words.
///
/// # Safety
/// The rows, `from_step` and `to_step` words apart, are readable and writable, on a CPU with
/// AVX-512 F.
#[target_feature(enable = "avx512f")]
unsafe fn transpose(from: *const i32, from_step: usize, to: *mut i32, to_step: usize) {
    // SAFETY: by the caller's promise.
    let mut rows: [__m512i; 16] =
        std::array::from_fn(|r| unsafe { _mm512_loadu_si512(from.add(r * from_step).cast()) });
    // Words, then pairs of words, change places within groups of four; then the groups do.
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
    for (r, row) in rows.into_iter().enumerate() {
        // SAFETY: by the caller's promise.
        unsafe { _mm512_storeu_si512(to.add(r * to_step).cast(), row) };
    }
}

/// The tile loop, once for each kind of word.
macro_rules! tiles {
    ($name:ident, $word:ty, $features:literal, $load:expr, $broadcast:expr, $step:expr) => {
        mod $name {
            use super::*;

            /// # Safety
            /// The contract of [`Kernel::tile`](crate::kernel::Kernel::tile), on a CPU with the features named.
            pub(super) unsafe fn any(args: TileArgs<'_, $word>) {
                macro_rules! rows {
                    ($n:literal) => {
                        // SAFETY: the caller's contract; the row count is the one matched.
                        unsafe { tile::<$n>(args) }
                    };
                }
                match args.rows {
                    1 => rows!(1),
                    2 => rows!(2),
                    3 => rows!(3),
                    4 => rows!(4),
                    5 => rows!(5),
                    6 => rows!(6),
                    7 => rows!(7),
                    8 => rows!(8),
                    9 => rows!(9),
                    10 => rows!(10),
                    11 => rows!(11),
                    12 => rows!(12),
                    13 => rows!(13),
                    _ => rows!(14),
                }
            }

            /// # Safety
            /// The contract of [`Kernel::tile`](crate::kernel::Kernel::tile) with `args.rows == R`, on a CPU with the features.
            #[target_feature(enable = $features)]
            unsafe fn tile<const R: usize>(args: TileArgs<'_, $word>) {
                let mut sum = [[_mm512_setzero_ps(); 2]; R];
                for segment in args.segments {
                    let mut left = args.left.wrapping_add(segment.left);
                    let mut right = args.right.wrapping_add(segment.right);
                    for _ in 0..args.depth {
                        // SAFETY: the caller vouches for COLS words of right at every depth and for
                        // every (row, depth) of left. The pointers move by wrapping arithmetic,
                        // since they end one step past the last word that is read.
                        unsafe {
                            let first = $load(right);
                            let second = $load(right.wrapping_add(16));
                            for (r, sum) in sum.iter_mut().enumerate() {
                                let word = $broadcast(left.wrapping_add(r * args.row_step));
                                sum[0] = $step(sum[0], word, first);
                                sum[1] = $step(sum[1], word, second);
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
                            first = _mm512_add_ps(_mm512_loadu_ps(out), first);
                            second = _mm512_add_ps(_mm512_loadu_ps(out.add(16)), second);
                        }
                        _mm512_storeu_ps(out, first);
                        _mm512_storeu_ps(out.add(16), second);
                    }
                }
            }
        }
    };
}
pub(crate) use tiles;

tiles!(
    f32_tile,
    f32,
    "avx512f",
    |p: *const f32| _mm512_loadu_ps(p),
    |p: *const f32| _mm512_set1_ps(*p),
    |sum, word, right| _mm512_fmadd_ps(word, right, sum)
);
