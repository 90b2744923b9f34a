//! AMX: dot products of bf16 pairs in tiles of 16 x 16 sums.
//!
//! A register block is 32 rows by 32 columns: tiles 0 to 3 hold its sums, 4 and 5 the left operand,
//! 6 and 7 the right operand. A tile holds 16 rows of 16 words, so each product covers 16 words of
//! depth. Where rows or depth end earlier, the operand is copied to a buffer padded with zeros.
//!
//! A product that adds to its output starts from tiles that hold it. The operand that the next register
//! blocks do not read again is loaded without displacing the other one from the L1 cache.

use crate::amx_tile::{self, TileConfig, TileGuard};
use crate::avx512_bf16::Avx512Bf16;
use crate::buffer::Buffer;
use crate::kernel::{Bf16Pair, Kernel, LeftOperand, MicroKernelArgs, OperandWord, Reused};

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
    const NARROWS: bool = false;
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
        let stride = Self::bf16_stride(depth);
        scratch.resize(source.len() / depth * stride);
        self.round_rows(source, depth, scratch.words_mut());
        LeftOperand { words: scratch.words(), row_stride: stride, depth_stride: 1 }
    }

    fn bf16_stride(depth: usize) -> usize {
        row_stride(depth.div_ceil(Bf16Pair::ELEMENTS))
    }

    fn round_rows(self, source: &[f32], depth: usize, out: &mut [Bf16Pair]) {
        self.0.pair_rows(source, depth, Self::bf16_stride(depth), out);
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
        self.0.pack_pair_rows(rows, Self::bf16_stride(cols), cols, out);
    }

    fn left_columns_len(depth: usize, rows: usize) -> usize {
        row_stride(depth.div_ceil(Bf16Pair::ELEMENTS)) * rows
    }

    fn left_columns(self, source: &[f32], rows: usize, out: &mut [Bf16Pair]) -> (usize, usize) {
        let stride = out.len() / rows;
        self.0.transpose_pairs(source, rows, stride, out);
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
    let whole = args.depth.is_multiple_of(SIDE);
    // SAFETY: the caller upholds the contract, and rows and depth are matched here.
    unsafe {
        match (args.rows, args.reused) {
            (MR, Reused::Left) if whole => whole_tiles::<2, LEFT>(args),
            (MR, Reused::Right) if whole => whole_tiles::<2, RIGHT>(args),
            (SIDE, Reused::Left) if whole => whole_tiles::<1, LEFT>(args),
            (SIDE, Reused::Right) if whole => whole_tiles::<1, RIGHT>(args),
            _ => partial_tiles(args),
        }
    }
}

// The reused operand as a const parameter.
const LEFT: bool = false;
const RIGHT: bool = true;

/// A register block of `BANDS` times 16 rows whose depth is a multiple of 16: no branches in the loop.
///
/// # Safety
/// As for [`register_block`].
unsafe fn whole_tiles<const BANDS: usize, const REUSED: bool>(args: MicroKernelArgs<'_, Bf16Pair>) {
    let [left_stride, right_stride, out_stride] =
        [args.row_stride, args.right_stride, args.out_stride].map(|stride| stride * 4);
    let lower = SIDE * left_stride;
    let out = args.out.cast::<u8>();
    let sums = [0, ROW_BYTES].map(|column| out.wrapping_add(column));
    let lower_sums = sums.map(|sums| sums.wrapping_add(SIDE * out_stride));
    // SAFETY: every tile has a shape. `out` has 16 or 32 writable rows of NR floats.
    unsafe {
        if args.add {
            amx_tile::load::<0>(sums[0], out_stride);
            amx_tile::load::<1>(sums[1], out_stride);
            if BANDS == 2 {
                amx_tile::load::<2>(lower_sums[0], out_stride);
                amx_tile::load::<3>(lower_sums[1], out_stride);
            }
        } else {
            amx_tile::zero::<0>();
            amx_tile::zero::<1>();
            amx_tile::zero::<2>();
            amx_tile::zero::<3>();
        }
    }
    for segment in args.segments {
        let mut left = args.left.wrapping_add(segment.left).cast::<u8>();
        let mut right = args.right.wrapping_add(segment.right).cast::<u8>();
        for _ in 0..args.depth / SIDE {
            // SAFETY: the caller guarantees 16 or 32 readable rows of left and `depth` rows of NR words
            // of right.
            unsafe {
                if REUSED == RIGHT {
                    amx_tile::load_once::<4>(left, left_stride);
                    amx_tile::load::<6>(right, right_stride);
                    amx_tile::load::<7>(right.wrapping_add(ROW_BYTES), right_stride);
                } else {
                    amx_tile::load::<4>(left, left_stride);
                    amx_tile::load_once::<6>(right, right_stride);
                    amx_tile::load_once::<7>(right.wrapping_add(ROW_BYTES), right_stride);
                }
                amx_tile::dot_bf16::<0, 4, 6>();
                amx_tile::dot_bf16::<1, 4, 7>();
                if BANDS == 2 {
                    if REUSED == RIGHT {
                        amx_tile::load_once::<5>(left.wrapping_add(lower), left_stride);
                    } else {
                        amx_tile::load::<5>(left.wrapping_add(lower), left_stride);
                    }
                    amx_tile::dot_bf16::<2, 5, 6>();
                    amx_tile::dot_bf16::<3, 5, 7>();
                }
            }
            left = left.wrapping_add(ROW_BYTES);
            right = right.wrapping_add(SIDE * right_stride);
        }
    }
    // SAFETY: as above.
    unsafe {
        amx_tile::store::<0>(sums[0], out_stride);
        amx_tile::store::<1>(sums[1], out_stride);
        if BANDS == 2 {
            amx_tile::store::<2>(lower_sums[0], out_stride);
            amx_tile::store::<3>(lower_sums[1], out_stride);
        }
    }
}

