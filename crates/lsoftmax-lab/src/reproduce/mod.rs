//! The paper's tables and figures as a queue of training runs, which can be stopped and resumed anywhere.
//!
//! | file | contents |
//! |---|---|
//! | `experiments` | the tables and figures: which runs they need, and the paper's numbers |
//! | `studies` | the studies of λ and of heads: which runs they need |
//! | `plan` | the runs that are missing, in the order in which they are most needed |
//! | `queue` | training them, and recording each as soon as it ends |

mod experiments;
mod plan;
mod queue;
mod studies;

pub use experiments::{Experiment, Row};
pub use plan::{PlannedRun, Progress, plan};
pub use queue::{QueueEvent, QueueOutcome, ReproduceError, run};
