//! Training by a recipe, in a directory from which it can be resumed.
//!
//! A step is a pure function of the model, the optimiser, the step number, which determines the batches,
//! and λ and the learning rate, which follow from the step number or from a state in the checkpoint. A run that is killed and resumed therefore ends with bit-identical
//! results.
//!
//! | file | contents |
//! |---|---|
//! | `start` | starting and resuming a run, and its outcome |
//! | `agreement` | that all ranks train the same |
//! | `data` | the images, split |
//! | `trainer` | the loop |
//! | `training` | the model in training: whole, or with a head that is divided over ranks |
//! | `saving` | the contents of a checkpoint, writing and restoring it |
//! | `evaluations` | the evaluations of held-out and test images |
//! | `journal` | the log, the event files, the observer |
//! | `phase` | the progress of reading and evaluating, and stopping them |
//! | `auto_lambda` | λ by how well the margin is satisfied |
//! | `selection` | the best model, the averaged model, the early end |
//! | `rate` | the learning-rate schedule and its state |
//! | `divergence`, `recovery` | detecting divergence, and rolling back |
//!
//! The step itself is [`learner`](crate::learner), the loss [`objective`](crate::objective).

mod agreement;
mod auto_lambda;
mod data;
mod divergence;
mod error;
mod evaluations;
mod journal;
mod phase;
mod rate;
mod recovery;
mod saving;
mod selection;
mod start;
mod trainer;
mod training;

pub use divergence::{Divergence, Settings};
pub use error::TrainError;
pub use phase::Phase;
pub use rate::{Rate, RateState};
pub use selection::KeptModel;
pub use start::{Event, NewLength, Options, RunOutcome, RunSummary, resume, start};

pub use crate::recipe::OnDivergence;
