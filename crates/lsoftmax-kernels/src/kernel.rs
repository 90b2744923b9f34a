//! What a kernel path supplies, and the one matrix product built on it.
//!
//! Every product of the head has the form `out[r, c] (+)= Σ_d left[r, d] · right[d, c]`. Depth is
//! counted in 32-bit *words*: a word is one f32, or a pair of neighbouring bf16 values. That is how
//! a fused multiply-add and a bf16 dot product share one loop.
//!
//! - *left* is read in place: word (r, d) is at `r · row_step + d · depth_step`.
//! - *right* is packed in panels of [`Kernel::COLS`] columns, each panel `depth` rows of `COLS`
//!   words, the last panel padded with zeros.
//!
//! A convolution has the same form with the depth in *segments*: each tap of the kernel reads its
//! left and right words from a place of its own ([`Segment`], [`strip`]).
//!
//! The sum over the depth runs in one order whatever the partition, so a result never depends on
//! how the work was divided among threads.

use crate::buffer::Buffer;

/// One 32-bit step of depth.
///
/// # Safety
/// The type has 32 bits, an alignment of at most that, and any bits are a value of it.
pub(crate) unsafe trait Word: Copy + Default + Send + Sync + 'static {
    /// Elements of depth in a word.
    const ELEMENTS: usize;
}

// SAFETY: 32 bits, all of them values.
unsafe impl Word for f32 {
    const ELEMENTS: usize = 1;
}

/// Two bf16 values, the lower depth first.
pub(crate) type Pair = [u16; 2];

// SAFETY: 32 bits, all of them values.
unsafe impl Word for Pair {
    const ELEMENTS: usize = 2;
}

/// A left operand: words read in place.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a, W> {
    pub words: &'a [W],
    pub row_step: usize,
    pub depth_step: usize,
}

/// Rows, columns and depth (in words) of a product.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub rows: usize,
    pub cols: usize,
    pub depth: usize,
}

/// Where a segment of the depth starts in the left and in the right operand, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub left: usize,
    pub right: usize,
}

impl Segment {
    /// The whole depth.
    pub const WHOLE: [Self; 1] = [Self { left: 0, right: 0 }];
}

/// One tile of a product, as raw parts.
#[derive(Clone, Copy)]
pub(crate) struct TileArgs<'a, W> {
    pub rows: usize,
    /// Words of depth in a segment.
    pub depth: usize,
    pub segments: &'a [Segment],
    pub left: *const W,
    pub row_step: usize,
    pub depth_step: usize,
    pub right: *const W,
    pub right_step: usize,
    pub out: *mut f32,
    pub out_step: usize,
    pub add: bool,
}

/// The vector instructions of a path: a value of the type is proof that the CPU has them.
pub(crate) trait Vectors: Copy + Send + Sync + 'static {
    /// Runs `f` compiled for the instructions. What `f` calls must be `#[inline(always)]` to profit.
    fn vectorize<R>(self, f: impl FnOnce() -> R) -> R;

    /// `a · b + c`, fused where the path has it.
    fn mul_add(a: f32, b: f32, c: f32) -> f32;
}

