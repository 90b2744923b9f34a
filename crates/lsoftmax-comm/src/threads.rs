//! Ranks as threads of one process, for tests.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::Communicator;

/// Runs `work` as so many ranks, each in a thread of its own, and returns their results in order.
///
/// # Panics
/// When one of them panics.
///
/// ```
/// use lsoftmax_comm::{Communicator, in_threads};
/// let largest = in_threads(4, |comm| {
///     let mut values = [comm.rank() as f32, -1.0];
///     comm.maximum(&mut values);
///     values
/// });
/// assert_eq!(largest, [[3.0, -1.0]; 4]);
/// ```
pub fn in_threads<T: Send>(
    size: usize,
    work: impl Fn(Arc<dyn Communicator>) -> T + Sync,
) -> Vec<T> {
    let ranks = ThreadRank::all(size);
    thread::scope(|scope| {
        let run = |rank: ThreadRank| scope.spawn(|| work(Arc::new(rank)));
        let threads: Vec<_> = ranks.into_iter().map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank panicked")).collect()
    })
}

#[derive(Debug)]
enum Message {
    Floats(Vec<f32>),
    Bytes(Vec<u8>),
}

/// A rank with a channel from and to every other.
#[derive(Debug)]
struct ThreadRank {
    rank: usize,
    to: Vec<Sender<Message>>,
    from: Vec<Mutex<Receiver<Message>>>,
}

impl ThreadRank {
    fn all(size: usize) -> Vec<Self> {
        let mut ranks: Vec<Self> =
            (0..size).map(|rank| Self { rank, to: Vec::new(), from: Vec::new() }).collect();
        for from in 0..size {
            for to in 0..size {
                let (sender, receiver) = channel();
                ranks[from].to.push(sender);
                ranks[to].from.push(Mutex::new(receiver));
            }
        }
        ranks
    }

    fn post(&self, to: usize, message: Message) {
        self.to[to].send(message).expect("the other rank is there");
    }

    fn receive(&self, from: usize) -> Message {
        let from = self.from[from].lock().expect("one thread per rank");
        from.recv().expect("the other rank is there")
    }
}

impl Communicator for ThreadRank {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.to.len()
    }

    fn exchange(&self, send: &[&[f32]], receive: &mut [&mut [f32]]) {
        for (to, values) in send.iter().enumerate() {
            self.post(to, Message::Floats(values.to_vec()));
        }
        for (from, out) in receive.iter_mut().enumerate() {
            match self.receive(from) {
                Message::Floats(values) => out.copy_from_slice(&values),
                other => panic!("floats were expected of rank {from}, not {other:?}"),
            }
        }
    }

    fn exchange_bytes(&self, send: &[&[u8]]) -> Vec<Vec<u8>> {
        for (to, bytes) in send.iter().enumerate() {
            self.post(to, Message::Bytes(bytes.to_vec()));
        }
        let receive = |from| match self.receive(from) {
            Message::Bytes(bytes) => bytes,
            other => panic!("bytes were expected of rank {from}, not {other:?}"),
        };
        (0..self.size()).map(receive).collect()
    }

    fn fail(&self, sentence: &str) -> ! {
        panic!("rank {}: {sentence}", self.rank)
    }
}
