//! Sums over all ranks, in the order of a tree.

use std::ops::Range;

use crate::{Communicator, fold};

/// The elements of a vector of `len` that each of so many ranks adds up: nearly equal ranges, in order.
pub fn slices(len: usize, ranks: usize) -> Vec<Range<usize>> {
    let bound = |rank: usize| (len as u128 * rank as u128 / ranks as u128) as usize;
    (0..ranks).map(|rank| bound(rank)..bound(rank + 1)).collect()
}

/// Adds vectors of all ranks and gives every rank its slice of the sum. `mine` are this rank's vectors of `len`
/// numbers, the nodes `ids[rank]` of a tree, in order; together the nodes of all ranks are the whole tree.
///
/// # Panics
/// When the numbers of vectors, ids, slices and ranks do not match.
pub fn sum_scatter(
    comm: &dyn Communicator,
    mine: &[f32],
    len: usize,
    ids: &[Vec<u64>],
    slices: &[Range<usize>],
) -> Vec<f32> {
    let (rank, size) = (comm.rank(), comm.size());
    assert_eq!((ids.len(), slices.len()), (size, size), "one list of nodes and one slice per rank");
    assert_eq!(mine.len(), len * ids[rank].len(), "one vector per node");
    let parts: Vec<Vec<f32>> = slices
        .iter()
        .map(|slice| match len {
            0 => Vec::new(),
            _ => mine.chunks_exact(len).flat_map(|node| &node[slice.clone()]).copied().collect(),
        })
        .collect();
    let own = slices[rank].len();
    let mut received: Vec<Vec<f32>> =
        ids.iter().map(|nodes| vec![0.0; nodes.len() * own]).collect();
    {
        let send: Vec<&[f32]> = parts.iter().map(Vec::as_slice).collect();
        let mut receive: Vec<&mut [f32]> = received.iter_mut().map(Vec::as_mut_slice).collect();
        comm.exchange(&send, &mut receive);
    }
    if own == 0 {
        return Vec::new();
    }
    let nodes = ids.iter().zip(&received).flat_map(|(ids, vectors)| {
        ids.iter().copied().zip(vectors.chunks_exact(own).map(<[f32]>::to_vec))
    });
    let mut folded = fold(nodes, |left: &mut Vec<f32>, right: Vec<f32>| {
        left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
    });
    assert!(folded.len() == 1 && folded[0].0 == 1, "the nodes of all ranks are the whole tree");
    folded.swap_remove(0).1
}

/// Adds vectors of all ranks, as [`sum_scatter`] does, and gives every rank the whole sum.
///
/// ```
/// use lsoftmax_comm::{in_threads, sum};
/// let sums = in_threads(2, |comm| sum(&*comm, &[1.0, 2.0, comm.rank() as f32], 3, &[vec![2], vec![3]]));
/// assert_eq!(sums, [[2.0, 4.0, 1.0]; 2]);
/// ```
///
/// # Panics
/// See [`sum_scatter`].
pub fn sum(comm: &dyn Communicator, mine: &[f32], len: usize, ids: &[Vec<u64>]) -> Vec<f32> {
    let slices = slices(len, comm.size());
    let own = sum_scatter(comm, mine, len, ids, &slices);
    let lengths: Vec<usize> = slices.iter().map(Range::len).collect();
    comm.gather_floats(&own, &lengths)
}
