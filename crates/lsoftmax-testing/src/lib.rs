//! Test support shared by several crates: reproducible random numbers, comparisons with detailed
//! messages, a naive convolution, and the keys of JSON and of documents. It works on plain numbers, so that the kernels' tests do not
//! depend on Burn.

mod compare;
mod convolution;
mod documented;
mod random;

pub use compare::{assert_close, assert_close_to_scale, largest};
pub use convolution::Convolution;
pub use documented::{assert_documented, documented_keys, key_paths, undocumented_keys};
pub use random::{Congruential, SplitMix};
