//! Tests the AMX wrappers, natively on a CPU with AMX and emulated on any other.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]
#![allow(unsafe_code, reason = "the wrappers under test are unsafe")]

mod amx_emulator;
#[path = "../src/amx_tile.rs"]
mod amx_tile;

use std::arch::asm;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Barrier;

use amx_tile::{MAX_ROW_BYTES, MAX_ROWS, TILES, TileConfig, TileGuard};

/// Makes AMX instructions work in this process.
fn enable_amx() {
    if !amx_tile::available() {
        amx_emulator::install();
    }
}

/// Configures the tiles of this thread.
fn configure(config: &TileConfig) -> TileGuard {
    enable_amx();
    // SAFETY: AMX was enabled.
    unsafe { TileGuard::configure(config) }
}

/// The configuration in which all tiles have their maximum size.
fn full() -> TileConfig {
    (0..TILES).fold(TileConfig::new(), |config, tile| config.with(tile, MAX_ROWS, MAX_ROW_BYTES))
}

/// Pseudorandom bytes.
fn noise(count: usize, seed: usize) -> Vec<u8> {
    (0..count).map(|i| (((i + 1) * (2 * seed + 7919)) >> 5) as u8).collect()
}

/// Loads tile `T` with a stride of `source.len() / rows`.
fn load<const T: usize, E>(source: &[E], rows: usize) {
    // SAFETY: all callers configure the tile to `rows` rows of no more than that stride.
    unsafe { amx_tile::load::<T>(source.as_ptr().cast(), size_of_val(source) / rows) };
}

/// Stores tile `T` with a stride of `target.len() / rows`.
fn store<const T: usize, E>(target: &mut [E], rows: usize) {
    // SAFETY: all callers configure the tile to `rows` rows of no more than that stride.
    unsafe { amx_tile::store::<T>(target.as_mut_ptr().cast(), size_of_val(target) / rows) };
}

#[test]
fn loads_and_stores_follow_their_strides_and_shapes() {
    for (rows, row_bytes, source_stride, target_stride) in
        [(16, 64, 64, 64), (16, 64, 80, 101), (5, 12, 33, 12), (1, 4, 4, 9), (16, 36, 36, 64)]
    {
        let _tiles = configure(&full().with(3, rows, row_bytes));
        let source = noise(rows * source_stride, 1);
        // SAFETY: the tile has `rows` rows of no more than this stride.
        let load_once = || unsafe { amx_tile::load_once::<3>(source.as_ptr(), source_stride) };
        for load in [&|| load::<3, _>(&source, rows), &load_once as &dyn Fn()] {
            // SAFETY: the tile has a shape.
            unsafe { amx_tile::zero::<3>() };
            let mut target = vec![0xEE; rows * target_stride];
            load();
            store::<3, _>(&mut target, rows);
            for (source, target) in source.chunks(source_stride).zip(target.chunks(target_stride)) {
                let (stored, gap) = target.split_at(row_bytes);
                assert_eq!(stored, &source[..row_bytes]);
                assert!(gap.iter().all(|byte| *byte == 0xEE), "wrote past the end of a row");
            }
        }
    }
}

#[test]
fn configuring_and_zeroing_clear_tiles() {
    let config = full();
    let _tiles = configure(&config);
    let mut target = [1_u8; 1024];
    load::<2, _>(&noise(1024, 2), 16);
    // SAFETY: the tile is configured.
    unsafe { amx_tile::zero::<2>() };
    store::<2, _>(&mut target, 16);
    assert_eq!(target, [0; 1024]);

    load::<2, _>(&noise(1024, 2), 16);
    // SAFETY: AMX was enabled.
    unsafe { amx_tile::configure(&config) };
    target.fill(1);
    store::<2, _>(&mut target, 16);
    assert_eq!(target, [0; 1024]);
}

/// Calls a macro with each tile number.
macro_rules! for_each_tile {
    ($macro:ident) => {
        $macro!(0 1 2 3 4 5 6 7)
    };
}

#[test]
fn tiles_are_separate() {
    let _tiles = configure(&full());
    macro_rules! load_all {
        ($($t:literal)*) => { $( load::<$t, _>(&noise(1024, $t), 16); )* };
    }
    macro_rules! check_all {
        ($($t:literal)*) => { $(
            let mut target = [0_u8; 1024];
            store::<$t, _>(&mut target, 16);
            assert_eq!(target[..], noise(1024, $t), "tile {}", $t);
        )* };
    }
    for_each_tile!(load_all);
    for_each_tile!(check_all);
}

/// The bf16 of a number it can represent exactly.
fn bf16(number: f32) -> u16 {
    let bits = number.to_bits();
    assert_eq!(bits & 0xFFFF, 0);
    (bits >> 16) as u16
}

/// The configuration for a product of `m` by `2 k` by `n`.
fn shapes<const C: usize, const A: usize, const B: usize>(
    m: usize,
    k: usize,
    n: usize,
) -> TileConfig {
    TileConfig::new().with(C, m, 4 * n).with(A, m, 4 * k).with(B, k, 4 * n)
}

