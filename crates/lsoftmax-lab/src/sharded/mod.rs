//! Training a model whose head is divided over ranks by class.
//!
//! The network is the same on every rank, and its share of a batch is computed as ever. The features of the whole
//! batch are then on every rank, and each computes its shards of the head with all of them.
//!
//! | file | contents |
//! |---|---|
//! | `learner` | the training step |
//! | `shards` | the shards of a rank with their optimisers |
//! | `evaluation` | evaluating images |
//! | `saving` | the shards in a checkpoint, and the file of the finished model |

mod evaluation;
mod learner;
mod saving;
mod shards;

pub(crate) use learner::ShardedLearner;
pub(crate) use shards::TrainedShards;
