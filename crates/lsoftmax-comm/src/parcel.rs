//! Bytes from one rank to another.

use crate::Communicator;

/// Sends bytes from one rank to another; all ranks call it. Returns them on rank `to`, and nothing on the others.
/// Those of other ranks than `from` are ignored.
///
/// ```
/// use lsoftmax_comm::{Communicator, in_threads, send_bytes};
/// let received = in_threads(3, |comm| send_bytes(&*comm, 2, 0, vec![comm.rank() as u8; 5]));
/// assert_eq!(received, [vec![2; 5], vec![], vec![]]);
/// ```
pub fn send_bytes(comm: &dyn Communicator, from: usize, to: usize, bytes: Vec<u8>) -> Vec<u8> {
    let (rank, size) = (comm.rank(), comm.size());
    if from == to {
        return if rank == to { bytes } else { Vec::new() };
    }
    let mine = if rank == from { bytes } else { Vec::new() };
    let lengths = comm.gather(&(mine.len() as u64).to_le_bytes());
    let (length, _) = lengths[from].as_chunks();
    let length = length.first().map_or(0, |length| u64::from_le_bytes(*length)) as usize;
    // Four bytes at a time, as numbers that nobody looks at.
    let word = |chunk: &[u8]| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        f32::from_ne_bytes(word)
    };
    let mine: Vec<f32> = mine.chunks(4).map(word).collect();
    let mut send: Vec<&[f32]> = vec![&[]; size];
    if rank == from {
        send[to] = &mine;
    }
    let mut received = vec![0.0; if rank == to { length.div_ceil(4) } else { 0 }];
    {
        let mut rest: Vec<[f32; 0]> = vec![[]; size];
        let mut receive: Vec<&mut [f32]> = rest.iter_mut().map(|one| one.as_mut_slice()).collect();
        receive[from] = &mut received;
        comm.exchange(&send, &mut receive);
    }
    let mut bytes: Vec<u8> = received.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.truncate(length);
    bytes
}
