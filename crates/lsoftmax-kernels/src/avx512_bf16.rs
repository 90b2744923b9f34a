//! AVX-512 BF16: dot products of bf16 pairs by `vdpbf16ps`, in the register blocks of the f32 path.

use std::arch::x86_64::*;

use crate::avx512::{Avx512, Avx512Lanes, MR, NR, micro_kernels, pack_transposed, transposed};
use crate::bf16;
use crate::buffer::Buffer;
use crate::kernel::{
    Bf16Pair, Kernel, LeftOperand, MicroKernelArgs, OperandWord, Simd, micro_kernel_of_rows,
};
use crate::lanes::LANES;

/// bf16 pairs, multiplied by AVX-512 BF16.
#[derive(Clone, Copy)]
pub(crate) struct Avx512Bf16(Avx512);

impl Avx512Bf16 {
    pub(crate) fn is_available() -> bool {
        is_x86_feature_detected!("avx512bf16") && Avx512::is_available()
    }

    /// # Safety
    /// The CPU has AVX-512 BF16 in addition to what [`Avx512::assume`] requires.
    pub(crate) unsafe fn assume() -> Self {
        // SAFETY: guaranteed by the caller.
        Self(unsafe { Avx512::assume() })
    }

    /// Converts rows of `depth` numbers to pairs of neighbours, `stride` words apart; an odd last number is
    /// paired with zero.
    pub(crate) fn pair_rows(
        self,
        source: &[f32],
        depth: usize,
        stride: usize,
        out: &mut [Bf16Pair],
    ) {
        let words = depth.div_ceil(Bf16Pair::ELEMENTS);
        for (row, out) in source.chunks_exact(depth).zip(out.chunks_exact_mut(stride)) {
            // SAFETY: `self` exists only where the CPU supports these instructions.
            unsafe { pair_neighbours(row, &mut out[..words]) };
        }
    }

    /// Packs rows of pairs, `stride` words apart, as a right operand of `cols` columns: pairs of neighbours
    /// become pairs of rows.
    pub(crate) fn pack_pair_rows(
        self,
        rows: &[Bf16Pair],
        stride: usize,
        cols: usize,
        out: &mut [Bf16Pair],
    ) {
        // SAFETY: `self` exists only where the CPU supports these instructions.
        unsafe { pack_pair_rows(rows, stride, cols, out) }
    }

    /// Writes the columns of a source of `rows` columns, a multiple of 16, to rows of pairs, `stride` words
    /// apart. A row is padded with zeros to a multiple of 16 words.
    pub(crate) fn transpose_pairs(
        self,
        source: &[f32],
        rows: usize,
        stride: usize,
        out: &mut [Bf16Pair],
    ) {
        // SAFETY: `self` exists only where the CPU supports these instructions.
        unsafe { transpose_pairs(source, rows, stride, out) }
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

impl Simd for Avx512Bf16 {
    #[inline(always)]
    fn vectorize<R>(self, f: impl FnOnce() -> R) -> R {
        // SAFETY: `self` exists only where the CPU supports these instructions.
        unsafe { with_avx512_bf16(f) }
    }

    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    type Lanes = Avx512Lanes;

    #[inline(always)]
    fn lanes(self, values: &[f32; LANES]) -> Avx512Lanes {
        self.0.lanes(values)
    }

    #[inline(always)]
    fn wide_dots<const N: usize>(self, pairs: [(&[f32], &[f32]); N]) -> [f64; N] {
        self.0.wide_dots(pairs)
    }

    #[inline(always)]
    fn stream(self, from: &[f32], to: &mut [f32]) {
        self.0.stream(from, to);
    }

    #[inline(always)]
    fn fence(self) {
        self.0.fence();
    }
}

impl Kernel for Avx512Bf16 {
    type Word = Bf16Pair;
    type Simd = Self;
    type Session = ();
    const MR: usize = MR;
    const NR: usize = NR;
    const STREAMS: bool = true;

    #[inline(always)]
    fn simd(self) -> Self {
        self
    }

    #[inline(always)]
    fn session(self) {}

    unsafe fn micro_kernel(self, args: MicroKernelArgs<'_, Bf16Pair>) {
        // SAFETY: `self` exists only where the CPU supports these instructions, and the caller
        // upholds the contract.
        unsafe { bf16_micro_kernel::any(args) }
    }

    fn left_rows<'a>(
        self,
        source: &'a [f32],
        depth: usize,
        scratch: &'a mut Buffer,
    ) -> LeftOperand<'a, Bf16Pair> {
        let stride = Self::bf16_stride(depth);
        scratch.resize(source.len() / depth * stride);
        self.round_rows(source, depth, scratch.words_mut());
        LeftOperand { words: scratch.words(), row_stride: stride, depth_stride: 1 }
    }

