#![doc = include_str!("../README.md")]

mod communicator;
mod sum;
mod threads;
mod tree;

pub use communicator::{Alone, Communicator};
pub use sum::{slices, sum, sum_scatter};
pub use threads::in_threads;
pub use tree::{Node, Tree, are_siblings, fold, shares};
