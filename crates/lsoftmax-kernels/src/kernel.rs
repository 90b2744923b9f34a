//! What a kernel path supplies, and the matrix product built on it.
//!
//! Every product of the head has the form `out[r, c] (+)= Σ_d left[r, d] · right[d, c]`. Depth is
//! counted in 32-bit *words*: a word is one f32, or a pair of adjacent bf16 values. This lets a
//! fused multiply-add and a bf16 dot product share one loop.
//!
//! - *left* is read in place: word (r, d) is at `r · row_stride + d · depth_stride`.
//! - *right* is packed in panels of [`Kernel::NR`] columns. A panel is `depth` rows of `NR` words;
//!   the last panel is padded with zeros.
//!
//! As in BLIS, a *micro-kernel* computes a *register block* of up to [`Kernel::MR`] rows by `NR`
//! columns of `out`, with its sums in registers over the whole depth. [`product`] and
//! [`strip_product`] divide `out` into such blocks.
//!
//! A convolution has the same form with the depth in *segments*: each tap of the kernel reads its
//! left and right words at offsets of its own ([`Segment`], [`strip_product`]).
//!
//! The sum over the depth has a fixed order however the work is partitioned, so results do not
//! depend on how it is divided among threads.

use std::ops::Range;

use crate::buffer::Buffer;
use crate::lanes::{LANES, Lanes};

/// One 32-bit step of depth.
///
/// # Safety
/// The type has 32 bits and an alignment of at most 4 bytes, and every bit pattern is valid.
pub(crate) unsafe trait OperandWord: Copy + Default + Send + Sync + 'static {
    /// Elements of depth in a word.
    const ELEMENTS: usize;
}

// SAFETY: 32 bits, and every bit pattern is valid.
unsafe impl OperandWord for f32 {
    const ELEMENTS: usize = 1;
}

/// Two bf16 values, the one of lower depth first.
pub(crate) type Bf16Pair = [u16; 2];

// SAFETY: 32 bits, and every bit pattern is valid.
unsafe impl OperandWord for Bf16Pair {
    const ELEMENTS: usize = 2;
}

/// A left operand: words read in place.
#[derive(Clone, Copy)]
pub(crate) struct LeftOperand<'a, W> {
    pub words: &'a [W],
    pub row_stride: usize,
    pub depth_stride: usize,
}

/// Rows, columns and depth (in words) of a product.
#[derive(Clone, Copy)]
pub(crate) struct ProductShape {
    pub rows: usize,
    pub cols: usize,
    pub depth: usize,
}

/// Offsets, in words, at which a segment of the depth starts in the left and the right operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub left: usize,
    pub right: usize,
}

impl Segment {
    /// The whole depth.
    pub const WHOLE: [Self; 1] = [Self { left: 0, right: 0 }];
}

/// The operand that the next register blocks read again, and that should stay in the L1 cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reused {
    Left,
    Right,
}

/// One register block of a product, as raw parts.
#[derive(Clone, Copy)]
pub(crate) struct MicroKernelArgs<'a, W> {
    pub rows: usize,
    /// Words of depth per segment.
    pub depth: usize,
    pub segments: &'a [Segment],
    pub left: *const W,
    pub row_stride: usize,
    pub depth_stride: usize,
    pub right: *const W,
    pub right_stride: usize,
    pub out: *mut f32,
    pub out_stride: usize,
    /// Whether to add to `out` rather than overwrite it.
    pub add: bool,
    /// Whether to write past the caches; only if the kernel can, and every row of `out` is aligned to 64 bytes.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only AVX-512 does"))]
    pub stream: bool,
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "only AMX can say it to the CPU")
    )]
    pub reused: Reused,
    /// Whether only the first [`NARROW`] columns are wanted. AMX computes the others as well.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "only AVX-512 has wider register blocks")
    )]
    pub narrow: bool,
}

/// Columns of a narrow register block.
pub(crate) const NARROW: usize = 16;