    fn round_rows(self, source: &[f32], depth: usize, out: &mut [Bf16Pair]) {
        self.pair_rows(source, depth, Self::bf16_stride(depth), out);
    }

    fn left_bf16_rows<'a>(
        self,
        rows: &'a [Bf16Pair],
        depth: usize,
        _: &'a mut Buffer,
    ) -> LeftOperand<'a, Bf16Pair> {
        LeftOperand { words: rows, row_stride: Self::bf16_stride(depth), depth_stride: 1 }
    }

    fn pack_right_bf16(self, rows: &[Bf16Pair], cols: usize, out: &mut [Bf16Pair]) {
        self.pack_pair_rows(rows, Self::bf16_stride(cols), cols, out);
    }

    fn left_columns(self, source: &[f32], rows: usize, out: &mut [Bf16Pair]) -> (usize, usize) {
        for (two, out) in source.chunks(2 * rows).zip(out.chunks_exact_mut(rows)) {
            let (first, second) = two.split_at(rows);
            // SAFETY: `self` exists only where the CPU supports these instructions.
            unsafe { interleave_rows(first, second, out) };
        }
        (1, rows)
    }

    fn pack_right(self, source: &[f32], cols: usize, panel: usize, out: &mut [Bf16Pair]) {
        // SAFETY: `self` exists only where the CPU supports these instructions.
        unsafe { pack_pairs(source, cols, panel, out) }
    }

    fn pack_right_transposed(self, source: &[f32], depth: usize, out: &mut [Bf16Pair]) {
        let mut pairs = Buffer::default();
        let rows = self.left_rows(source, depth, &mut pairs);
        // SAFETY: `self` exists only where the CPU supports these instructions.
        unsafe { pack_transposed(rows.words, rows.row_stride, out) };
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn pair_neighbours(row: &[f32], out: &mut [Bf16Pair]) {
    let whole = row.len() / 32;
    let (row, row_rest) = row.split_at(whole * 32);
    let (out, out_rest) = out.split_at_mut(whole * 16);
    for (row, out) in row.chunks_exact(32).zip(out.chunks_exact_mut(16)) {
        // SAFETY: the chunks hold 32 floats and 16 pairs.
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

/// See [`Kernel::pack_right`]. Reads the source row by row, in memory order.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn pack_pairs(source: &[f32], cols: usize, panel: usize, out: &mut [Bf16Pair]) {
    let words = (source.len() / cols).div_ceil(Bf16Pair::ELEMENTS);
    for (word, two) in source.chunks(2 * cols).enumerate() {
        let (first, second) = two.split_at(cols);
        let (first_panels, second_panels) = (first.as_chunks().0, second.as_chunks().0);
        for (index, out) in (panel..).zip(out.chunks_exact_mut(words * NR)) {
            let out = &mut out[word * NR..][..NR];
            if let (Some(first), Some(second)) = (first_panels.get(index), second_panels.get(index))
            {
                interleave_panel(first, second, out);
                continue;
            }
            let (start, end) = (index * NR, cols.min((index + 1) * NR));
            let (out, padding) = out.split_at_mut(end - start);
            let second = if second.is_empty() { second } else { &second[start..end] };
            interleave_rows(&first[start..end], second, out);
            padding.fill(Bf16Pair::default());
        }
    }
}

/// See [`Avx512Bf16::pack_pair_rows`].
#[target_feature(enable = "avx512f,avx512bw")]
fn pack_pair_rows(rows: &[Bf16Pair], stride: usize, cols: usize, out: &mut [Bf16Pair]) {
    let words = (rows.len() / stride).div_ceil(Bf16Pair::ELEMENTS);
    for (word, two) in rows.chunks(2 * stride).enumerate() {
        let (first, second) = two.split_at(stride);
        for (index, out) in out.chunks_exact_mut(words * NR).enumerate() {
            let out = &mut out[word * NR..][..NR];
            let panel = |row: &'_ [Bf16Pair]| -> Option<[Bf16Pair; NR / 2]> {
                row.get(index * NR / 2..).and_then(|row| row.first_chunk()).copied()
            };
            match (panel(first), panel(second)) {
                (Some(first), Some(second)) if (index + 1) * NR <= cols => {
                    interleave_pairs(&first, &second, out);
                }
                _ => {
                    let element = |row: &[Bf16Pair], c: usize| match c < cols {
                        true => row.get(c / 2).map_or(0, |pair| pair[c % 2]),
                        false => 0,
                    };
                    for (c, out) in (index * NR..).zip(out) {
                        *out = [element(first, c), element(second, c)];
                    }
                }
            }
        }
    }
}

/// Pairs each of 32 numbers with one of 32 others.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn interleave_pairs(first: &[Bf16Pair; NR / 2], second: &[Bf16Pair; NR / 2], out: &mut [Bf16Pair]) {
    const ORDERS: [[u16; 32]; 2] = [interleaved(0, 32), interleaved(16, 48)];
    // SAFETY: the arrays fill registers of 32 elements of 16 bits.
    let (first, second) = unsafe {
        (_mm512_loadu_si512(first.as_ptr().cast()), _mm512_loadu_si512(second.as_ptr().cast()))
    };
    for (order, out) in ORDERS.iter().zip(out.as_chunks_mut().0) {
        // SAFETY: as above.
        let order = unsafe { _mm512_loadu_si512(order.as_ptr().cast()) };
        store(_mm512_permutex2var_epi16(first, order, second), out);
    }
}

