//! Speed and memory use of the head, of training and of work on faces.

mod faces;
mod head;
mod scale;
mod shards;
mod train;

use lsoftmax::{EngineError, HeadError, LambdaError, ShardError};
use lsoftmax_nn::NetworkError;

use crate::learner::StepError;
use crate::threads::MOST;

pub use faces::{FacesBench, FacesTiming};
pub use head::{HeadBench, HeadTiming, Length};
pub use scale::{ScaleBench, ScaleTiming};
pub use shards::{RankHolds, ShardBench, ShardTiming};
pub use train::{TrainBench, TrainTiming};

/// Heap statistics of the program's allocator. They are passed in because a library should not choose
/// the allocator.
pub trait Heap: Sync {
    /// Starts counting.
    fn reset(&self);
    /// The peak number of bytes in use since the last reset, above those in use at the reset.
    fn peak(&self) -> usize;
}

/// Why a benchmark could not be run.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A size of zero.
    #[error("the number of {0} is 0, but must be at least 1")]
    Zero(&'static str),
    /// A head that does not fit into memory.
    #[error(
        "{samples} samples and {classes} classes of {features} features do not fit into this machine's memory; give smaller sizes"
    )]
    Memory {
        /// The number of samples per batch.
        samples: usize,
        /// The number of features per sample.
        features: usize,
        /// The number of classes.
        classes: usize,
    },
    /// A batch that does not fit into memory.
    #[error(
        "training {network} on batches of {batch} images does not fit into this machine's memory; give a smaller batch"
    )]
    Batch {
        /// The network's name.
        network: String,
        /// The number of images per batch.
        batch: usize,
    },
    /// The network is invalid or rejected the images.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A training step failed.
    #[error(transparent)]
    Step(#[from] StepError),
    /// λ is negative or not finite.
    #[error(transparent)]
    Lambda(#[from] LambdaError),
    /// The head rejected the batch.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// More ranks than shards.
    #[error(transparent)]
    Shards(#[from] ShardError),
    /// The requested kernel path is unavailable.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Files of a benchmark could not be written or read.
    #[error("files in the temporary directory failed ({0}); check the space left")]
    Files(String),
    /// The threads could not be started.
    #[error("{threads} threads could not be started ({reason}); give fewer")]
    Threads {
        /// The requested number of threads.
        threads: usize,
        /// The system's reason.
        reason: String,
    },
}

/// Runs `f` on a pool of `threads` threads, or on the global pool.
fn on_threads<R: Send>(
    threads: Option<usize>,
    f: impl FnOnce() -> Result<R, BenchError> + Send,
) -> Result<R, BenchError> {
    let Some(threads) = threads else { return f() };
    if threads == 0 {
        return Err(BenchError::Zero("threads"));
    }
    if threads > MOST {
        let reason = format!("at most {MOST} are");
        return Err(BenchError::Threads { threads, reason });
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let reason = |error: rayon::ThreadPoolBuildError| error.to_string();
    pool.map_err(|error| BenchError::Threads { threads, reason: reason(error) })?.install(f)
}

/// A size that no machine has, small enough that sums of sizes do not overflow.
const LARGEST: usize = isize::MAX as usize / 4;

/// Whether `bytes` bytes can be allocated; they are freed at once, untouched.
fn can_allocate(bytes: usize) -> bool {
    bytes <= LARGEST && Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
}

/// The median of a non-empty slice.
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
