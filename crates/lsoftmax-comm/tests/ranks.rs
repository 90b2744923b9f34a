//! Sums of ranks have the bits of one process, whatever the order in which messages arrive.

use lsoftmax_comm::{Alone, Communicator, Tree, fold, in_threads, shares, sum};

/// Numbers whose sum depends on its order.
fn leaf(index: usize, len: usize) -> Vec<f32> {
    (0..len)
        .map(|i| ((index * 7919 + i * 104_729) % 1013) as f32 * 1.1e-3 + 1e3 / (index + 1) as f32)
        .collect()
}

fn add(left: &mut [f32], right: Vec<f32>) {
    left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
}

#[test]
fn a_sum_has_the_same_bits_for_any_number_of_ranks() {
    let (blocks, len) = (13, 37);
    let tree = Tree { blocks, sections: 2 };
    let leaves = |range: &std::ops::Range<usize>| {
        let nodes = tree.nodes(range, u32::MAX).into_iter();
        fold(nodes.map(|node| (node.id, leaf(node.leaves.start, len))), |left, right| {
            add(left, right)
        })
    };
    let expected = leaves(&(0..blocks)).swap_remove(0).1;
    let plain = (0..2 * blocks).fold(vec![0.0; len], |mut sum, index| {
        add(&mut sum, leaf(index, len));
        sum
    });
    assert_ne!(expected, plain, "the order of this sum does not matter");
    for ranks in 1..=blocks {
        let shares = shares(blocks, ranks);
        let ids = |range| tree.nodes(range, 0).iter().map(|node| node.id).collect::<Vec<_>>();
        let ids: Vec<Vec<u64>> = shares.iter().map(ids).collect();
        let sums = in_threads(ranks, |comm| {
            let mine: Vec<f32> =
                leaves(&shares[comm.rank()]).into_iter().flat_map(|(_, sum)| sum).collect();
            sum(&*comm, &mine, len, &ids)
        });
        for found in sums {
            assert_eq!(found, expected, "{ranks} ranks");
        }
    }
}

#[test]
fn more_ranks_than_numbers_have_empty_slices() {
    let sums = in_threads(4, |comm| sum(&*comm, &[0.5], 1, &[vec![4], vec![5], vec![6], vec![7]]));
    assert_eq!(sums, [[2.0]; 4]);
}

#[test]
fn bytes_of_any_length_are_gathered_and_rank_0_tells_the_others() {
    let found = in_threads(3, |comm| {
        let mine = vec![comm.rank() as u8; comm.rank()];
        let told = comm.broadcast(vec![comm.rank() as u8 + 7; 2]);
        (comm.gather(&mine), told, comm.any(comm.rank() == 2), comm.any(false))
    });
    let expected = (vec![vec![], vec![1], vec![2, 2]], vec![7, 7], true, false);
    assert_eq!(found, [expected.clone(), expected.clone(), expected]);
    assert!(Alone.any(true) && !Alone.any(false));
    assert_eq!((Alone.gather(&[3]), Alone.broadcast(vec![4])), (vec![vec![3]], vec![4]));
}
