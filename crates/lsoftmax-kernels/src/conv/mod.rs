//! Stacks of convolution units, forward and backward: convolution, batch norm, shortcut, activation and
//! pooling.
//!
//! A [`Stack`] is a list of [`Unit`]s, each of which reads the output of an earlier one: of the previous one,
//! except in residual networks, where a unit may also add the output of another. A fully connected layer is a
//! unit whose kernel is as large as its input. [`forward()`] is the forward pass in training (with batch statistics), [`infer`] uses given
//! statistics, and [`backward()`] returns the gradients of images and parameters.
//!
//! Images and outputs are N x C x H x W; weights are filters x channels x height x width. Internally,
//! activations are blocked (see `layout`): sixteen images by 32 channels at one pixel are contiguous,
//! so that one loop over such blocks covers every kernel path, kernel size and padding.
//!
//! | Module | Contents |
//! |---|---|
//! | `unit`, `stack` | units, stacks, parameters and their validation |
//! | `layout` | the blocked layout of activations, and im2col |
//! | `geometry` | which input pixels a convolution reads, and in which order rows are computed |
//! | `weights`, `layer` | packed weights, and a unit's convolution ready to run |
//! | `division` | the tasks of a pass |
//! | `share` | the tasks of a rank, and sums over the tasks of all ranks |
//! | `conv_kernel`, `product` | operands of each kernel path, and a convolution's three products |
//! | `winograd` | Winograd's algorithm, which computes 3x3 convolutions with fewer multiplications: its transforms and tiles |
//! | `winograd_conv`, `winograd_gradient`, `tile_pixels` | a convolution's three products by that algorithm, and how they read tiles |
//! | `weight_gradient` | the weight gradient by either of the two |
//! | `pixel_pairs` | how AMX reads the input in the weight gradient |
//! | `epilogue`, `moments` | batch norm, activation and pooling, and the statistics of batch norm |
//! | `output`, `shortcut` | a unit's output from what is stored, and the sums of residual units |
//! | `forward`, `backward` | the passes over a whole stack in training |
//! | `ready_stack`, `unit_backward` | what the backward pass reads, and its part for one unit |
//! | `inference`, `slots` | the forward pass in inference, and its buffers |

mod backward;
mod conv_kernel;
mod division;
mod epilogue;
mod forward;
mod geometry;
mod inference;
mod layer;
mod layout;
mod moments;
mod output;
mod pixel_pairs;
mod product;
mod ready_stack;
mod share;
mod shortcut;
mod slots;
mod stack;
mod tile_pixels;
mod unit;
mod unit_backward;
mod weight_gradient;
mod weights;
mod winograd;
mod winograd_conv;
mod winograd_gradient;

pub use backward::{GradientsTo, StackGradients, backward};
pub use forward::{StackForward, forward, forward_shared, forward_with_fixed};
pub use inference::infer;
pub use share::BatchShare;
pub use stack::{GraphProblem, Moments, Parameters, Stack, StackError};
pub use unit::{Activation, Pool, Shortcut, ShortcutOrder, Unit};
pub use unit_backward::UnitGradients;

/// Batch norm's ε, added to the variance before its square root.
pub const EPSILON: f32 = 1e-5;
