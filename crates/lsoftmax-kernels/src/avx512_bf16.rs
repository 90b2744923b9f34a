//! AVX-512 BF16: pairs by `vdpbf16ps`, in the tiles of the f32 path.

use std::arch::x86_64::*;

use crate::avx512::{Avx512, COLS, ROWS, pack_transposed, tiles};
use crate::bf16;
use crate::buffer::Buffer;
use crate::kernel::{Kernel, Left, Pair, TileArgs, Vectors, Word};

/// bf16 pairs by AVX-512 BF16.
#[derive(Clone, Copy)]
pub(crate) struct Avx512Bf16(Avx512);

impl Avx512Bf16 {
    pub(crate) fn is_available() -> bool {
        is_x86_feature_detected!("avx512bf16") && Avx512::is_available()
    }

    /// # Safety
    /// The CPU has AVX-512 BF16 besides what [`Avx512::assume`] asks for.
    pub(crate) unsafe fn assume() -> Self {
        // SAFETY: by the caller's promise.
        Self(unsafe { Avx512::assume() })
    }

    /// Neighbouring elements of a row become a pair; an odd last one is joined by zero.
    pub(crate) fn join_neighbours(self, row: &[f32], out: &mut [Pair]) {
        // SAFETY: `self` is only made where the CPU has these.
        unsafe { join_neighbours(row, out) }
    }
}

/// Runs `f` compiled for AVX-512 with BF16.
///
/// # Safety
/// The CPU has AVX-512 F, BW, DQ, VL and BF16, AVX2 and FMA.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
unsafe fn with_avx512_bf16<R>(f: impl FnOnce() -> R) -> R {
    f()
}

impl Vectors for Avx512Bf16 {
    #[inline(always)]
    fn vectorize<R>(self, f: impl FnOnce() -> R) -> R {
        // SAFETY: `self` is only made where the CPU has these.
        unsafe { with_avx512_bf16(f) }
    }

    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

impl Kernel for Avx512Bf16 {
    type Word = Pair;
    type Vectors = Self;
    type Session = ();
    const ROWS: usize = ROWS;
    const COLS: usize = COLS;

    #[inline(always)]
    fn vectors(self) -> Self {
        self
    }

    #[inline(always)]
    fn session(self) {}

    unsafe fn tile(self, args: TileArgs<'_, Pair>) {
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
            // SAFETY: `self` is only made where the CPU has these.
            unsafe { join_rows(first, second, out) };
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