/// The SIMD instructions of a path. A value of the type is proof that the CPU supports them.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// Runs `f` compiled for the instructions. Functions that `f` calls must be
    /// `#[inline(always)]` to be compiled for them as well.
    fn vectorize<R>(self, f: impl FnOnce() -> R) -> R;

    /// `a · b + c`, fused where the path supports it.
    fn mul_add(a: f32, b: f32, c: f32) -> f32;

    /// Registers of one number per channel.
    type Lanes: Lanes;

    fn lanes(self, values: &[f32; LANES]) -> Self::Lanes;

    /// The dot products of some pairs of rows, in f64, where the square of an f32 neither overflows nor
    /// underflows. All rows have the same length. Every path adds in the same order.
    #[inline(always)]
    fn wide_dots<const N: usize>(self, pairs: [(&[f32], &[f32]); N]) -> [f64; N] {
        pairs.map(
            #[inline(always)]
            |(a, b)| {
                let ((a, a_rest), (b, b_rest)) =
                    (a.as_chunks::<WIDE_LANES>(), b.as_chunks::<WIDE_LANES>());
                let mut sums = wide_products(a_rest, b_rest);
                for (a, b) in a.iter().zip(b) {
                    for lane in 0..WIDE_LANES {
                        sums[lane] += f64::from(a[lane]) * f64::from(b[lane]);
                    }
                }
                sums.iter().sum()
            },
        )
    }

    /// Copies numbers to memory that is not read soon, past the caches where the path supports it and `to` is
    /// aligned to 64 bytes. [`Simd::fence`] must follow before another thread reads it.
    #[inline(always)]
    fn stream(self, from: &[f32], to: &mut [f32]) {
        to.copy_from_slice(from);
    }

    /// Completes the stores of [`Simd::stream`].
    #[inline(always)]
    fn fence(self) {}

    /// Asks for memory that will be read soon. The address need not be valid.
    #[inline(always)]
    fn prefetch<T>(self, address: *const T) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction is part of x86-64 and ignores invalid addresses.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = address;
    }
}

/// Partial sums of [`Simd::wide_dots`].
pub(crate) const WIDE_LANES: usize = 16;

/// The products of fewer than [`WIDE_LANES`] numbers, and zeros.
#[inline(always)]
pub(crate) fn wide_products(a: &[f32], b: &[f32]) -> [f64; WIDE_LANES] {
    let mut products = [0.0; WIDE_LANES];
    for (product, (a, b)) in products.iter_mut().zip(a.iter().zip(b)) {
        *product = f64::from(*a) * f64::from(*b);
    }
    products
}

