//! Division of a pass over a unit into tasks.
//!
//! A task is a block of images, or, where there are few blocks, some rows of one. The division depends only
//! on the sizes, never on the number of threads, because statistics and weight gradients are sums over tasks
//! in order.

use std::ops::Range;

use super::geometry::divide;

/// Tasks that a pass is divided into, if the sizes allow.
const TASKS: usize = 64;

/// Divides the rows of a block into sections, each of them a task: ranges of `count` bands of `rows` rows.
///
/// A section computes a few rows that the one before it has computed as well, so sections are the shorter, the
/// fewer blocks there are.
pub(super) fn sections(blocks: usize, count: usize, rows: usize) -> Vec<Range<usize>> {
    let least_rows = (2 * blocks).min(16);
    let most = (count * rows / least_rows).max(1);
    let sections = (TASKS / blocks).clamp(1, most);
    divide(count, count.div_ceil(sections), 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_cover_all_rows_in_order_and_are_more_for_small_batches() {
        for (blocks, count, rows) in [(1, 32, 1), (2, 7, 5), (4, 16, 2), (16, 32, 1), (100, 8, 4)] {
            let sections = sections(blocks, count, rows);
            let covered: Vec<usize> = sections.iter().cloned().flatten().collect();
            assert_eq!(covered, (0..count).collect::<Vec<_>>());
        }
        let tasks = |blocks| blocks * sections(blocks, 32, 1).len();
        assert_eq!([1, 2, 4, 16, 64].map(tasks), [16, 16, 16, 32, 64]);
    }
}
