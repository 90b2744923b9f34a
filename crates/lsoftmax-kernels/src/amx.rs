//! AMX: bf16 pairs by tiles of 16 x 16 sums, four of them at a time.
//!
//! A tile of this path is 32 rows by 32 columns: sums in registers 0 to 3, two of the left operand
//! in 4 and 5, two of the right in 6 and 7. A register holds 16 rows of 16 words, so every product
//! steps 16 words of depth. Where rows or depth end earlier, the operand goes through a buffer
//! padded with zeros.

use crate::avx512_bf16::Avx512Bf16;
use crate::bf16;
use crate::buffer::Buffer;
use crate::kernel::{Kernel, Left, Pair, TileArgs, Word};
use crate::tile::{self, TileConfig, Tiles};

/// Rows, and words of a row, of a register.
const SIDE: usize = 16;
const ROW_BYTES: usize = SIDE * 4;
const ROWS: usize = 2 * SIDE;
const COLS: usize = 2 * SIDE;

const CONFIG: TileConfig = {
    let mut config = TileConfig::new();
    let mut tile = 0;
    while tile < tile::TILES {
        config = config.with(tile, SIDE, ROW_BYTES);
        tile += 1;
    }
    config
};

/// bf16 pairs by AMX. The right operand is that of the path below, and so are the other passes.
#[derive(Clone, Copy)]
pub(crate) struct Amx(Avx512Bf16);

impl Amx {
    pub(crate) fn is_available() -> bool {
        tile::available() && Avx512Bf16::is_available()
    }

    /// # Safety
    /// The CPU has AMX-BF16 and AVX-512 BF16, or an emulator of what it lacks is installed.
    pub(crate) unsafe fn assume() -> Self {
        const { assert!(COLS == Avx512Bf16::COLS) };
        // SAFETY: by the caller's promise.
        Self(unsafe { Avx512Bf16::assume() })
    }
}

/// Steps between rows keep clear of powers of two, which would crowd a few sets of the cache.
fn row_step(words: usize) -> usize {
    words.next_multiple_of(SIDE) + SIDE
}

impl Kernel for Amx {
    type Word = Pair;
    type Vectors = Avx512Bf16;
    type Session = Tiles;
    const ROWS: usize = ROWS;
    const COLS: usize = COLS;
    const GRAIN: usize = SIDE;

    #[inline(always)]
    fn vectors(self) -> Avx512Bf16 {
        self.0
    }

    fn session(self) -> Tiles {
        // SAFETY: `self` is only made where AMX works. The session lives as long as one product,
        // which waits for no other task.
        unsafe { Tiles::configure(&CONFIG) }
    }

    unsafe fn tile(self, args: TileArgs<'_, Pair>) {
        // SAFETY: the caller's contract, and its session has configured the tiles.
        unsafe { sums(args) }
    }

    fn left_rows<'a>(
        self,
        source: &'a [f32],
        depth: usize,
        scratch: &'a mut Buffer,
    ) -> Left<'a, Pair> {
        let words = depth.div_ceil(Pair::ELEMENTS);
        let step = row_step(words);
        scratch.resize(source.len() / depth * step);
        let rows = source.chunks_exact(depth).zip(scratch.words_mut().chunks_exact_mut(step));
        rows.for_each(|(row, out)| self.0.join_neighbours(row, &mut out[..words]));
        Left { words: scratch.words(), row_step: step, depth_step: 1 }
    }

    fn left_columns_len(depth: usize, rows: usize) -> usize {
        row_step(depth.div_ceil(Pair::ELEMENTS)) * rows
    }

    fn left_columns(self, source: &[f32], rows: usize, out: &mut [Pair]) -> (usize, usize) {
        let step = out.len() / rows;
        self.vectorize(
            #[inline(always)]
            || {
                for (word, two) in source.chunks(2 * rows).enumerate() {
                    let (first, second) = two.split_at(rows);
                    for (row, out) in out.chunks_exact_mut(step).enumerate() {
                        let second = second.get(row).copied().unwrap_or(0.0);
                        out[word] = bf16::pair(first[row], second);
                    }
                }
            },
        );
        (step, 1)
    }

    fn pack_right(self, source: &[f32], cols: usize, panel: usize, out: &mut [Pair]) {
        self.0.pack_right(source, cols, panel, out);
    }

    fn pack_right_transposed(self, source: &[f32], depth: usize, out: &mut [Pair]) {
        self.0.pack_right_transposed(source, depth, out);
    }
}

