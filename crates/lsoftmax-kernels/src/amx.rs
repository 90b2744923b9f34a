//! AMX: dot products of bf16 pairs in tiles of 16 x 16 sums.
//!
//! A register block is 32 rows by 32 columns: tiles 0 to 3 hold its sums, 4 and 5 the left operand,
//! 6 and 7 the right operand. A tile holds 16 rows of 16 words, so each product covers 16 words of
//! depth. Where rows or depth end earlier, the operand is copied to a buffer padded with zeros.

use crate::amx_tile::{self, TileConfig, TileGuard};
use crate::avx512_bf16::Avx512Bf16;
use crate::bf16;
use crate::buffer::Buffer;
use crate::kernel::{Bf16Pair, Kernel, LeftOperand, MicroKernelArgs, OperandWord};

/// Rows of a tile, and words per row.
const SIDE: usize = 16;
const ROW_BYTES: usize = SIDE * 4;
const MR: usize = 2 * SIDE;
const NR: usize = 2 * SIDE;

const CONFIG: TileConfig = {
    let mut config = TileConfig::new();
    let mut tile = 0;
    while tile < amx_tile::TILES {
        config = config.with(tile, SIDE, ROW_BYTES);
        tile += 1;
    }
    config
};

/// bf16 pairs, multiplied by AMX. The right operand is packed as by the AVX-512 BF16 path, which also
/// runs everything that is not a product.
#[derive(Clone, Copy)]
pub(crate) struct Amx(Avx512Bf16);

impl Amx {
    pub(crate) fn is_available() -> bool {
        amx_tile::available() && Avx512Bf16::is_available()
    }

    /// # Safety
    /// The CPU has AMX-BF16 and AVX-512 BF16, or what it lacks is emulated.
    pub(crate) unsafe fn assume() -> Self {
        const { assert!(NR == Avx512Bf16::NR) };
        // SAFETY: guaranteed by the caller.
        Self(unsafe { Avx512Bf16::assume() })
    }
}

/// The stride of rows of `words` words. It avoids powers of two, which would map all rows to a few
/// cache sets.
fn row_stride(words: usize) -> usize {
    words.next_multiple_of(SIDE) + SIDE
}

impl Kernel for Amx {
    type Word = Bf16Pair;
    type Simd = Avx512Bf16;
    type Session = TileGuard;
    const MR: usize = MR;
    const NR: usize = NR;
    const ROW_GRANULARITY: usize = SIDE;

    #[inline(always)]
    fn simd(self) -> Avx512Bf16 {
        self.0
    }

    fn session(self) -> TileGuard {
        // SAFETY: `self` exists only where AMX works. A session lives for one product, which does
        // not wait for other tasks.
        unsafe { TileGuard::configure(&CONFIG) }
    }

    unsafe fn micro_kernel(self, args: MicroKernelArgs<'_, Bf16Pair>) {
        // SAFETY: the caller upholds the contract, and its session has configured the tiles.
        unsafe { register_block(args) }
    }

    fn left_rows<'a>(
        self,
        source: &'a [f32],
        depth: usize,
        scratch: &'a mut Buffer,
    ) -> LeftOperand<'a, Bf16Pair> {
        let words = depth.div_ceil(Bf16Pair::ELEMENTS);
        let stride = row_stride(words);
        scratch.resize(source.len() / depth * stride);
        let rows = source.chunks_exact(depth).zip(scratch.words_mut().chunks_exact_mut(stride));
        rows.for_each(|(row, out)| self.0.pair_neighbours(row, &mut out[..words]));
        LeftOperand { words: scratch.words(), row_stride: stride, depth_stride: 1 }
    }

    fn left_columns_len(depth: usize, rows: usize) -> usize {
        row_stride(depth.div_ceil(Bf16Pair::ELEMENTS)) * rows
    }

    fn left_columns(self, source: &[f32], rows: usize, out: &mut [Bf16Pair]) -> (usize, usize) {
        let stride = out.len() / rows;
        self.vectorize(
            #[inline(always)]
            || {
                for (word, two) in source.chunks(2 * rows).enumerate() {
                    let (first, second) = two.split_at(rows);
                    for (row, out) in out.chunks_exact_mut(stride).enumerate() {
                        let second = second.get(row).copied().unwrap_or(0.0);
                        out[word] = bf16::pair(first[row], second);
                    }
                }
            },
        );
        (stride, 1)
    }

    fn pack_right(self, source: &[f32], cols: usize, panel: usize, out: &mut [Bf16Pair]) {
        self.0.pack_right(source, cols, panel, out);
    }

    fn pack_right_transposed(self, source: &[f32], depth: usize, out: &mut [Bf16Pair]) {
        self.0.pack_right_transposed(source, depth, out);
    }
}

