//! Wrappers of the AMX instructions that the bf16 matrix kernels use.
//!
//! AMX gives every thread eight tile registers, `tmm0` to `tmm7`, of at most sixteen rows of 64
//! bytes. A [`TileConfig`] says how much of each one is used; [`dot_bf16`] then multiplies two of
//! them into a third. The intrinsics of `core::arch` are unstable, so the wrappers are inline
//! assembly. Each compiles to exactly one instruction, with the tile numbers, which are part of the
//! encoding, as const parameters.
//!
//! # TileGuard and the compiler
//!
//! The contents of a tile must survive from one wrapper to the next, and the compiler does not know
//! about them. This works because the compiler uses tile registers only for the AMX intrinsics: a
//! program with neither those nor C code that uses AMX has them to itself. Wrappers that change
//! tiles declare all eight as clobbered, as `asm!` requires for any register it changes (it cannot
//! name one by a const parameter). That needs no target feature and costs nothing. All blocks are
//! volatile, so they stay in program order.
//!
//! Calling conventions do not preserve tiles: between [`TileGuard::configure`] and the last use of a
//! tile a thread must not run anything else that uses AMX. That includes waiting for rayon, which
//! may run another task of the same kind on the thread meanwhile. Signals and context switches are
//! harmless, because the operating system saves the tiles.

#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code, reason = "AMX is reached through inline assembly")]

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use core::marker::PhantomData;
use std::sync::OnceLock;

/// How many tile registers there are.
pub const TILES: usize = 8;
/// The most rows a tile can have.
pub const MAX_ROWS: usize = 16;
/// The most bytes a row of a tile can have.
pub const MAX_ROW_BYTES: usize = 64;

/// Whether this process can use the instructions of this module.
///
/// The CPU must have AMX-BF16, the operating system must have enabled the tile state, and it must
/// permit this process to use it, which the first call requests. Always false outside Linux.
pub fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE
        .get_or_init(|| cfg!(target_os = "linux") && cpu_has_amx_bf16() && request_permission())
}

/// Whether the CPU has AMX-BF16 and the operating system has enabled the tile state.
fn cpu_has_amx_bf16() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const AMX_BF16_AND_TILE: u32 = 1 << 22 | 1 << 24;
    const XTILECFG_AND_XTILEDATA: u64 = 1 << 17 | 1 << 18;

    __cpuid(0).eax >= 7
        && __cpuid(1).ecx & OSXSAVE != 0
        && __cpuid_count(7, 0).edx & AMX_BF16_AND_TILE == AMX_BF16_AND_TILE
        // SAFETY: OSXSAVE says that XGETBV is enabled.
        && unsafe { _xgetbv(0) } & XTILECFG_AND_XTILEDATA == XTILECFG_AND_XTILEDATA
}

/// Asks Linux for permission to use the tile data and returns whether it was granted. Linux allocates
/// the 8 KB per thread on first use.
///
/// The permission belongs to the whole process (the kernel keeps it with the thread group leader):
/// it applies to existing and future threads, is inherited by `fork` and dropped by `exec`. Asking
/// again is harmless. Linux refuses if any thread has an alternate signal stack too small for a
/// signal frame with tiles; those of Rust's standard library are large enough.
fn request_permission() -> bool {
    const SYS_ARCH_PRCTL: usize = 158;
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const XFEATURE_XTILEDATA: usize = 18;

    let status: isize;
    // SAFETY: this is the Linux system call convention (called on Linux only), and the call neither
    // reads nor writes memory of the process.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") SYS_ARCH_PRCTL => status,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack, nomem),
        );
    }
    status == 0
}

/// The shapes of the eight tiles, in the memory layout of LDTILECFG (palette 1).
///
/// Tiles without a shape must not be used.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

const _: () = assert!(size_of::<TileConfig>() == 64);

impl TileConfig {
    /// A configuration in which no tile has a shape yet.
    pub const fn new() -> Self {
        Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] }
    }

    /// Gives `tile` a shape of `rows` rows of `row_bytes` bytes.
    ///
    /// # Panics
    ///
    /// If the tile does not exist, or the shape is empty, larger than a tile, or does not have rows
    /// of whole 32-bit words: the instructions would fault.
    #[must_use]
    pub const fn with(mut self, tile: usize, rows: usize, row_bytes: usize) -> Self {
        assert!(tile < TILES, "there are eight tiles");
        assert!(0 < rows && rows <= MAX_ROWS, "a tile has 1 to 16 rows");
        assert!(
            0 < row_bytes && row_bytes <= MAX_ROW_BYTES && row_bytes.is_multiple_of(4),
            "a row of a tile has 4, 8, ... 64 bytes"
        );
        self.rows[tile] = rows as u8;
        self.row_bytes[tile] = row_bytes as u16;
        self
    }
}

impl Default for TileConfig {
    fn default() -> Self {
        Self::new()
    }
}

/// Keeps the tiles of this thread configured; dropping it releases them.
///
/// Releasing matters: while a thread's tiles are in use, each of its context switches saves 8 KB
/// more.
#[derive(Debug)]
#[must_use = "the tiles are released when this is dropped"]
pub struct TileGuard {
    // The tiles belong to the thread, so neither `Send` nor `Sync`.
    of_this_thread: PhantomData<*mut ()>,
}

impl TileGuard {
    /// Configures the tiles of this thread, see [`configure`].
    ///
    /// A second guard on the thread replaces the configuration of the first, and dropping either
    /// releases the tiles.
    ///
    /// # Safety
    ///
    /// As for [`configure`].
    #[inline(always)]
    pub unsafe fn configure(config: &TileConfig) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { configure(config) };
        Self { of_this_thread: PhantomData }
    }
}

