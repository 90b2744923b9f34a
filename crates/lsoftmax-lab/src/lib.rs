//! Training, evaluation, figures and benchmarks of the large-margin softmax.
//!
//! | | |
//! |---|---|
//! | [`recipe`] | the description of a training run |
//! | [`model`], [`objective`], [`optimiser`], [`learner`], [`batch`], [`compute`] | network and head, loss, optimiser, one training step, the device |
//! | [`train`], [`run`] | training by a recipe, and the directory from which it can be resumed |
//! | [`evaluate`], [`model_file`], [`inference`] | accuracy of a model, its files, and its use |
//! | [`loss`] | the loss and its gradients for arrays in files |
//! | [`figures`], [`plot`], [`demo`], [`two_classes`] | plots, tables and HTML pages; curves of runs; Figures 2 and 4 of the paper |
//! | [`mod@bench`] | speed and memory of the head and of training |
//! | [`threads`] | the thread pool |
//!
//! Images, loaders and arrays are in `lsoftmax-data`, networks in `lsoftmax-nn`, the head in `lsoftmax`.

pub mod batch;
pub mod bench;
pub mod compute;
pub mod demo;
pub mod evaluate;
pub mod figures;
pub mod inference;
pub mod learner;
pub mod loss;
pub mod model;
pub mod model_file;
pub mod objective;
pub mod optimiser;
pub mod plot;
pub mod recipe;
pub mod run;
pub mod threads;
pub mod train;
pub mod two_classes;