/// Pairs each element of `first` with the one of `second`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn interleave_panel(first: &[f32; NR], second: &[f32; NR], out: &mut [Bf16Pair]) {
    let halves = first.as_chunks().0.iter().zip(second.as_chunks().0);
    for ((first, second), out) in halves.zip(out.as_chunks_mut().0) {
        store(interleave(first, second), out);
    }
}

/// Pairs each element of `first` with the one of `second`, or with zero if `second` is empty.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn interleave_rows(first: &[f32], second: &[f32], out: &mut [Bf16Pair]) {
    let (firsts, seconds) = (first.as_chunks().0, second.as_chunks().0);
    let (outs, out_rest) = out.as_chunks_mut();
    let start = 16 * outs.len();
    for (index, (first, out)) in firsts.iter().zip(outs).enumerate() {
        store(interleave(first, seconds.get(index).unwrap_or(&[0.0; 16])), out);
    }
    for (offset, out) in out_rest.iter_mut().enumerate() {
        let second = second.get(start + offset).copied().unwrap_or(0.0);
        *out = bf16::pair(first[start + offset], second);
    }
}

/// Pairs sixteen elements with sixteen others.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn interleave(first: &[f32; 16], second: &[f32; 16]) -> __m512i {
    const ORDER: [u16; 32] = interleaved(0, 16);
    // SAFETY: the arrays fill registers: 16 elements of 32 bits, 32 elements of 16 bits. Bits of any
    // vector are valid in another of the same size.
    unsafe {
        let low = _mm512_loadu_ps(first.as_ptr());
        let high = _mm512_loadu_ps(second.as_ptr());
        let halves: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
        _mm512_permutexvar_epi16(_mm512_loadu_si512(ORDER.as_ptr().cast()), halves)
    }
}

/// The order of elements that interleaves those from `first` on with those from `second` on.
pub(crate) const fn interleaved(first: u16, second: u16) -> [u16; 32] {
    let mut order = [0; 32];
    let mut i = 0;
    while i < 16 {
        order[2 * i] = first + i as u16;
        order[2 * i + 1] = second + i as u16;
        i += 1;
    }
    order
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(words: __m512i, out: &mut [Bf16Pair; 16]) {
    // SAFETY: sixteen pairs fill a register.
    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), words) }
}

/// Writes the columns of a `depth` x `rows` source to rows of pairs, `stride` words apart, where `rows` is
/// a multiple of 16. A row is padded with zeros to a multiple of 16 words.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn transpose_pairs(source: &[f32], rows: usize, stride: usize, out: &mut [Bf16Pair]) {
    assert!(rows.is_multiple_of(16));
    let depth = source.len() / rows;
    for column in (0..rows).step_by(16) {
        let at = |d: usize| -> Option<&[f32; 16]> {
            source[(d * rows + column).min(source.len())..].first_chunk()
        };
        for word in (0..depth.div_ceil(2)).step_by(16) {
            let mut pairs = [_mm512_setzero_si512(); 16];
            for (w, pairs) in (word..).zip(&mut pairs) {
                if let Some(first) = at(2 * w) {
                    *pairs = interleave(first, at(2 * w + 1).unwrap_or(&[0.0; 16]));
                }
            }
            for (r, row) in (column..).zip(transposed(pairs)) {
                let out = out[r * stride + word..].first_chunk_mut();
                store(row, out.expect("rows are padded"));
            }
        }
    }
}

micro_kernels!(
    bf16_micro_kernel,
    Bf16Pair,
    "avx512f,avx512bf16",
    |p: *const Bf16Pair| std::mem::transmute::<__m512i, __m512bh>(_mm512_loadu_si512(p.cast())),
    |p: *const Bf16Pair| std::mem::transmute::<__m512i, __m512bh>(_mm512_set1_epi32(
        p.cast::<i32>().read_unaligned()
    )),
    |sum, word, right| _mm512_dpbf16_ps(sum, word, right)
);