/// A way to multiply: the words of its operands, how they are laid out, and a tile of the product.
pub(crate) trait Kernel: Copy + Send + Sync + 'static {
    type Word: Word;
    type Vectors: Vectors;
    /// What must be alive while tiles are computed.
    type Session;
    /// Rows of `out` that one tile covers at most.
    const ROWS: usize;
    /// Columns of `out` that one tile covers, and the width of a panel of the right operand.
    const COLS: usize;
    /// A strip is cut into tiles of whole grains of rows.
    const GRAIN: usize = 1;

    fn vectors(self) -> Self::Vectors;

    /// See [`Vectors::vectorize`].
    #[inline(always)]
    fn vectorize<R>(self, f: impl FnOnce() -> R) -> R {
        self.vectors().vectorize(f)
    }

    /// Prepares this thread for [`Kernel::tile`].
    fn session(self) -> Self::Session;

    /// Computes `args.rows` x `COLS` outputs.
    ///
    /// # Safety
    /// A [`Kernel::session`] of this thread is alive; `1 ≤ args.rows ≤ ROWS`. From the start of
    /// every segment, every word that `rows`, `depth` and the steps reach from `left`, and `depth`
    /// rows of `COLS` words, `right_step` apart, from `right`, are readable; `out` is writable for
    /// `rows` rows of `COLS` floats, `out_step` apart.
    unsafe fn tile(self, args: TileArgs<'_, Self::Word>);

    /// Rows of f32 as a left operand: the source itself, or its conversion in `scratch`.
    fn left_rows<'a>(
        self,
        source: &'a [f32],
        depth: usize,
        scratch: &'a mut Buffer,
    ) -> Left<'a, Self::Word>;

    /// Words that [`Kernel::left_columns`] needs for a `depth` x `rows` source.
    fn left_columns_len(depth: usize, rows: usize) -> usize {
        depth.div_ceil(Self::Word::ELEMENTS) * rows
    }

    /// The columns of a `depth` x `rows` source as a left operand, written to `out`.
    /// Returns its row and depth step.
    fn left_columns(self, source: &[f32], rows: usize, out: &mut [Self::Word]) -> (usize, usize);

    /// Packs panels of a `depth` x `cols` source as a right operand, from the one numbered `panel`
    /// on, as many as `out` holds.
    fn pack_right(self, source: &[f32], cols: usize, panel: usize, out: &mut [Self::Word]);

    /// Packs the transpose of a `cols` x `depth` source as a right operand.
    fn pack_right_transposed(self, source: &[f32], depth: usize, out: &mut [Self::Word]);
}

/// Words of a packed right operand of `depth` elements by `cols` columns.
pub(crate) fn right_len<K: Kernel>(depth: usize, cols: usize) -> usize {
    depth.div_ceil(K::Word::ELEMENTS) * cols.next_multiple_of(K::COLS)
}

/// `out (+)= left · right`; `out` has `extent.rows` rows, `out_step` apart.
///
/// # Panics
/// When an operand or `out` is too small for `extent`.
pub(crate) fn product<K: Kernel>(
    kernel: K,
    left: Left<'_, K::Word>,
    right: &[K::Word],
    extent: Extent,
    out: &mut [f32],
    out_step: usize,
    add: bool,
) {
    const { assert!(K::ROWS * K::COLS <= MAX_TILE, "an edge tile has room") };
    let Extent { rows, cols, depth } = extent;
    if rows == 0 || cols == 0 {
        return;
    }
    if depth == 0 {
        if !add {
            (0..rows).for_each(|r| out[r * out_step..][..cols].fill(0.0));
        }
        return;
    }
    assert!((rows - 1) * left.row_step + (depth - 1) * left.depth_step < left.words.len());
    assert!(depth * cols.next_multiple_of(K::COLS) <= right.len());
    assert!(cols <= out_step && (rows - 1) * out_step + cols <= out.len());

    let _session = kernel.session();
    let mut edge = [0.0f32; MAX_TILE];
    let panels = rows.div_ceil(K::ROWS);
    for panel in 0..panels {
        // Rows are spread evenly: no sliver of a tile at the end.
        let (start, end) = (panel * rows / panels, (panel + 1) * rows / panels);
        for col in (0..cols).step_by(K::COLS) {
            let width = K::COLS.min(cols - col);
            let whole = width == K::COLS;
            let mut args = TileArgs {
                rows: end - start,
                depth,
                segments: &Segment::WHOLE,
                left: left.words[start * left.row_step..].as_ptr(),
                row_step: left.row_step,
                depth_step: left.depth_step,
                right: right[depth * col..].as_ptr(),
                right_step: K::COLS,
                out: edge.as_mut_ptr(),
                out_step: K::COLS,
                add: false,
            };
            if whole {
                args.out = out[start * out_step + col..].as_mut_ptr();
                args.out_step = out_step;
                args.add = add;
            }
            // SAFETY: the assertions above cover every word of left and right; a whole tile lies
            // inside `out`, and a partial one goes to `edge`, which holds ROWS x COLS floats.
            unsafe { kernel.tile(args) };
            if !whole {
                for r in start..end {
                    let row = &edge[(r - start) * K::COLS..][..width];
                    for (o, e) in out[r * out_step + col..][..width].iter_mut().zip(row) {
                        *o = if add { *o + e } else { *e };
                    }
                }
            }
        }
    }
}