impl Drop for TileGuard {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the guard was made by an AMX instruction on this thread, so AMX works.
        unsafe { release() };
    }
}

/// `asm!` for an instruction that changes tiles.
macro_rules! change_tiles {
    ($($arguments:tt)*) => {
        asm!(
            $($arguments)*
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack, preserves_flags),
        )
    };
}

/// Gives the tiles of this thread the shapes in `config`, and zeroes them all (LDTILECFG).
///
/// # Safety
///
/// [`available`] must have returned true, or something must emulate the instructions of this module.
#[inline(always)]
pub unsafe fn configure(config: &TileConfig) {
    // SAFETY: the instruction reads the 64 bytes of `config`, which are valid by construction.
    unsafe {
        change_tiles!(
            "ldtilecfg [{config}]",
            config = in(reg) config,
            options(readonly),
        );
    }
}

/// Removes the configuration of this thread's tiles, and zeroes them (TILERELEASE).
///
/// # Safety
///
/// As for [`configure`].
#[inline(always)]
pub unsafe fn release() {
    // SAFETY: the instruction touches tile state only.
    unsafe { change_tiles!("tilerelease", options(nomem),) };
}

/// Zeroes tile `T` (TILEZERO).
///
/// # Safety
///
/// The configuration of this thread must give `T` a shape.
#[inline(always)]
pub unsafe fn zero<const T: usize>() {
    const { assert!(T < TILES) };
    // SAFETY: the instruction touches tile state only, and does not fault, as the caller guarantees.
    unsafe { change_tiles!("tilezero tmm{tile}", tile = const T, options(nomem),) };
}

/// Loads tile `T` from memory, with its first row at `source` and each further row `stride` bytes
/// after the one before (TILELOADD). Nothing needs to be aligned.
///
/// # Safety
///
/// The configuration of this thread must give `T` a shape, and every row of that shape must be
/// readable.
#[inline(always)]
pub unsafe fn load<const T: usize>(source: *const u8, stride: usize) {
    const { assert!(T < TILES) };
    // SAFETY: the caller guarantees that the tile has a shape and that the memory is readable.
    unsafe {
        change_tiles!(
            "tileloadd tmm{tile}, [{source} + {stride}*1]",
            tile = const T,
            source = in(reg) source,
            stride = in(reg) stride,
            options(readonly),
        );
    }
}

/// As [`load`], for memory that will not be read again soon (TILELOADDT1): the CPU need not keep it in the
/// L1 cache.
///
/// # Safety
///
/// As for [`load`].
#[inline(always)]
pub unsafe fn load_once<const T: usize>(source: *const u8, stride: usize) {
    const { assert!(T < TILES) };
    // SAFETY: the caller guarantees that the tile has a shape and that the memory is readable.
    unsafe {
        change_tiles!(
            "tileloaddt1 tmm{tile}, [{source} + {stride}*1]",
            tile = const T,
            source = in(reg) source,
            stride = in(reg) stride,
            options(readonly),
        );
    }
}

/// Stores tile `T` to memory, with its first row at `target` and each further row `stride` bytes
/// after the one before (TILESTORED). Nothing needs to be aligned.
///
/// # Safety
///
/// The configuration of this thread must give `T` a shape, and every row of that shape must be
/// writable.
#[inline(always)]
pub unsafe fn store<const T: usize>(target: *mut u8, stride: usize) {
    const { assert!(T < TILES) };
    // SAFETY: the caller guarantees that the tile has a shape and that the memory is writable.
    unsafe {
        asm!(
            "tilestored [{target} + {stride}*1], tmm{tile}",
            tile = const T,
            target = in(reg) target,
            stride = in(reg) stride,
            options(nostack, preserves_flags),
        );
    }
}

/// Adds the product of tiles `A` and `B`, of bf16, to tile `C`, of f32 (TDPBF16PS).
///
/// With `A` of `m` rows of `2 k` numbers and `C` of `m` rows of `n`, `B` holds its `2 k` by `n`
/// matrix as `k` rows of `n` pairs: row `i` has the elements of rows `2 i` and `2 i + 1` side by
/// side, so that a pair of `A` is multiplied by a pair of `B`:
///
/// `C[r][c] += sum over i of A[r][2 i] * B[i][2 c] + A[r][2 i + 1] * B[i][2 c + 1]`
///
/// The even and the odd products are summed separately by fused f32 operations, which round to
/// nearest and treat subnormal numbers as zero regardless of MXCSR. The two sums are added together,
/// and then to `C`.
///
/// # Safety
///
/// The configuration of this thread must give the three tiles shapes that fit together: for `C`
/// `m` rows of `4 n` bytes, for `A` `m` rows of `4 k` bytes, and for `B` `k` rows of `4 n` bytes.
#[inline(always)]
pub unsafe fn dot_bf16<const C: usize, const A: usize, const B: usize>() {
    const {
        assert!(C < TILES && A < TILES && B < TILES);
        assert!(C != A && C != B && A != B, "the tiles must differ");
    };
    // SAFETY: the instruction touches tile state only, and does not fault, as the caller guarantees.
    unsafe {
        change_tiles!(
            "tdpbf16ps tmm{c}, tmm{a}, tmm{b}",
            c = const C,
            a = const A,
            b = const B,
            options(nomem),
        );
    }
}
