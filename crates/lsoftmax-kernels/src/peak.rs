//! The speed of the micro-kernel alone.

use std::time::{Duration, Instant};

use crate::buffer::Buffer;
use crate::engine::Engine;
use crate::engine::with_kernel;
use crate::kernel::{
    Kernel, LeftOperand, OperandWord, STRIP_COLS, Segment, StripArgs, strip_product,
};

/// How long each thread is measured in a round.
const TIME: Duration = Duration::from_millis(40);
/// Rounds, of which the fastest counts.
const ROUNDS: usize = 3;
/// Words of depth, few enough that the operands stay in the L1 cache.
const DEPTH: usize = 32;

/// Billions of operations per second that a path's products reach on all threads together with their
/// operands in the L1 cache: an upper bound for every kernel. A multiply-add counts as two operations.
pub fn peak_gflops(engine: Engine) -> f64 {
    let rounds = (0..ROUNDS).map(|_| {
        let threads = rayon::broadcast(|_| with_kernel!(engine, |kernel| thread_gflops(kernel)));
        threads.iter().sum()
    });
    rounds.fold(0.0, f64::max)
}

fn thread_gflops<K: Kernel>(kernel: K) -> f64 {
    let (mut left, mut right) = (Buffer::new(K::MR * DEPTH), Buffer::new(DEPTH * STRIP_COLS));
    left.fill(0.0);
    right.fill(0.0);
    let mut out = [0.0; 32 * STRIP_COLS];
    let segments = [Segment { left: 0, right: 0 }; 64];
    let args = StripArgs::<K::Word> {
        left: LeftOperand { words: left.words(), row_stride: DEPTH, depth_stride: 1 },
        right: right.words(),
        right_stride: STRIP_COLS,
        segments: &segments,
        rows: K::MR,
        cols: STRIP_COLS,
        depth: DEPTH,
        out_stride: STRIP_COLS,
    };
    let depth = segments.len() * DEPTH * K::Word::ELEMENTS;
    let work = 2.0 * (K::MR * STRIP_COLS * depth) as f64;
    let (start, mut strips) = (Instant::now(), 0.0);
    while start.elapsed() < TIME {
        let session = kernel.session();
        strip_product(kernel, &session, &args, &mut out, false);
        strips += 1.0;
    }
    std::hint::black_box(&out);
    strips * work / start.elapsed().as_secs_f64() / 1e9
}
