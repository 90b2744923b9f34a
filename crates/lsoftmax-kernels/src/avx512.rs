//! AVX-512: f32 by fused multiply-add, and bf16 pairs by `vdpbf16ps` where the CPU has it.
//!
//! A tile is 14 rows by 32 columns: 28 of the 32 registers hold sums, two hold a row of the right
//! operand, and one the broadcast word of the left.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use crate::bf16;
use crate::buffer::Buffer;
use crate::f32_words::{F32Words, left_columns, pack_right};
use crate::kernel::{Kernel, Left, Pair, TileArgs, Word};

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

    fn left_rows<'a>(
        self,
        source: &'a [f32],
        depth: usize,
        scratch: &'a mut Buffer,
    ) -> Left<'a, f32> {
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
            || pack_right::<E, COLS>(source, cols, panel, out),
        );
    }

    fn pack_right_transposed(self, source: &[f32], depth: usize, out: &mut [f32]) {
        let mut rounded = Buffer::default();
        let rows = self.left_rows(source, depth, &mut rounded);
        // SAFETY: `self` is only made where the CPU has these.
        unsafe { pack_transposed(rows.words, depth, out) };
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

    fn left_rows<'a>(
        self,
        source: &'a [f32],
        depth: usize,
        scratch: &'a mut Buffer,
    ) -> Left<'a, Pair> {
        let words = depth.div_ceil(Pair::ELEMENTS);
        scratch.resize(source.len() / depth * words);
        let rows = source.chunks_exact(depth).zip(scratch.words_mut().chunks_exact_mut(words));
        rows.for_each(|(row, out)| self.join_neighbours(row, out));
        Left { words: scratch.words(), row_step: words, depth_step: 1 }
    }

    fn left_columns(self, source: &[f32], rows: usize, out: &mut [Pair]) -> (usize, usize) {
        for (two, out) in source.chunks(2 * rows).zip(out.chunks_exact_mut(rows)) {
            let (first, second) = two.split_at(rows);
            self.join_rows(first, second, out);
        }
        (1, rows)
    }

    fn pack_right(self, source: &[f32], cols: usize, panel: usize, out: &mut [Pair]) {
        // SAFETY: `self` is only made where the CPU has these.
        unsafe { pack_pairs(source, cols, panel, out) }
    }

    fn pack_right_transposed(self, source: &[f32], depth: usize, out: &mut [Pair]) {
        let mut pairs = Buffer::default();
        let rows = self.left_rows(source, depth, &mut pairs);
        // SAFETY: `self` is only made where the CPU has these.
        unsafe { pack_transposed(rows.words, rows.row_step, out) };
    }
}

impl Avx512Bf16 {
    /// Neighbouring elements of a row become a pair; an odd last one is joined by zero.
    pub(crate) fn join_neighbours(self, row: &[f32], out: &mut [Pair]) {
        // SAFETY: `self` is only made where the CPU has these.
        unsafe { join_neighbours(row, out) }
    }

    /// Elements of two rows, one above the other, become a pair; a missing second row is zero.
    pub(crate) fn join_rows(self, first: &[f32], second: &[f32], out: &mut [Pair]) {
        // SAFETY: `self` is only made where the CPU has these.
        unsafe { join_rows(first, second, out) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn join_neighbours(row: &[f32], out: &mut [Pair]) {
    let whole = row.len() / 32;
    let (row, row_rest) = row.split_at(whole * 32);
    let (out, out_rest) = out.split_at_mut(whole * 16);
    for (row, out) in row.chunks_exact(32).zip(out.chunks_exact_mut(16)) {
        // SAFETY: the chunks hold 32 floats and 16 pairs, both 128 and 64 bytes.
        unsafe {
            let low = _mm512_loadu_ps(row.as_ptr());
            let high = _mm512_loadu_ps(row.as_ptr().add(16));
            let pairs: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
            _mm512_storeu_si512(out.as_mut_ptr().cast(), pairs);
        }
    }
    for (two, out) in row_rest.chunks(2).zip(out_rest) {
        *out = bf16::pair(two[0], two.get(1).copied().unwrap_or(0.0));
    }
}

/// See [`Kernel::pack_right`]. The source is read row by row, as it lies in memory.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn pack_pairs(source: &[f32], cols: usize, panel: usize, out: &mut [Pair]) {
    let words = (source.len() / cols).div_ceil(Pair::ELEMENTS);
    for (word, two) in source.chunks(2 * cols).enumerate() {
        let (first, second) = two.split_at(cols);
        for (offset, out) in out.chunks_exact_mut(words * COLS).enumerate() {
            let start = (panel + offset) * COLS;
            let end = cols.min(start + COLS);
            let (out, padding) = out[word * COLS..][..COLS].split_at_mut(end - start);
            let second = if second.is_empty() { second } else { &second[start..end] };
            join_rows(&first[start..end], second, out);
            padding.fill(Pair::default());
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn join_rows(first: &[f32], second: &[f32], out: &mut [Pair]) {
    // Places of the pairs' halves in (first, second): 0, 16, 1, 17, …
    let order: [u16; 32] = std::array::from_fn(|i| (i / 2 + 16 * (i % 2)) as u16);
    // SAFETY: 32 words of 16 bits fill a register.
    let order = unsafe { _mm512_loadu_si512(order.as_ptr().cast()) };
    let zeros = [0.0f32; 16];
    let mut outs = out.chunks_exact_mut(16);
    let mut start = 0;
    for out in &mut outs {
        let second = if second.is_empty() { &zeros[..] } else { &second[start..start + 16] };
        let first = &first[start..start + 16];
        // SAFETY: both slices hold 16 floats, and `out` 16 pairs.
        unsafe {
            let low = _mm512_loadu_ps(first.as_ptr());
            let high = _mm512_loadu_ps(second.as_ptr());
            let halves: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
            _mm512_storeu_si512(out.as_mut_ptr().cast(), _mm512_permutexvar_epi16(order, halves));
        }
        start += 16;
    }
    for (offset, out) in outs.into_remainder().iter_mut().enumerate() {
        let second = second.get(start + offset).copied().unwrap_or(0.0);
        *out = bf16::pair(first[start + offset], second);
    }
}

/// Packs the transpose of rows of `depth` words as a right operand.
#[target_feature(enable = "avx512f")]
fn pack_transposed<W: Word>(rows: &[W], depth: usize, out: &mut [W]) {
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
