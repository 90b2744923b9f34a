//! What a process knows of the others, and the one that has none.

use std::fmt::Debug;

/// The ranks that train a model together, as one of them sees them.
///
/// All of them call the same methods in the same order. A method that waits for the others returns when it has
/// what they sent; if one of them is lost it does not return, but ends the program: no rank can go on without the
/// others, and a run resumes from its last checkpoint.
pub trait Communicator: Debug + Send + Sync {
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn size(&self) -> usize;

    /// Sends `send[to]` to every rank, and writes what rank `from` sends here to `receive[from]`. The lengths are
    /// known to both.
    fn exchange(&self, send: &[&[f32]], receive: &mut [&mut [f32]]);

    /// Sends `send[to]`, of any length, to every rank, and returns what each of them sends here.
    fn exchange_bytes(&self, send: &[&[u8]]) -> Vec<Vec<u8>>;

    /// Ends all ranks with a sentence.
    fn fail(&self, sentence: &str) -> !;

    /// The bytes of every rank, of any length, in the order of the ranks.
    fn gather(&self, mine: &[u8]) -> Vec<Vec<u8>> {
        self.exchange_bytes(&vec![mine; self.size()])
    }

    /// Sends bytes from one rank to another; all ranks call it. Returns them on rank `to`, and nothing on the others.
    /// Those of other ranks than `from` are ignored.
    ///
    /// ```
    /// use lsoftmax_comm::{Communicator, in_threads};
    /// let received = in_threads(3, |comm| comm.send(2, 0, vec![comm.rank() as u8; 5]));
    /// assert_eq!(received, [vec![2; 5], vec![], vec![]]);
    /// ```
    fn send(&self, from: usize, to: usize, bytes: Vec<u8>) -> Vec<u8> {
        if from == to {
            return if self.rank() == to { bytes } else { Vec::new() };
        }
        let mut send: Vec<&[u8]> = vec![&[]; self.size()];
        if self.rank() == from {
            send[to] = &bytes;
        }
        self.exchange_bytes(&send).swap_remove(from)
    }

    /// The numbers of every rank, of which rank r has `lengths[r]`, in the order of the ranks.
    fn gather_floats(&self, mine: &[f32], lengths: &[usize]) -> Vec<f32> {
        let mut all = vec![0.0; lengths.iter().sum()];
        let mut rest = &mut all[..];
        let mut receive: Vec<&mut [f32]> = Vec::with_capacity(lengths.len());
        for length in lengths {
            receive.push(rest.split_off_mut(..*length).expect("the lengths add up"));
        }
        self.exchange(&vec![mine; self.size()], &mut receive);
        all
    }

    /// Replaces every number by the largest of all ranks. A maximum has no rounding, so its order does not matter.
    fn maximum(&self, values: &mut [f32]) {
        let lengths = vec![values.len(); self.size()];
        for other in self.gather_floats(values, &lengths).chunks_exact(values.len().max(1)) {
            for (value, other) in values.iter_mut().zip(other) {
                *value = value.max(*other);
            }
        }
    }

    /// Whether it is true on any rank.
    fn any(&self, mine: bool) -> bool {
        match self.size() {
            1 => mine,
            _ => self.gather(&[u8::from(mine)]).contains(&vec![1]),
        }
    }

    /// The bytes of rank 0, on every rank; those of the others are ignored.
    fn broadcast(&self, mine: Vec<u8>) -> Vec<u8> {
        if self.size() == 1 {
            return mine;
        }
        let mine = if self.rank() == 0 { mine } else { Vec::new() };
        self.gather(&mine).swap_remove(0)
    }

    /// Whether this is rank 0, which writes files and messages for all.
    fn is_first(&self) -> bool {
        self.rank() == 0
    }
}

/// A process without others: what it would send to itself is copied.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Communicator for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn exchange(&self, send: &[&[f32]], receive: &mut [&mut [f32]]) {
        receive[0].copy_from_slice(send[0]);
    }

    fn exchange_bytes(&self, send: &[&[u8]]) -> Vec<Vec<u8>> {
        vec![send[0].to_vec()]
    }

    fn fail(&self, sentence: &str) -> ! {
        panic!("{sentence}")
    }
}
