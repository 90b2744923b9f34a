//! Training by a recipe, in a directory that it can be resumed from.
//!
//! A step is a pure function of the model, the optimiser and the step's number: the batch, λ and the
//! learning rate follow from the number. So a run that is killed and resumed ends with the same bits
//! as one that is not.

mod divergence;
mod error;
mod material;
mod rate;
mod start;
mod trainer;
mod window;

pub use divergence::{Divergence, Settings};
pub use error::TrainError;
pub use material::{recipe_for, recipe_from_file};
pub use rate::{Rate, RateState};
pub use start::{Ended, Event, Options, Summary, resume, start};
