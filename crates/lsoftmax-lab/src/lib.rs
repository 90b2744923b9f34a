//! Everything of the large-margin softmax that reads, writes, measures or shows.
//!
//! | | |
//! |---|---|
//! | [`arrays`] | numpy's `.npy` files, read with distrust and written whole |

pub mod arrays;
