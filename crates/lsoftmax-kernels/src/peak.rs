//! How fast the innermost loop runs by itself.

use std::time::{Duration, Instant};

use crate::buffer::Buffer;
use crate::kernel::{Kernel, Left, STRIP_COLS, Segment, StripArgs, Word, strip};
use crate::path::{Engine, with_kernel};

/// How long each thread is measured, so many times.
const TIME: Duration = Duration::from_millis(40);
const ROUNDS: usize = 3;
/// Words of depth, so few that the operands stay in the nearest cache.
const DEPTH: usize = 32;

/// Billions of operations a second that a path's products reach on all threads together, with their
/// operands near: what a kernel can at most come to. A multiply-add is two operations.
pub fn peak_gflops(engine: Engine) -> f64 {
    let rounds = (0..ROUNDS).map(|_| {
        let threads = rayon::broadcast(|_| with_kernel!(engine, thread_gflops()));
        threads.iter().sum()
    });
    rounds.fold(0.0, f64::max)
}

fn thread_gflops<K: Kernel>(kernel: K) -> f64 {
    let (mut left, mut right) = (Buffer::new(K::ROWS * DEPTH), Buffer::new(DEPTH * STRIP_COLS));
    left.fill(0.0);
    right.fill(0.0);
    let mut out = [0.0; 32 * STRIP_COLS];
    let segments = [Segment { left: 0, right: 0 }; 64];
    let args = StripArgs::<K::Word> {
        left: Left { words: left.words(), row_step: DEPTH, depth_step: 1 },
        right: right.words(),
        segments: &segments,
        rows: K::ROWS,
        depth: DEPTH,
    };
    let depth = segments.len() * DEPTH * K::Word::ELEMENTS;
    let work = 2.0 * (K::ROWS * STRIP_COLS * depth) as f64;
    let (begun, mut strips) = (Instant::now(), 0.0);
    while begun.elapsed() < TIME {
        let session = kernel.session();
        strip(kernel, &session, &args, &mut out, false);
        strips += 1.0;
    }
    std::hint::black_box(&out);
    strips * work / begun.elapsed().as_secs_f64() / 1e9
}
