//! Everything of the large-margin softmax that reads, writes, measures or shows.
//!
//! | | |
//! |---|---|
//! | [`data`] | labelled images: found, fetched, checked, read, and made into batches |
//! | [`loss`] | the loss, and its gradients, of arrays in files |
//! | [`model`] | a network with its head and optimiser |
//! | [`recipe`] | what a training run is made of |
//! | [`train`], [`run`] | training by a recipe, in a directory that it can be resumed from |
//! | [`evaluate`], [`saved`], [`using`] | how well a model does, its files, and its use |
//! | [`mod@bench`] | how fast head and training are on this machine |
//! | [`figures`] | pictures, tables and the page they are on, from numbers |
//! | [`demo`] | Figure 2 of the paper, trained here and now |
//! | [`threads`] | the threads that all commands share |
//! | [`arrays`] | numpy's `.npy` files, read with distrust and written whole |

pub mod arrays;
pub mod bench;
pub mod data;
pub mod demo;
pub mod evaluate;
pub mod figures;
mod files;
pub mod loss;
pub mod model;
pub mod recipe;
pub mod run;
pub mod saved;
pub mod threads;
pub mod train;
pub mod using;
