//! AVX-512: f32 by fused multiply-add, and bf16 pairs by `vdpbf16ps` where the CPU has it.
//!
//! A tile is 14 rows by 32 columns: 28 of the 32 registers hold sums, two hold a row of the right
//! operand, and one the broadcast word of the left.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use crate::kernel::{
    Encode, Kernel, Left, Pair, Rounded, TileArgs, Word, encode_columns, encode_rows, encode_transposed,
};
use crate::portable::{F32Words, left_columns};

const ROWS: usize = 14;
const COLS: usize = 32;

/// f32 words by AVX-512.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<E>(PhantomData<E>);

/// bf16 pairs by AVX-512 BF16.
#[derive(Clone, Copy)]
pub(crate) struct Avx512Bf16(());

impl<E> Avx512<E> {
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
        Self(PhantomData)
    }
}

impl Avx512Bf16 {
    pub(crate) fn is_available() -> bool {
        is_x86_feature_detected!("avx512bf16") && Avx512::<()>::is_available()
    }

    /// # Safety
    /// The CPU has AVX-512 BF16 besides what [`Avx512::assume`] asks for.
    pub(crate) unsafe fn assume() -> Self {
        Self(())
    }
}

/// Runs `f` compiled for AVX-512.
///
/// # Safety
/// The CPU has AVX-512 F, BW, DQ, VL, AVX2 and FMA.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(crate) unsafe fn with_avx512<R>(f: impl FnOnce() -> R) -> R {
    f()
}

impl<E: F32Words> Kernel for Avx512<E> {
    type Word = f32;
    type Session = ();
    const ROWS: usize = ROWS;
    const COLS: usize = COLS;

    #[inline(always)]
    fn session(self) {}

    #[inline(always)]
    fn vectorize<R>(self, f: impl FnOnce() -> R) -> R {
        // SAFETY: `self` is only made where the CPU has these.
        unsafe { with_avx512(f) }
    }

    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    unsafe fn tile(self, args: TileArgs<f32>) {
        // SAFETY: `self` is only made where the CPU has these; the caller's contract is passed on.
        unsafe { f32_tile::any(args) }
    }

    fn left_rows<'a>(self, source: &'a [f32], depth: usize, scratch: &'a mut Vec<f32>) -> Left<'a, f32> {
        E::left_rows(self, source, depth, scratch)
    }

    fn left_columns(self, source: &[f32], rows: usize, out: &mut [f32]) -> (usize, usize) {
        self.vectorize(
            #[inline(always)]
            || left_columns::<E>(source, rows, out),
        )
    }

    fn pack_right(self, source: &[f32], cols: usize, panel: usize, out: &mut [f32]) {
        self.vectorize(
            #[inline(always)]
            || encode_columns::<f32, E, COLS>(source, cols, panel, out),
        );
    }

    fn pack_right_transposed(self, source: &[f32], depth: usize, out: &mut [f32]) {
        self.vectorize(
            #[inline(always)]
            || encode_transposed::<f32, E, COLS>(source, depth, out),
        );
    }
}

impl Kernel for Avx512Bf16 {
    type Word = Pair;
    type Session = ();
    const ROWS: usize = ROWS;
    const COLS: usize = COLS;

    #[inline(always)]
    fn session(self) {}

    #[inline(always)]
    fn vectorize<R>(self, f: impl FnOnce() -> R) -> R {
        // SAFETY: `self` is only made where the CPU has these.
        unsafe { with_avx512(f) }
    }

    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    unsafe fn tile(self, args: TileArgs<Pair>) {
        // SAFETY: `self` is only made where the CPU has these; the caller's contract is passed on.
        unsafe { pair_tile::any(args) }
    }

    fn left_rows<'a>(self, source: &'a [f32], depth: usize, scratch: &'a mut Vec<Pair>) -> Left<'a, Pair> {
        let words = depth.div_ceil(Pair::ELEMENTS);
        scratch.resize(source.len() / depth * words, Pair::default());
        self.vectorize(
            #[inline(always)]
            || encode_rows::<Pair, Rounded>(source, depth, scratch),
        );
        Left { words: scratch, row_step: words, depth_step: 1 }
    }

    fn left_columns(self, source: &[f32], rows: usize, out: &mut [Pair]) -> (usize, usize) {
        self.vectorize(
            #[inline(always)]
            || pair_columns(source, rows, out),
        )
    }

    fn pack_right(self, source: &[f32], cols: usize, panel: usize, out: &mut [Pair]) {
        self.vectorize(
            #[inline(always)]
            || encode_columns::<Pair, Rounded, COLS>(source, cols, panel, out),
        );
    }

    fn pack_right_transposed(self, source: &[f32], depth: usize, out: &mut [Pair]) {
        self.vectorize(
            #[inline(always)]
            || encode_transposed::<Pair, Rounded, COLS>(source, depth, out),
        );
    }
}

/// The columns of a `depth` x `rows` source, neighbouring depths joined into pairs.
#[inline(always)]
fn pair_columns(source: &[f32], rows: usize, out: &mut [Pair]) -> (usize, usize) {
    for (two, out) in source.chunks(2 * rows).zip(out.chunks_exact_mut(rows)) {
        let (first, second) = two.split_at(rows);
        if second.is_empty() {
            for (o, a) in out.iter_mut().zip(first) {
                *o = Rounded::word(*a, 0.0);
            }
        } else {
            for ((o, a), b) in out.iter_mut().zip(first).zip(second) {
                *o = Rounded::word(*a, *b);
            }
        }
    }
    (1, rows)
}

/// The tile loop, once for each kind of word.
macro_rules! tiles {
    ($name:ident, $word:ty, $features:literal, $load:expr, $broadcast:expr, $step:expr) => {
        mod $name {
            use super::*;

            /// # Safety
            /// The contract of [`Kernel::tile`], on a CPU with the features named.
            pub(super) unsafe fn any(args: TileArgs<$word>) {
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
            /// The contract of [`Kernel::tile`] with `args.rows == R`, on a CPU with the features.
            #[target_feature(enable = $features)]
            unsafe fn tile<const R: usize>(args: TileArgs<$word>) {
                let mut sum = [[_mm512_setzero_ps(); 2]; R];
                let (mut left, mut right) = (args.left, args.right);
                for _ in 0..args.depth {
                    // SAFETY: the caller vouches for COLS words of right at every depth and for
                    // every (row, depth) of left. The pointers move by wrapping arithmetic, since
                    // they end one step past the last word that is read.
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
                    right = right.wrapping_add(COLS);
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

tiles!(
    f32_tile,
    f32,
    "avx512f",
    |p: *const f32| _mm512_loadu_ps(p),
    |p: *const f32| _mm512_set1_ps(*p),
    |sum, word, right| _mm512_fmadd_ps(word, right, sum)
);

tiles!(
    pair_tile,
    Pair,
    "avx512f,avx512bf16",
    |p: *const Pair| std::mem::transmute::<__m512i, __m512bh>(_mm512_loadu_si512(p.cast())),
    |p: *const Pair| std::mem::transmute::<__m512i, __m512bh>(_mm512_set1_epi32(
        p.cast::<i32>().read_unaligned()
    )),
    |sum, word, right| _mm512_dpbf16_ps(sum, word, right)
);
