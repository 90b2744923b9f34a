//! The paper's tables and figures as a queue of training runs, which can be stopped and resumed anywhere.
//!
//! | file | contents |
//! |---|---|
//! | `row` | a kind of run: one line of a table |
//! | `experiments` | the tables, figures and studies, and which runs the paper's need |
//! | `faces` | the runs of the table of faces |
//! | `lambda`, `conditions`, `heads` | the runs of the project's own studies |
//! | `plan` | the runs that are missing, in the order in which they are most needed |
//! | `queue` | training them, and recording each as soon as it ends |

mod conditions;
mod experiments;
mod faces;
mod heads;
mod lambda;
mod plan;
mod queue;
mod row;

pub use experiments::Experiment;
pub(crate) use lambda::TIED;
pub use plan::{PlannedRun, Progress, plan};
pub use queue::{QueueEvent, QueueOutcome, ReproduceError, run};
pub use row::Row;