/// # Safety
/// The contract of [`Kernel::tile`] with rows of the left operand a depth step of 1 apart, and the
/// tiles configured by [`CONFIG`].
unsafe fn sums(args: TileArgs<'_, Pair>) {
    debug_assert_eq!(args.depth_step, 1);
    let upper = args.rows.min(SIDE);
    let lower = args.rows - upper;
    // SAFETY: every tile has a shape.
    unsafe {
        tile::zero::<0>();
        tile::zero::<1>();
        tile::zero::<2>();
        tile::zero::<3>();
    }
    for segment in args.segments {
        for start in (0..args.depth).step_by(SIDE) {
            let depth = SIDE.min(args.depth - start);
            let left = args.left.wrapping_add(segment.left + start);
            let right = args.right.wrapping_add(segment.right + start * args.right_step);
            // SAFETY: the caller vouches for `rows` rows of left, `depth` words each, and for
            // `depth` rows of COLS words of right; `load` reads no further.
            unsafe {
                load::<4>(left, args.row_step, upper, depth);
                load::<6>(right, args.right_step, depth, SIDE);
                load::<7>(right.wrapping_add(SIDE), args.right_step, depth, SIDE);
                tile::dot_bf16::<0, 4, 6>();
                tile::dot_bf16::<1, 4, 7>();
                if lower > 0 {
                    load::<5>(left.wrapping_add(SIDE * args.row_step), args.row_step, lower, depth);
                    tile::dot_bf16::<2, 5, 6>();
                    tile::dot_bf16::<3, 5, 7>();
                }
            }
        }
    }
    // SAFETY: `out` has `rows` writable rows of COLS floats; `store` writes no further.
    unsafe {
        store::<0>(args.out, args.out_step, upper, args.add);
        store::<1>(args.out.wrapping_add(SIDE), args.out_step, upper, args.add);
        let out = args.out.wrapping_add(SIDE * args.out_step);
        store::<2>(out, args.out_step, lower, args.add);
        store::<3>(out.wrapping_add(SIDE), args.out_step, lower, args.add);
    }
}

/// Loads `rows` rows of `words` words, `step` words apart; what is missing of the tile is zero.
///
/// # Safety
/// Those words are readable, and the tiles configured by [`CONFIG`].
#[inline(always)]
unsafe fn load<const T: usize>(source: *const Pair, step: usize, rows: usize, words: usize) {
    if rows == SIDE && words == SIDE {
        // SAFETY: a whole tile is readable.
        unsafe { tile::load::<T>(source.cast(), step * 4) };
    } else {
        let mut padded = [[Pair::default(); SIDE]; SIDE];
        for (r, row) in padded.iter_mut().take(rows).enumerate() {
            // SAFETY: the caller vouches for `words` words of each of the `rows` rows.
            let source = unsafe { std::slice::from_raw_parts(source.add(r * step), words) };
            row[..words].copy_from_slice(source);
        }
        // SAFETY: the buffer is a whole tile.
        unsafe { tile::load::<T>(padded.as_ptr().cast(), ROW_BYTES) };
    }
}

/// Stores, or adds, the first `rows` rows of a tile of sums.
///
/// # Safety
/// `rows` rows of 16 floats, `step` apart, are writable, and the tiles configured by [`CONFIG`].
#[inline(always)]
unsafe fn store<const T: usize>(out: *mut f32, step: usize, rows: usize, add: bool) {
    if rows == SIDE && !add {
        // SAFETY: a whole tile is writable.
        unsafe { tile::store::<T>(out.cast(), step * 4) };
        return;
    }
    let mut sums = [[0.0f32; SIDE]; SIDE];
    // SAFETY: the buffer is a whole tile.
    unsafe { tile::store::<T>(sums.as_mut_ptr().cast(), ROW_BYTES) };
    for (r, sums) in sums.iter().take(rows).enumerate() {
        // SAFETY: the caller vouches for 16 floats of each of the `rows` rows.
        let out = unsafe { std::slice::from_raw_parts_mut(out.add(r * step), SIDE) };
        for (o, s) in out.iter_mut().zip(sums) {
            *o = if add { *o + s } else { *s };
        }
    }
}