/// Columns of a [`strip`].
pub(crate) const STRIP_COLS: usize = 32;

/// Words of depth that are summed before they are added to the rest.
const SHORT_SUM: usize = 256;

/// The operands of a [`strip`], with the steps between their words.
pub(crate) struct StripArgs<'a, W> {
    /// The first row's words are counted from here; see [`Left`].
    pub left: Left<'a, W>,
    /// Rows of [`STRIP_COLS`] words, one after the other.
    pub right: &'a [W],
    pub segments: &'a [Segment],
    pub rows: usize,
    /// Words of depth in a segment.
    pub depth: usize,
}

/// `out (+)= Σ over segments of left · right`: any number of rows, 32 columns, rows of `out` 32 apart.
///
/// # Panics
/// When an operand or `out` is too small.
pub(crate) fn strip<K: Kernel>(
    kernel: K,
    _session: &K::Session,
    args: &StripArgs<'_, K::Word>,
    out: &mut [f32],
    add: bool,
) {
    const { assert!(STRIP_COLS.is_multiple_of(K::COLS), "whole tiles fill a strip") };
    let StripArgs { left, right, segments, rows, depth } = *args;
    if rows == 0 {
        return;
    }
    assert!(rows * STRIP_COLS <= out.len());
    if depth > 0 && !segments.is_empty() {
        let furthest = |start: fn(&Segment) -> usize| segments.iter().map(start).max().unwrap_or(0);
        let reach = (rows - 1) * left.row_step + (depth - 1) * left.depth_step;
        assert!(furthest(|segment| segment.left) + reach < left.words.len());
        assert!(furthest(|segment| segment.right) + depth * STRIP_COLS <= right.len());
    }
    // Long sums lose digits: in f32 they are made of shorter ones. bf16 has lost more than that.
    let exact = K::Word::ELEMENTS == 1;
    let part = if exact { (SHORT_SUM / depth.max(1)).max(1) } else { usize::MAX };
    let grains = rows.div_ceil(K::GRAIN);
    let tiles = grains.div_ceil(K::ROWS / K::GRAIN);
    for tile in 0..tiles {
        // Rows are spread evenly: no sliver of a tile at the end.
        let start = tile * grains / tiles * K::GRAIN;
        let end = rows.min((tile + 1) * grains / tiles * K::GRAIN);
        for col in (0..STRIP_COLS).step_by(K::COLS) {
            let mut args = TileArgs {
                rows: end - start,
                depth,
                segments,
                left: left.words.as_ptr().wrapping_add(start * left.row_step),
                row_step: left.row_step,
                depth_step: left.depth_step,
                right: right.as_ptr().wrapping_add(col),
                right_step: STRIP_COLS,
                out: out[start * STRIP_COLS + col..].as_mut_ptr(),
                out_step: STRIP_COLS,
                add,
            };
            let mut parts = segments.chunks(part);
            args.segments = parts.next().unwrap_or(&[]);
            // SAFETY: the session is alive; the assertions cover every word of left and right that
            // the rows, segments and depth reach, and all of `out`.
            unsafe { kernel.tile(args) };
            for part in parts {
                (args.segments, args.add) = (part, true);
                // SAFETY: as above.
                unsafe { kernel.tile(args) };
            }
        }
    }
}

/// Floats of the largest tile of any path.
const MAX_TILE: usize = 32 * 32;
