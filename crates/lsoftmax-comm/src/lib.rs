#![doc = include_str!("../README.md")]

mod communicator;
mod sum;
mod threads;
mod timed;
mod tree;

pub use communicator::{Alone, Communicator};
pub use sum::{slices, sum, sum_scatter};
pub use threads::in_threads;
pub use timed::{Timed, Traffic};
pub use tree::{Node, Tree, are_siblings, fold, shares};
