//! Records: one small directory per finished run, without weights.
//!
//! ```text
//! records/runs/ID/recipe.toml        the recipe as it was run
//! records/runs/ID/environment.json   the machine and the program version
//! records/runs/ID/metrics.jsonl      the log, thinned to a few hundred lines
//! records/runs/ID/summary.json       the results
//! records/runs/ID/test.json          the misclassified test images, the similarity of the classes
//! records/runs/ID/diverged.json      instead of the two above: when and how training diverged
//! ```
//!
//! All tables and figures are made from these files alone.

mod record;
mod statistics;

pub use record::{Diverged, LFW, Record, RecordError, RecordedResult, Records};
pub use statistics::{
    Sample, mcnemar_test, paired_t_test, standard_error_of_pairs, standard_error_of_rates,
    two_proportions_test,
};