/// # Safety
/// The contract of [`Kernel::micro_kernel`] with a depth stride of 1, and the tiles configured by
/// [`CONFIG`].
unsafe fn register_block(args: MicroKernelArgs<'_, Bf16Pair>) {
    debug_assert_eq!(args.depth_stride, 1);
    let upper = args.rows.min(SIDE);
    let lower = args.rows - upper;
    // SAFETY: every tile has a shape.
    unsafe {
        amx_tile::zero::<0>();
        amx_tile::zero::<1>();
        amx_tile::zero::<2>();
        amx_tile::zero::<3>();
    }
    for segment in args.segments {
        for start in (0..args.depth).step_by(SIDE) {
            let depth = SIDE.min(args.depth - start);
            let left = args.left.wrapping_add(segment.left + start);
            let right = args.right.wrapping_add(segment.right + start * args.right_stride);
            // SAFETY: the caller guarantees `rows` readable rows of left, `depth` words each, and
            // `depth` rows of NR words of right; `load` reads no further.
            unsafe {
                load::<4>(left, args.row_stride, upper, depth);
                load::<6>(right, args.right_stride, depth, SIDE);
                load::<7>(right.wrapping_add(SIDE), args.right_stride, depth, SIDE);
                amx_tile::dot_bf16::<0, 4, 6>();
                amx_tile::dot_bf16::<1, 4, 7>();
                if lower > 0 {
                    load::<5>(
                        left.wrapping_add(SIDE * args.row_stride),
                        args.row_stride,
                        lower,
                        depth,
                    );
                    amx_tile::dot_bf16::<2, 5, 6>();
                    amx_tile::dot_bf16::<3, 5, 7>();
                }
            }
        }
    }
    // SAFETY: `out` has `rows` writable rows of NR floats; `store` writes no further.
    unsafe {
        store::<0>(args.out, args.out_stride, upper, args.add);
        store::<1>(args.out.wrapping_add(SIDE), args.out_stride, upper, args.add);
        let out = args.out.wrapping_add(SIDE * args.out_stride);
        store::<2>(out, args.out_stride, lower, args.add);
        store::<3>(out.wrapping_add(SIDE), args.out_stride, lower, args.add);
    }
}

/// Loads `rows` rows of `words` words, `stride` words apart, and zeros into the rest of the tile.
///
/// # Safety
/// The words are readable, and the tiles are configured by [`CONFIG`].
#[inline(always)]
unsafe fn load<const T: usize>(source: *const Bf16Pair, stride: usize, rows: usize, words: usize) {
    if rows == SIDE && words == SIDE {
        // SAFETY: a whole tile is readable.
        unsafe { amx_tile::load::<T>(source.cast(), stride * 4) };
    } else {
        let mut padded = [[Bf16Pair::default(); SIDE]; SIDE];
        for (r, row) in padded.iter_mut().take(rows).enumerate() {
            // SAFETY: the caller guarantees `words` readable words in each of the `rows` rows.
            let source = unsafe { std::slice::from_raw_parts(source.add(r * stride), words) };
            row[..words].copy_from_slice(source);
        }
        // SAFETY: the buffer is a whole tile.
        unsafe { amx_tile::load::<T>(padded.as_ptr().cast(), ROW_BYTES) };
    }
}

/// Stores the first `rows` rows of a tile of sums, or adds them to `out`.
///
/// # Safety
/// `rows` rows of 16 floats, `stride` apart, are writable, and the tiles are configured by [`CONFIG`].
#[inline(always)]
unsafe fn store<const T: usize>(out: *mut f32, stride: usize, rows: usize, add: bool) {
    if rows == SIDE && !add {
        // SAFETY: a whole tile is writable.
        unsafe { amx_tile::store::<T>(out.cast(), stride * 4) };
        return;
    }
    let mut sums = [[0.0f32; SIDE]; SIDE];
    // SAFETY: the buffer is a whole tile.
    unsafe { amx_tile::store::<T>(sums.as_mut_ptr().cast(), ROW_BYTES) };
    for (r, sums) in sums.iter().take(rows).enumerate() {
        // SAFETY: the caller guarantees 16 writable floats in each of the `rows` rows.
        let out = unsafe { std::slice::from_raw_parts_mut(out.add(r * stride), SIDE) };
        for (o, s) in out.iter_mut().zip(sums) {
            *o = if add { *o + s } else { *s };
        }
    }
}