/// A micro-kernel, the type of its operands' words, and their packing.
pub(crate) trait Kernel: Copy + Send + Sync + 'static {
    type Word: OperandWord;
    type Simd: Simd;
    /// State of the thread that must be alive while the micro-kernel runs.
    type Session;
    /// The most rows of a register block.
    const MR: usize;
    /// Columns of a register block, and of a panel of the right operand.
    const NR: usize;
    /// Whether [`MicroKernelArgs::stream`] is supported.
    const STREAMS: bool = false;
    /// Register blocks have a multiple of this many rows, except for the last.
    const ROW_GRANULARITY: usize = 1;
    /// Whether a narrow register block has only [`NARROW`] columns.
    const NARROWS: bool = true;

    fn simd(self) -> Self::Simd;

    /// See [`Simd::vectorize`].
    #[inline(always)]
    fn vectorize<R>(self, f: impl FnOnce() -> R) -> R {
        self.simd().vectorize(f)
    }

    /// Prepares this thread for [`Kernel::micro_kernel`].
    fn session(self) -> Self::Session;

    /// Computes `args.rows` x `NR` outputs.
    ///
    /// # Safety
    /// A [`Kernel::session`] of this thread is alive, and `1 ≤ args.rows ≤ MR`. For every segment,
    /// all words of `left` that `rows`, `depth` and the strides reach, and `depth` rows of `NR`
    /// words of `right`, `right_stride` apart, are readable. `out` is writable for `rows` rows of
    /// `NR` floats, `out_stride` apart; if `args.stream`, they are aligned to 64 bytes. Of a narrow block,
    /// `NARROW` in place of `NR` if `NARROWS`.
    unsafe fn micro_kernel(self, args: MicroKernelArgs<'_, Self::Word>);

    /// Rows of f32 as a left operand: the source itself, or its conversion in `scratch`.
    fn left_rows<'a>(
        self,
        source: &'a [f32],
        depth: usize,
        scratch: &'a mut Buffer,
    ) -> LeftOperand<'a, Self::Word>;

    /// Words from one row of [`Kernel::round_rows`] to the next.
    fn bf16_stride(depth: usize) -> usize {
        depth.div_ceil(Bf16Pair::ELEMENTS)
    }

    /// Rounds rows of `depth` numbers to bf16, in pairs of neighbours; an odd last one is paired with zero.
    fn round_rows(self, source: &[f32], depth: usize, out: &mut [Bf16Pair]);

    /// Rows of [`Kernel::round_rows`] as a left operand: themselves, or their conversion in `scratch`.
    fn left_bf16_rows<'a>(
        self,
        rows: &'a [Bf16Pair],
        depth: usize,
        scratch: &'a mut Buffer,
    ) -> LeftOperand<'a, Self::Word>;

    /// Packs rows of [`Kernel::round_rows`], of `cols` numbers, as a right operand.
    fn pack_right_bf16(self, rows: &[Bf16Pair], cols: usize, out: &mut [Self::Word]);

    /// Words that [`Kernel::left_columns`] needs for a `depth` x `rows` source.
    fn left_columns_len(depth: usize, rows: usize) -> usize {
        depth.div_ceil(Self::Word::ELEMENTS) * rows
    }

    /// Writes the columns of a `depth` x `rows` source to `out` as a left operand.
    /// Returns its row stride and depth stride.
    fn left_columns(self, source: &[f32], rows: usize, out: &mut [Self::Word]) -> (usize, usize);

    /// Packs panels of a `depth` x `cols` source as a right operand: as many as `out` holds,
    /// starting at panel number `panel`.
    fn pack_right(self, source: &[f32], cols: usize, panel: usize, out: &mut [Self::Word]);

    /// Packs the transpose of a `cols` x `depth` source as a right operand.
    fn pack_right_transposed(self, source: &[f32], depth: usize, out: &mut [Self::Word]);
}

/// Calls a micro-kernel that is compiled for a number of rows with the number that `$args` has: one of those
/// listed, of which the last is [`Kernel::MR`].
///
/// # Safety
/// The caller upholds the contract of [`Kernel::micro_kernel`].
macro_rules! micro_kernel_of_rows {
    ($micro_kernel:ident, $args:ident, $($rows:literal)*, $most:literal) => {
        match $args.rows {
            $($rows => {
                // SAFETY: guaranteed by the caller; the number of rows is the one matched.
                unsafe { $micro_kernel::<$rows>($args) }
            })*
            // SAFETY: guaranteed by the caller, and there are no more rows than these.
            _ => unsafe { $micro_kernel::<$most>($args) },
        }
    };
}
pub(crate) use micro_kernel_of_rows;

/// Divides rows into register blocks. They are distributed evenly, so that the last block is not much
/// smaller than the others.
fn row_blocks<K: Kernel>(rows: usize) -> impl Iterator<Item = Range<usize>> {
    let granules = rows.div_ceil(K::ROW_GRANULARITY);
    let blocks = granules.div_ceil(K::MR / K::ROW_GRANULARITY);
    let start = move |block: usize| rows.min(block * granules / blocks * K::ROW_GRANULARITY);
    (0..blocks).map(move |block| start(block)..start(block + 1))
}

