//! The networks of the large-margin softmax paper (Liu, Wen, Yu and Yang, ICML 2016) on
//! [Burn](https://burn.dev).
//!
//! A [`Network`] turns images into features, which the head of the `lsoftmax` crate classifies. It is
//! a list of [`ConvUnit`]s: convolution, batch norm, activation and, at the end of a stage, pooling. In a
//! residual network, the input of a block is added to its output.
//!
//! ```
//! use burn::tensor::{Device, Distribution, Tensor};
//! use lsoftmax::LSoftmaxConfig;
//! use lsoftmax_nn::NetworkConfig;
//!
//! let device = Device::flex().autodiff();
//! let config = NetworkConfig::named("mnist")?;
//! let network = config.init(&device)?;
//! let head = LSoftmaxConfig::new(config.features.size, 10).with_margin(4).init(&device);
//!
//! let images = Tensor::random([2, 1, 28, 28], Distribution::Normal(0.0, 1.0), &device);
//! let features = network.forward(images)?;
//! assert_eq!(features.dims(), [2, 256]);
//! let out = head.forward(features, Tensor::from_ints([3, 7], &device), 5.0)?;
//! let gradients = out.loss.backward();
//! assert!(network.units[0].weight.val().grad(&gradients).is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | | |
//! |---|---|
//! | [`NetworkConfig`] → [`Network`] | a description, and the network that it describes |
//! | [`Unit`] → [`ConvUnit`] | one layer, for other architectures |
//! | [`NamedNetwork`] | the paper's networks and two residual ones, by name |
//! | [`NetworkSummary`] | sizes, parameters and work per layer |

mod composed;
mod description;
mod error;
mod fused;
mod named;
mod network;
mod run;
mod summary;
mod unit;

pub use description::{FeatureLayer, FeaturesConfig, NetworkConfig, Residual, StageConfig};
pub use error::NetworkError;
pub use lsoftmax_flex::Execution;
pub use lsoftmax_kernels::Precision;
pub use lsoftmax_kernels::conv::{
    Activation, BatchShare, Pool, Shortcut, ShortcutOrder, Stack, StackError, Unit,
};
pub use named::NamedNetwork;
pub use network::Network;
pub use summary::{LayerSummary, NetworkSummary};
pub use unit::ConvUnit;
