//! Shared test support: batches, the implementations of the loss, and the definition in f64.

#![allow(
    dead_code,
    unused_imports,
    reason = "every test file is a crate of its own and uses a part"
)]

pub mod batch;
pub mod compare;
pub mod definition;
pub mod family;
pub mod way;

pub use batch::Batch;
pub use compare::{assert_close, assert_finite, assert_gradients_close, assert_same_bits, largest};
pub use lsoftmax_testing::SplitMix;
pub use way::{Gradients, Run, Setup, Way};

/// Margins of every kind: softmax, the paper's, those of every parity, a large one and a real one.
pub const MARGINS: [f64; 10] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 16.0, 2.5];

/// λ from the full margin to almost softmax.
pub const LAMBDAS: [f64; 4] = [0.0, 0.3, 5.0, 1000.0];
