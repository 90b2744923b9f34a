//! Training, evaluation, figures and benchmarks of the large-margin softmax.
//!
//! | | |
//! |---|---|
//! | [`recipe`] | the description of a training run |
//! | [`head`], [`model`], [`objective`], [`optimiser`], [`learner`], [`batch`], [`compute`] | L-Softmax and its successors, network and head, loss, optimiser, one training step, the device |
//! | [`train`], [`run`], [`runs`] | training by a recipe, the directory from which it can be resumed, and lists of them |
//! | [`evaluate`], [`test_details`] | accuracy of a model; which test images are misclassified, how similar the classes are |
//! | [`analysis`] | scores by class, confusions, nearest neighbours, the most wrong images |
//! | [`model_file`], [`inference`], [`onnx`] | the files of a model, its use, and the model for other runtimes |
//! | [`loss`] | the loss and its gradients for arrays in files |
//! | [`records`], [`reproduce`], [`report`] | finished runs without weights; the runs behind the paper's tables and figures; both from records |
//! | [`figures`], [`plot`], [`demo`], [`two_classes`] | plots, tables and HTML pages; curves of runs; Figures 2 and 4 of the paper |
//! | [`mod@bench`], [`estimate`] | speed and memory of the head and of training; the duration of a run |
//! | [`threads`], [`number_text`] | the thread pool; numbers in messages |
//!
//! Images, loaders and arrays are in `lsoftmax-data`, networks in `lsoftmax-nn`, the head in `lsoftmax`.

pub mod analysis;
pub mod batch;
pub mod bench;
pub mod compute;
pub mod demo;
pub mod estimate;
pub mod evaluate;
pub mod faces;
pub mod features;
pub mod figures;
pub mod fine_tuning;
pub mod head;
pub mod inference;
pub mod learner;
pub mod loss;
pub mod model;
pub mod model_file;
pub mod number_text;
pub mod objective;
pub mod onnx;
pub mod optimiser;
pub mod plot;
pub mod recipe;
pub mod records;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod runs;
mod sharded;
pub mod test_details;
pub mod threads;
pub mod train;
pub mod two_classes;