/// Words of a packed right operand of `depth` elements by `cols` columns.
pub(crate) fn right_len<K: Kernel>(depth: usize, cols: usize) -> usize {
    depth.div_ceil(K::Word::ELEMENTS) * cols.next_multiple_of(K::NR)
}

/// What a [`product`] does with its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Overwrite,
    Add,
    /// Overwrites memory that is not read soon.
    Stream,
}

/// `out (+)= left · right`, where `out` has `shape.rows` rows, `out_stride` apart.
///
/// # Panics
/// When an operand or `out` is too small for `shape`.
pub(crate) fn product<K: Kernel>(
    kernel: K,
    left: LeftOperand<'_, K::Word>,
    right: &[K::Word],
    shape: ProductShape,
    out: &mut [f32],
    out_stride: usize,
    output: Output,
) {
    const {
        assert!(
            K::MR * K::NR <= MAX_REGISTER_BLOCK,
            "the edge buffer is too small for a register block"
        )
    };
    let ProductShape { rows, cols, depth } = shape;
    if rows == 0 || cols == 0 {
        return;
    }
    let add = output == Output::Add;
    if depth == 0 {
        if !add {
            (0..rows).for_each(|r| out[r * out_stride..][..cols].fill(0.0));
        }
        return;
    }
    assert!((rows - 1) * left.row_stride + (depth - 1) * left.depth_stride < left.words.len());
    assert!(depth * cols.next_multiple_of(K::NR) <= right.len());
    assert!(cols <= out_stride && (rows - 1) * out_stride + cols <= out.len());

    let streams = output == Output::Stream
        && K::STREAMS
        && (out.as_ptr() as usize).is_multiple_of(64)
        && out_stride.is_multiple_of(16);
    let _session = kernel.session();
    let mut edge = EdgeBlock([0.0f32; MAX_REGISTER_BLOCK]);
    for Range { start, end } in row_blocks::<K>(rows) {
        for col in (0..cols).step_by(K::NR) {
            let width = K::NR.min(cols - col);
            let direct = width == K::NR && (output != Output::Stream || streams);
            let mut args = MicroKernelArgs {
                rows: end - start,
                depth,
                segments: &Segment::WHOLE,
                left: left.words[start * left.row_stride..].as_ptr(),
                row_stride: left.row_stride,
                depth_stride: left.depth_stride,
                right: right[depth * col..].as_ptr(),
                right_stride: K::NR,
                out: edge.0.as_mut_ptr(),
                out_stride: K::NR,
                add: false,
                stream: direct && streams,
                reused: Reused::Left,
                narrow: false,
            };
            if direct {
                args.out = out[start * out_stride + col..].as_mut_ptr();
                args.out_stride = out_stride;
                args.add = add;
            }
            // SAFETY: the assertions above cover every word of left and right. A whole register
            // block lies inside `out`; others are written to `edge`, which holds MR x NR floats. What is
            // streamed is aligned: `out` and its rows are, and columns are multiples of NR.
            unsafe { kernel.micro_kernel(args) };
            if direct {
                continue;
            }
            for r in start..end {
                let row = &edge.0[(r - start) * K::NR..][..width];
                let out = &mut out[r * out_stride + col..][..width];
                match output {
                    Output::Overwrite => out.copy_from_slice(row),
                    Output::Add => out.iter_mut().zip(row).for_each(|(o, e)| *o += e),
                    Output::Stream => kernel.simd().stream(row, out),
                }
            }
        }
    }
    if output == Output::Stream {
        kernel.simd().fence();
    }
}

/// Columns of `out` in a [`strip_product`].
pub(crate) const STRIP_COLS: usize = 32;

/// The most bytes of a right operand that stay in the L1 cache while rows of the left operand are read
/// once each. A larger one is read anew for every register block.
const L1_OPERAND_BYTES: usize = 40 << 10;

/// Words of depth that are summed in registers before they are added to `out`, in f32.
const SHORT_SUM: usize = 256;

