//! After the first training step, further steps make no large allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use lsoftmax_kernels::conv::{GradientsTo, Parameters, Pool, Stack, Unit, backward, forward};
use lsoftmax_kernels::{Engine, KernelPath, Precision, release_buffers};

/// Allocations of at least this many bytes are large.
const LARGE: usize = 1 << 20;

static COUNT: AtomicUsize = AtomicUsize::new(0);

struct Counting;

fn count(bytes: usize) {
    COUNT.fetch_add(usize::from(bytes >= LARGE), Relaxed);
}

// SAFETY: all calls are forwarded to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller upholds the contract.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// A single test, because allocator and buffers are shared by the whole process.
#[test]
fn training_makes_no_large_allocations_after_the_first_step() {
    // The activations of a unit, and one weight, exceed a MiB each.
    let pooled = Unit { pool: Pool::Max, ..Unit::new(64) };
    let full = Unit { kernel: [16, 16], padding: 0, ..Unit::new(96) };
    let stack = Stack::new([3, 32, 32], vec![Unit::new(64), pooled, full]).unwrap();
    let weights: Vec<Vec<f32>> = (0..3).map(|unit| vec![0.01; stack.weight_len(unit)]).collect();
    let (one, slope) = (vec![1.0; 96], vec![0.25; 96]);
    let parameters: Vec<Parameters<'_>> = stack
        .units()
        .iter()
        .zip(&weights)
        .map(|(unit, weight)| {
            let (gamma, beta) = (&one[..unit.filters], &one[..unit.filters]);
            Parameters { weight, gamma, beta, slope: &slope[..unit.filters], bias: &[] }
        })
        .collect();
    let images: Vec<f32> = (0..33 * 3 * 32 * 32).map(|i| (i % 17) as f32 / 17.0).collect();
    let step = |engine: Engine| {
        let pass = forward(engine, &stack, &images, &parameters).unwrap();
        let gradient = vec![0.5; pass.output.len()];
        backward(&pass, &stack, &images, &parameters, &gradient, GradientsTo::Images).unwrap();
    };
    for precision in [Precision::F32, Precision::Bf16] {
        for path in KernelPath::ALL.into_iter().filter(|path| path.is_available()) {
            let engine = Engine::at_most(path, precision).unwrap();
            for threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                release_buffers();
                COUNT.store(0, Relaxed);
                pool.install(|| step(engine));
                assert!(COUNT.swap(0, Relaxed) > 0, "the first step needs memory");
                (0..3).for_each(|_| pool.install(|| step(engine)));
                let taken = COUNT.swap(0, Relaxed);
                // A thread that was idle in the first step allocates its scratch memory later.
                let late = 2 * (threads - 1);
                assert!(taken <= late, "{taken} large allocations, {threads} threads, {engine:?}");
            }
        }
    }
}
