//! Everything of the large-margin softmax that reads, writes, measures or shows.
//!
//! | | |
//! |---|---|
//! | [`loss`] | the loss, and its gradients, of arrays in files |
//! | [`arrays`] | numpy's `.npy` files, read with distrust and written whole |

pub mod arrays;
pub mod loss;
