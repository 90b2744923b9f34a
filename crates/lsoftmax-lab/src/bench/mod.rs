//! How fast and how large things are on this machine.

mod head;

pub use head::{BenchError, HeadBench, HeadTiming, Length};

/// The heap as the program's allocator counts it. A library must not choose the allocator, so the
/// program lends its own.
pub trait Heap: Sync {
    /// Counts from here.
    fn reset(&self);
    /// The most bytes in use at once since then, above what was in use then.
    fn peak(&self) -> usize;
}