/// The operands of a [`strip_product`].
pub(crate) struct StripArgs<'a, W> {
    pub left: LeftOperand<'a, W>,
    /// Rows of words.
    pub right: &'a [W],
    /// From one row of `right` to the next.
    pub right_stride: usize,
    pub segments: &'a [Segment],
    pub rows: usize,
    /// Columns that are wanted, at most [`STRIP_COLS`]. Of the others, some are computed, but if at most
    /// [`NARROW`] are wanted, only those, except by AMX.
    pub cols: usize,
    /// Words of depth per segment.
    pub depth: usize,
    /// From one row of `out` to the next.
    pub out_stride: usize,
}

/// `out (+)= Σ over segments of left · right` for a strip of `out`: any number of rows of [`STRIP_COLS`]
/// columns, of which the first `cols` are wanted.
///
/// # Panics
/// When an operand or `out` is too small.
pub(crate) fn strip_product<K: Kernel>(
    kernel: K,
    _session: &K::Session,
    args: &StripArgs<'_, K::Word>,
    out: &mut [f32],
    add: bool,
) {
    const {
        assert!(
            STRIP_COLS.is_multiple_of(K::NR),
            "a strip must be a whole number of register blocks wide"
        )
    };
    let StripArgs { left, right, right_stride, segments, rows, cols, depth, out_stride } = *args;
    if rows == 0 {
        return;
    }
    let cols = cols.min(STRIP_COLS);
    // The columns that are computed, and read of `right`.
    let width = if cols <= NARROW && K::NARROWS { NARROW } else { STRIP_COLS };
    assert!(width <= out_stride && (rows - 1) * out_stride + width <= out.len());
    assert!(width <= right_stride);
    if depth > 0 && !segments.is_empty() {
        let furthest = |start: fn(&Segment) -> usize| segments.iter().map(start).max().unwrap_or(0);
        let reach = (rows - 1) * left.row_stride + (depth - 1) * left.depth_stride;
        assert!(furthest(|segment| segment.left) + reach < left.words.len());
        assert!(furthest(|segment| segment.right) + depth * right_stride <= right.len());
    }
    // A long f32 sum loses digits, so it is split into shorter ones. In bf16 the rounding of the
    // operands dominates.
    let exact = K::Word::ELEMENTS == 1;
    let part = if exact { (SHORT_SUM / depth.max(1)).max(1) } else { usize::MAX };
    let right_bytes = segments.len() * depth * STRIP_COLS * size_of::<K::Word>();
    let reused = if right_bytes <= L1_OPERAND_BYTES { Reused::Right } else { Reused::Left };
    for Range { start, end } in row_blocks::<K>(rows) {
        for col in (0..cols).step_by(K::NR) {
            let mut args = MicroKernelArgs {
                rows: end - start,
                depth,
                segments,
                left: left.words.as_ptr().wrapping_add(start * left.row_stride),
                row_stride: left.row_stride,
                depth_stride: left.depth_stride,
                right: right.as_ptr().wrapping_add(col),
                right_stride,
                out: out[start * out_stride + col..].as_mut_ptr(),
                out_stride,
                add,
                stream: false,
                reused,
                narrow: cols - col <= NARROW,
            };
            let mut parts = segments.chunks(part);
            args.segments = parts.next().unwrap_or(&[]);
            // SAFETY: the session is alive. The assertions cover all of `out` and every word of
            // left and right that the rows, segments and depth reach.
            unsafe { kernel.micro_kernel(args) };
            for part in parts {
                (args.segments, args.add) = (part, true);
                // SAFETY: as above.
                unsafe { kernel.micro_kernel(args) };
            }
        }
    }
}

/// A register block that is not computed in place.
#[repr(align(64))]
struct EdgeBlock([f32; MAX_REGISTER_BLOCK]);

/// Floats of the largest register block of any path.
const MAX_REGISTER_BLOCK: usize = 32 * 32;
