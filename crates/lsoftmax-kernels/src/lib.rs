//! CPU kernels for training and running classifiers: the large-margin softmax head, and the
//! convolutional networks in front of it. Plain slices in, plain slices out.
//!
//! | Module | Computes, forward and backward |
//! |---|---|
//! | [`head`] | the cross-entropy of a linear classifier, without storing all samples-by-classes logits |
//! | [`conv`] | stacks of convolution, batch norm, PReLU and max pooling |
//!
//! The head knows nothing about margins: the caller supplies the label's logit and its derivatives.
//!
//! Both are built from one matrix product, written once per instruction set. An [`Engine`] selects
//! the instructions at run time. Large results are [`Buffer`]s, which reuse their memory.
//!
//! Results do not depend on the number of threads, to the bit.
//!
//! The private modules, bottom up:
//!
//! | Module | Contents |
//! |---|---|
//! | `kernel` | what an instruction set supplies, and the matrix product built on it |
//! | `portable`, `neon`, `avx2`, `avx512`, `avx512_bf16`, `amx` | one kernel path each |
//! | `lanes` | one number per channel, in registers |
//! | `f32_kernel` | what the paths without bf16 instructions share |
//! | `amx_tile` | the AMX instructions |
//! | `engine` | the choice of a path, and the call of its kernel |
//! | `bf16`, `softmax`, `buffer`, `peak` | rounding, passes over logits, memory, peak speed |

#![warn(missing_docs)]

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
#[allow(dead_code, reason = "the set of wrappers is complete; a kernel need not use each")]
mod amx_tile;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_bf16;
mod bf16;
mod buffer;
pub mod conv;
mod engine;
mod f32_kernel;
pub mod head;
mod kernel;
mod lanes;
#[cfg(target_arch = "aarch64")]
mod neon;
mod peak;
mod portable;
mod softmax;

pub use buffer::{Buffer, release_buffers};
pub use engine::{Engine, EngineError, KernelPath, PATH_VARIABLE, Precision};
pub use peak::peak_gflops;
