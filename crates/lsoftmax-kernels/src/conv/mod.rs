//! A run of convolution units, forward and backward: convolution, batch norm, PReLU, 2x2 max pooling.
//!
//! A [`Stack`] is a chain of [`Unit`]s. One unit is a stack of one; a fully connected layer is a unit
//! whose kernel is as large as its input. [`forward`] trains (batch statistics), [`infer`] uses given
//! statistics, [`backward`] returns the gradients of everything.
//!
//! Images and outputs are N x C x H x W, weights filters x channels x height x width, as everywhere
//! else. Inside, activations are blocked (see `layout`): sixteen images by 32 channels at one pixel
//! lie together, so that one loop over such blocks serves every kernel path, kernel size and padding.

mod backward;
mod forward;
mod geometry;
mod layer;
mod layout;
mod moments;
mod pointwise;
mod product;
mod stack;
mod weights;
mod words;

pub use backward::{Gradients, UnitGradients, backward};
pub use forward::{Forward, forward, infer};
pub use stack::{Moments, Parameters, Stack, StackError, Unit};

/// Added to the variance before its square root.
pub const EPSILON: f32 = 1e-5;
