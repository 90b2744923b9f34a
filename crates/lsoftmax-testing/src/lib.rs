//! What the tests of several crates share: reproducible random numbers, comparisons that say what
//! differs, and a naive convolution. Plain numbers only, so that the kernels' tests need no Burn.

mod compare;
mod convolution;
mod random;

pub use compare::{assert_close, assert_close_to_scale, largest};
pub use convolution::Convolution;
pub use random::{Congruential, SplitMix};
