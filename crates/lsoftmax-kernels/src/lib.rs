//! CPU kernels of the large-margin softmax: plain slices in, plain slices out.
//!
//! [`head`] computes the cross-entropy of a linear classifier, forward and backward,
//! without ever holding all samples-by-classes logits when there are many classes. It knows no
//! margin: the caller supplies the label's logit and its derivatives, the kernels do the rest.
//!
//! The instructions are chosen at run time ([`Engine`]); results don't depend on the number of
//! threads, to the bit.

#![warn(missing_docs)]

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_bf16;
mod bf16;
mod buffer;
pub mod conv;
mod f32_words;
pub mod head;
mod kernel;
mod path;
mod peak;
mod portable;
mod softmax;
#[cfg(target_arch = "x86_64")]
#[allow(dead_code, reason = "the wrappers are whole; a kernel need not use each")]
mod tile;

pub use buffer::{Buffer, release_buffers};
pub use path::{Engine, EngineError, PATH_VARIABLE, Path, Precision};
pub use peak::peak_gflops;
