//! The directory of a training run.
//!
//! ```text
//! RUN/recipe.toml         the recipe as it was run
//! RUN/environment.json    the machine and the program
//! RUN/metrics.jsonl       one object a line of the log or an evaluation
//! RUN/tensorboard/        the same for TensorBoard, if asked for
//! RUN/checkpoints/        the last two; each one file with a checksum
//! RUN/model.safetensors   the model, when the run is done
//! RUN/model.json          what the model is, and the mean that its images need
//! RUN/summary.json        what came out
//! ```
//!
//! Every file but the logs is written beside its place, synced and renamed, so that a kill leaves the
//! old one or the new one. The log metrics.jsonl is cut back to the checkpoint that a run goes on from.

mod checkpoint;
mod directory;
mod environment;
mod error;
mod metrics;
mod tensorboard;

pub use checkpoint::Checkpoint;
pub(crate) use checkpoint::prune;
pub use directory::RunDirectory;
pub(crate) use directory::{read_json, write_whole};
pub use environment::Environment;
pub use error::RunError;
pub use metrics::{Metric, Metrics, Rollback};
pub use tensorboard::TensorBoard;