/// `c` plus the product of `a`, `m` by `2 k`, and `b`, `k` rows of `n` pairs.
fn product<const C: usize, const A: usize, const B: usize>(
    [m, k, n]: [usize; 3],
    [a, b]: [&[f32]; 2],
    c: &[f32],
) -> Vec<f32> {
    let _tiles = configure(&shapes::<C, A, B>(m, k, n));
    let [a, b] = [a, b].map(|matrix| matrix.iter().copied().map(bf16).collect::<Vec<_>>());
    let mut c = c.to_vec();
    assert_eq!([a.len(), b.len(), c.len()], [2 * m * k, 2 * k * n, m * n]);
    load::<A, _>(&a, m);
    load::<B, _>(&b, k);
    load::<C, _>(&c, m);
    // SAFETY: the tiles are configured to shapes that fit.
    unsafe { amx_tile::dot_bf16::<C, A, B>() };
    store::<C, _>(&mut c, m);
    c
}

/// Compares a product of small integers, which is exact, with one computed in f64.
fn check_product<const C: usize, const A: usize, const B: usize>([m, k, n]: [usize; 3]) {
    let whole = |count, seed| -> Vec<f32> {
        noise(count, seed).iter().map(|byte| f32::from(byte % 17) - 8.0).collect()
    };
    let (a, b, c) = (whole(2 * m * k, 3), whole(2 * k * n, 4), whole(m * n, 5));
    let found = product::<C, A, B>([m, k, n], [&a, &b], &c);
    for (i, found) in found.into_iter().enumerate() {
        let (row, column) = (i / n, i % n);
        let expected = (0..2 * k).fold(f64::from(c[i]), |sum, j| {
            let b = b[j / 2 * 2 * n + 2 * column + j % 2];
            sum + f64::from(a[row * 2 * k + j]) * f64::from(b)
        });
        assert_eq!(f64::from(found), expected, "{m} x {k} x {n} at {row}, {column}");
    }
}

#[test]
fn full_and_partial_products_are_exact() {
    for shape in [[16, 16, 16], [3, 5, 7], [1, 1, 1], [16, 1, 16], [1, 16, 2], [13, 16, 16]] {
        check_product::<0, 1, 2>(shape);
    }
}

#[test]
fn every_tile_works_as_every_operand() {
    macro_rules! check_all {
        ($($t:literal)*) => { $(
            check_product::<$t, { ($t + 1) % 8 }, { ($t + 3) % 8 }>([16, 16, 16]);
        )* };
    }
    for_each_tile!(check_all);
}

#[test]
fn subnormal_numbers_are_zero() {
    const SUBNORMAL: f32 = f32::MIN_POSITIVE / 2.0;
    let product = |a, b, c| product::<0, 1, 2>([1, 1, 1], [&[a, 0.0], &[b, 0.0]], &[c])[0];
    assert_eq!(product(SUBNORMAL, 4.0, 0.0), 0.0);
    assert_eq!(product(4.0, -SUBNORMAL, 0.0), 0.0);
    assert_eq!(product(0.0, 0.0, SUBNORMAL), 0.0);
    assert_eq!(product(f32::MIN_POSITIVE, 0.5, 0.0), 0.0);
    assert_eq!(product(f32::MIN_POSITIVE, 0.5, f32::MIN_POSITIVE), f32::MIN_POSITIVE);
    assert_eq!(product(f32::MIN_POSITIVE, 1.0, 0.0), f32::MIN_POSITIVE);
}

/// The kernels do not depend on the order of the sums, so this checks the emulator only.
#[test]
fn emulated_sums_are_made_in_the_documented_order() {
    if amx_tile::available() {
        return;
    }
    const BIG: f32 = 16_777_216.0; // 2^24: adding one leaves it unchanged, adding two does not.
    // Even products BIG + 1 = BIG, odd products 1 + 1 = 2, and then BIG + 2, a tie with one more.
    let found = product::<0, 1, 2>([1, 2, 1], [&[BIG, 1.0, 1.0, 1.0], &[1.0; 4]], &[1.0]);
    assert_eq!(found, [BIG + 4.0]);
}

#[test]
fn threads_do_not_share_tiles() {
    let step = Barrier::new(2);
    std::thread::scope(|scope| {
        for (rows, row_bytes) in [(16, 64), (7, 20)] {
            let step = &step;
            scope.spawn(move || {
                let _tiles = configure(&TileConfig::new().with(1, rows, row_bytes));
                for round in 0..10 {
                    let source = noise(rows * row_bytes, rows + round);
                    let mut target = vec![0; source.len()];
                    step.wait();
                    load::<1, _>(&source, rows);
                    step.wait();
                    store::<1, _>(&mut target, rows);
                    assert_eq!(target, source);
                }
            });
        }
    });
}

