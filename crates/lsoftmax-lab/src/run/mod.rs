//! The directory of a training run.
//!
//! ```text
//! RUN/recipe.toml         the recipe as it was run
//! RUN/environment.json    the machine and the program version
//! RUN/metrics.jsonl       the log, one JSON object per line
//! RUN/tensorboard/        the same for TensorBoard, if requested
//! RUN/checkpoints/        the last two checkpoints, each one file with a checksum, and one per shard of a divided head
//! RUN/init.safetensors    the weights that it started from, if they are not random, with init.json
//! RUN/model.safetensors   the weights of the finished model
//! RUN/model.last.safetensors  the last weights, if the model is the best one
//! RUN/model.json          the description of the model, with the mean image
//! RUN/test.json           which test images are misclassified, how similar the classes are
//! RUN/summary.json        the results
//! ```
//!
//! Every file but the logs is written atomically, so that a killed run leaves the old contents or the
//! new ones. When a run is resumed, metrics.jsonl is truncated to its length at the checkpoint.

mod checkpoint;
mod directory;
mod environment;
mod error;
mod metrics;
mod ranks;
mod shards;
mod tensorboard;

pub use checkpoint::{Checkpoint, newest_step};
pub(crate) use checkpoint::{keep_only, prune};
pub use directory::{
    ENVIRONMENT, METRICS, RECIPE, RunDirectory, SUMMARY, TENSORBOARD, TEST, is_file_of_run,
};
pub(crate) use directory::{LOCK, read_json, write_atomic};
pub use environment::Environment;
pub use error::RunError;
pub use metrics::{Metric, Metrics, Rollback};
pub(crate) use shards::{read_shard, write_shard};
pub use tensorboard::TensorBoard;
