//! The networks of the large-margin softmax paper on Burn.
//!
//! The crate has its place in the workspace already; its first network comes with the CPU engine
//! for convolutions.
