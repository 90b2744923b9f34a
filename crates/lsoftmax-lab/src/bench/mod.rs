//! How fast and how large things are on this machine.

mod head;
mod train;

use lsoftmax::{EngineError, HeadError, LambdaError};
use lsoftmax_nn::NetworkError;

use crate::learner::StepError;

pub use head::{HeadBench, HeadTiming, Length};
pub use train::{TrainBench, TrainTiming};

/// The heap as the program's allocator counts it. A library must not choose the allocator, so the
/// program lends its own.
pub trait Heap: Sync {
    /// Counts from here.
    fn reset(&self);
    /// The most bytes in use at once since then, above what was in use then.
    fn peak(&self) -> usize;
}

/// Why there is nothing to measure.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A size of zero.
    #[error("the number of {0} is 0, but must be at least 1")]
    Zero(&'static str),
    /// A head larger than the machine.
    #[error(
        "{samples} samples and {classes} classes of {features} features do not fit into this machine's memory; give smaller sizes"
    )]
    Memory {
        /// Samples of a batch.
        samples: usize,
        /// Features of a sample.
        features: usize,
        /// Classes.
        classes: usize,
    },
    /// A batch larger than the machine.
    #[error(
        "training {network} on batches of {batch} images does not fit into this machine's memory; give a smaller batch"
    )]
    Batch {
        /// The network's name.
        network: String,
        /// Images of a batch.
        batch: usize,
    },
    /// The network does not fit together, or refused the images.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A step was not taken.
    #[error(transparent)]
    Step(#[from] StepError),
    /// λ is negative or not finite.
    #[error(transparent)]
    Lambda(#[from] LambdaError),
    /// The head refused the batch.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The requested kernel path is unavailable.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The threads could not be started.
    #[error("{threads} threads could not be started ({reason}); give fewer")]
    Threads {
        /// What was asked for.
        threads: usize,
        /// Why not.
        reason: String,
    },
}

/// Runs `f` on so many threads, or on those that there are.
fn on_threads<R: Send>(
    threads: Option<usize>,
    f: impl FnOnce() -> Result<R, BenchError> + Send,
) -> Result<R, BenchError> {
    let Some(threads) = threads else { return f() };
    if threads == 0 {
        return Err(BenchError::Zero("threads"));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let reason = |error: rayon::ThreadPoolBuildError| error.to_string();
    pool.map_err(|error| BenchError::Threads { threads, reason: reason(error) })?.install(f)
}

/// Bytes that no machine has, far from where sums of sizes overflow.
const LARGEST: usize = isize::MAX as usize / 4;

/// Whether the system would give so many bytes; they are given back at once, untouched.
fn can_be_had(bytes: usize) -> bool {
    bytes <= LARGEST && Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
}

/// The median.
fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    } else {
        sorted[middle]
    }
}
