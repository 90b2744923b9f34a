//! Test support shared by several crates: reproducible random numbers, comparisons with detailed
//! messages, and a naive convolution. It works on plain numbers, so that the kernels' tests do not
//! depend on Burn.

mod compare;
mod convolution;
mod random;

pub use compare::{assert_close, assert_close_to_scale, largest};
pub use convolution::Convolution;
pub use random::{Congruential, SplitMix};