/// A register block of any number of rows and any depth: parts of tiles are copied to and from buffers.
///
/// # Safety
/// As for [`register_block`].
#[cold]
unsafe fn partial_tiles(args: MicroKernelArgs<'_, Bf16Pair>) {
    let upper = args.rows.min(SIDE);
    let lower = args.rows - upper;
    let out = args.out;
    let lower_out = out.wrapping_add(SIDE * args.out_stride);
    // SAFETY: every tile has a shape, and `out` has `rows` readable rows of NR floats.
    unsafe {
        if args.add {
            load_part::<0, _>(out, args.out_stride, upper, SIDE);
            load_part::<1, _>(out.wrapping_add(SIDE), args.out_stride, upper, SIDE);
            load_part::<2, _>(lower_out, args.out_stride, lower, SIDE);
            load_part::<3, _>(lower_out.wrapping_add(SIDE), args.out_stride, lower, SIDE);
        } else {
            amx_tile::zero::<0>();
            amx_tile::zero::<1>();
            amx_tile::zero::<2>();
            amx_tile::zero::<3>();
        }
    }
    for segment in args.segments {
        for start in (0..args.depth).step_by(SIDE) {
            let depth = SIDE.min(args.depth - start);
            let left = args.left.wrapping_add(segment.left + start);
            let right = args.right.wrapping_add(segment.right + start * args.right_stride);
            // SAFETY: the caller guarantees `rows` readable rows of left, `depth` words each, and
            // `depth` rows of NR words of right; `load_part` reads no further.
            unsafe {
                load_part::<4, _>(left, args.row_stride, upper, depth);
                load_part::<6, _>(right, args.right_stride, depth, SIDE);
                load_part::<7, _>(right.wrapping_add(SIDE), args.right_stride, depth, SIDE);
                amx_tile::dot_bf16::<0, 4, 6>();
                amx_tile::dot_bf16::<1, 4, 7>();
                if lower > 0 {
                    let left = left.wrapping_add(SIDE * args.row_stride);
                    load_part::<5, _>(left, args.row_stride, lower, depth);
                    amx_tile::dot_bf16::<2, 5, 6>();
                    amx_tile::dot_bf16::<3, 5, 7>();
                }
            }
        }
    }
    // SAFETY: `out` has `rows` writable rows of NR floats; `store_part` writes no further.
    unsafe {
        store_part::<0>(out, args.out_stride, upper);
        store_part::<1>(out.wrapping_add(SIDE), args.out_stride, upper);
        store_part::<2>(lower_out, args.out_stride, lower);
        store_part::<3>(lower_out.wrapping_add(SIDE), args.out_stride, lower);
    }
}

/// Loads `rows` rows of `words` words, `stride` words apart, and zeros into the rest of the tile.
///
/// # Safety
/// The words are readable, and the tiles are configured by [`CONFIG`].
unsafe fn load_part<const T: usize, W: OperandWord>(
    source: *const W,
    stride: usize,
    rows: usize,
    words: usize,
) {
    if rows == SIDE && words == SIDE {
        // SAFETY: a whole tile is readable.
        unsafe { amx_tile::load::<T>(source.cast(), stride * 4) };
    } else {
        let mut padded = [[W::default(); SIDE]; SIDE];
        for (r, row) in padded.iter_mut().take(rows).enumerate() {
            // SAFETY: the caller guarantees `words` readable words in each of the `rows` rows.
            let source = unsafe { std::slice::from_raw_parts(source.add(r * stride), words) };
            row[..words].copy_from_slice(source);
        }
        // SAFETY: the buffer is a whole tile.
        unsafe { amx_tile::load::<T>(padded.as_ptr().cast(), ROW_BYTES) };
    }
}

/// Stores the first `rows` rows of a tile of sums.
///
/// # Safety
/// `rows` rows of 16 floats, `stride` apart, are writable, and the tiles are configured by [`CONFIG`].
unsafe fn store_part<const T: usize>(out: *mut f32, stride: usize, rows: usize) {
    if rows == SIDE {
        // SAFETY: a whole tile is writable.
        unsafe { amx_tile::store::<T>(out.cast(), stride * 4) };
        return;
    }
    let mut sums = [[0.0f32; SIDE]; SIDE];
    // SAFETY: the buffer is a whole tile.
    unsafe { amx_tile::store::<T>(sums.as_mut_ptr().cast(), ROW_BYTES) };
    for (r, sums) in sums.iter().take(rows).enumerate() {
        // SAFETY: the caller guarantees 16 writable floats in each of the `rows` rows.
        unsafe { std::slice::from_raw_parts_mut(out.add(r * stride), SIDE) }.copy_from_slice(sums);
    }
}
