//! Large-margin softmax (L-Softmax; Liu, Wen, Yu and Yang, ICML 2016) for [Burn](https://burn.dev).
//!
//! [`LSoftmax`] is a classification head that makes softmax harder for the label: the angle between a
//! sample and its class is multiplied by a [`Margin`] m. The learned features have smaller angles within
//! a class and larger ones between classes. At inference the head is a plain linear layer.
//!
//! | in a model | |
//! |---|---|
//! | [`LSoftmaxConfig`] → [`LSoftmax`] | the head: weights and loss |
//! | [`ASoftmaxConfig`], [`CosFaceConfig`], [`ArcFaceConfig`], [`NormSoftmaxConfig`] | its successors, as the same [`MarginHead`] with another [`Normalisation`] and margin |
//! | [`Margin`], [`LambdaSchedule`] | the size of the margin, and its gradual introduction |
//! | [`AngularMargin`] | custom margins |
//! | [`SampleRate`], [`RowSgd`] | steps on a part of very many classes |
//! | [`ShardedHead`] | a head whose classes are divided over processes |
//! | [`Execution`] | the CPU kernels, or Burn's own operations |
//! | [`Report`] | angles, norms and margins of a step |
//! | [`HingeLoss`], [`ContrastiveLoss`] | the other losses of the paper's tables |

mod angular;
mod batch_loss;
mod composed;
mod config;
mod contrastive;
mod error;
mod fused;
mod head;
mod hinge;
mod label;
mod lambda;
mod margin;
mod normalisation;
mod number;
mod report;
mod row_sgd;
mod sampling;
mod sharded;
mod successors;
mod successors_config;
mod weight_copy;

pub use angular::AngularMargin;
pub use config::LSoftmaxConfig;
pub use contrastive::{ContrastiveLoss, ContrastiveLossConfig};
pub use error::HeadError;
pub use head::{HeadOutput, LSoftmax, MarginHead};
pub use hinge::{HingeLoss, HingeLossConfig, HingeNorm};
pub use lambda::{LambdaError, LambdaSchedule, Stage};
pub use lsoftmax_flex::Execution;
pub use lsoftmax_kernels::head::ShapeError;
pub use lsoftmax_kernels::{EngineError, Precision};
pub use margin::{Margin, MarginError, Psi};
pub use normalisation::Normalisation;
pub use number::Number;
pub use report::{Angles, NormRange, Norms, Report};
pub use row_sgd::RowSgd;
pub use sampling::{SampleRate, SampleRateError, SampledHead};
pub use sharded::{
    ClassShards, HeadShard, ShardError, ShardGradient, ShardedHead, ShardedHeadError, ShardedOutput,
};
pub use successors::{AdditiveMargin, AngleError, CombinedMargin, Continuation, CosineMargin};
pub use successors_config::{ASoftmaxConfig, ArcFaceConfig, CosFaceConfig, NormSoftmaxConfig};
pub use weight_copy::WeightCopy;

/// The example of the repository's README, which is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