/// The compiler chooses the registers and the form of an address, so all of them must work.
#[test]
fn every_form_of_address_works() {
    let _tiles = configure(&full());
    let source = noise(4096, 6);
    let (base, middle) = (source.as_ptr(), source[2048..].as_ptr());
    macro_rules! check {
        ($code:literal, $base:tt $address:expr, $index:tt $stride:expr => $first:expr, $step:expr) => {
            // SAFETY: the tile is configured, and all of its rows are in `source`.
            unsafe { asm!($code, in($base) $address, in($index) $stride as usize, options(nostack)) };
            let mut target = [0_u8; 1024];
            store::<6, _>(&mut target, 16);
            for (row, found) in target.chunks(64).enumerate() {
                assert_eq!(found, &source[$first + row * $step..][..64], $code);
            }
        };
    }
    check!("tileloadd tmm6, [rax + rcx*1]", "rax" base, "rcx" 64 => 0, 64);
    check!("tileloaddt1 tmm6, [rdx + rsi*1]", "rdx" base, "rsi" 65 => 0, 65);
    check!("tileloadd tmm6, [r13 + r12*1]", "r13" base, "r12" 66 => 0, 66);
    check!("tileloadd tmm6, [r12 + r13*2]", "r12" base, "r13" 33 => 0, 66);
    check!("tileloadd tmm6, [r15 + rdi*8 + 100]", "r15" base, "rdi" 8 => 100, 64);
    check!("tileloadd tmm6, [r8 + r9*4 - 128]", "r8" middle, "r9" 16 => 1920, 64);
    check!("tileloadd tmm6, [r10 + r14*1 + 1000]", "r10" base, "r14" 70 => 1000, 70);
    check!("tileloadd tmm6, [r11 + rax*1 - 2048]", "r11" middle, "rax" 64 => 0, 64);
    // An address without an index has the stride zero.
    check!("tileloadd tmm6, [rdi + 32]", "rdi" base, "rsi" 1 => 32, 0);
}

#[test]
fn every_form_of_address_of_a_configuration_works() {
    static CONFIGS: [TileConfig; 2] =
        [TileConfig::new().with(0, 1, 8), TileConfig::new().with(0, 1, 12)];
    let _tiles = configure(&full());
    let check = |row_bytes: usize| {
        let mut target = [1_u8; 1024];
        store::<0, _>(&mut target, 16);
        let stored = target.iter().position(|byte| *byte != 0);
        assert_eq!(stored, Some(row_bytes));
    };
    let base = CONFIGS.as_ptr();
    // SAFETY: AMX was enabled, and the addresses are those of configurations.
    unsafe {
        asm!("ldtilecfg [rip + {}]", sym CONFIGS, options(nostack));
        check(8);
        asm!("ldtilecfg [rip + {} + 64]", sym CONFIGS, options(nostack));
        check(12);
        asm!("ldtilecfg [r9]", in("r9") base, options(nostack));
        check(8);
        asm!("ldtilecfg [r12 + 64]", in("r12") base, options(nostack));
        check(12);
        asm!("ldtilecfg [rax + r10*8 - 960]", in("rax") base, in("r10") 120_u64, options(nostack));
        check(8);
    }
}

#[test]
fn shapes_that_would_fault_cannot_be_made() {
    for (tile, rows, row_bytes) in
        [(8, 1, 4), (0, 0, 4), (0, 17, 4), (0, 1, 0), (0, 1, 68), (0, 1, 6)]
    {
        let made = std::panic::catch_unwind(|| TileConfig::new().with(tile, rows, row_bytes));
        assert!(made.is_err(), "{rows} rows of {row_bytes} bytes in tile {tile}");
    }
}

/// Tells a child process which illegal instruction to execute.
const CAUSE: &str = "LSOFTMAX_TEST_CAUSE_OF_DEATH";

/// The emulator rejects what a CPU with AMX would reject.
#[test]
fn illegal_instructions_kill() {
    if let Ok(cause) = std::env::var(CAUSE) {
        return die_of(&cause);
    }
    let run = |cause| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "illegal_instructions_kill"])
            .env(CAUSE, cause)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap()
    };
    assert!(run("nothing").success());
    for cause in ["ud2", "no configuration", "release", "no shape", "shapes that do not fit"] {
        assert_eq!(run(cause).signal(), Some(libc::SIGILL), "{cause}");
    }
}

/// Executes an illegal instruction after some legal ones.
fn die_of(cause: &str) {
    // SAFETY: this only keeps the child from writing a core file.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
    check_product::<0, 1, 2>([2, 2, 2]);
    let config = shapes::<0, 1, 2>(2, 3, 4);
    // SAFETY: none of these is sound, but each of them ends the process immediately.
    unsafe {
        match cause {
            "ud2" => asm!("ud2"),
            "no configuration" => amx_tile::zero::<0>(),
            "release" => {
                amx_tile::configure(&config);
                amx_tile::release();
                amx_tile::zero::<0>();
            }
            "no shape" => {
                amx_tile::configure(&config);
                amx_tile::zero::<3>();
            }
            "shapes that do not fit" => {
                amx_tile::configure(&config.with(1, 2, 8));
                amx_tile::dot_bf16::<0, 1, 2>();
            }
            _ => {}
        }
    }
}
