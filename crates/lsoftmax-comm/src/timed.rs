//! How much a rank communicates, and how long it waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::Communicator;

/// A communicator that counts.
///
/// ```
/// use std::sync::Arc;
/// use lsoftmax_comm::{Alone, Communicator, Timed};
/// let comm = Timed::new(Arc::new(Alone));
/// comm.gather(&[1, 2, 3]);
/// assert_eq!((comm.take().calls, comm.take().calls), (1, 0));
/// ```
#[derive(Debug)]
pub struct Timed {
    inner: Arc<dyn Communicator>,
    nanoseconds: AtomicU64,
    calls: AtomicU64,
    bytes: AtomicU64,
}

/// What a rank has communicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The time in which it did nothing else, including that in which it waited for slower ranks.
    pub time: Duration,
    /// The number of times that it exchanged messages with all others.
    pub calls: u64,
    /// The bytes that it sent.
    pub bytes: u64,
}

impl Timed {
    /// Counts what is communicated through `inner`.
    pub fn new(inner: Arc<dyn Communicator>) -> Self {
        let zero = AtomicU64::default;
        Self { inner, nanoseconds: zero(), calls: zero(), bytes: zero() }
    }

    /// What was communicated since the last time.
    pub fn take(&self) -> Traffic {
        Traffic {
            time: Duration::from_nanos(self.nanoseconds.swap(0, Relaxed)),
            calls: self.calls.swap(0, Relaxed),
            bytes: self.bytes.swap(0, Relaxed),
        }
    }

    /// The number of elements that go to other ranks.
    fn sent<T>(&self, send: &[&[T]]) -> usize {
        let others = send.iter().enumerate().filter(|(to, _)| *to != self.inner.rank());
        others.map(|(_, values)| values.len()).sum()
    }

    fn count<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        self.nanoseconds.fetch_add(started.elapsed().as_nanos() as u64, Relaxed);
        self.calls.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
        result
    }
}

impl Communicator for Timed {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn exchange(&self, send: &[&[f32]], receive: &mut [&mut [f32]]) {
        self.count(size_of::<f32>() * self.sent(send), || self.inner.exchange(send, receive));
    }

    fn exchange_bytes(&self, send: &[&[u8]]) -> Vec<Vec<u8>> {
        self.count(self.sent(send), || self.inner.exchange_bytes(send))
    }

    fn fail(&self, sentence: &str) -> ! {
        self.inner.fail(sentence)
    }
}
