//! Training by a recipe, in a directory from which it can be resumed.
//!
//! A step is a pure function of the model, the optimiser and the step's number: the batches, λ and the
//! learning rate follow from the number. So a run that is killed and resumed ends with the same bits
//! as one that is not.
//!
//! | file | owns |
//! |---|---|
//! | `start` | how a run starts, resumes and ends |
//! | `data` | the images, divided |
//! | `trainer` | the loop and the checkpoint |
//! | `journal` | the log, the event files, the observer |
//! | `rate` | the learning rate and what a plateau remembers |
//! | `divergence`, `recovery` | noticing divergence, and what to do about it |
//!
//! The step itself is [`learner`](crate::learner), the loss [`objective`](crate::objective).

mod data;
mod divergence;
mod error;
mod journal;
mod rate;
mod recovery;
mod start;
mod trainer;

pub use divergence::{Divergence, Settings};
pub use error::TrainError;
pub use rate::{Rate, RateState};
pub use start::{Ended, Event, Options, RunSummary, resume, start};

pub use crate::recipe::OnDivergence;
