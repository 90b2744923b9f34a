//! Tensors of Burn's CPU backend as slices, and the choice of the implementation.
//!
//! `lsoftmax` and `lsoftmax-nn` compute f32 tensors of Burn's CPU backend, Flex, with the kernels of
//! `lsoftmax-kernels`, which take slices. [`contiguous`] and [`as_slice`] turn a tensor into a slice,
//! [`from_buffer`] and [`into_tensor`] turn a result into a tensor, all without a copy where the
//! tensor's memory is contiguous. [`Execution`] selects the kernels or Burn's own operations. [`TensorIdentity`]
//! tells whether a tensor's values are still those that something was derived from.

mod execution;
mod identity;
mod tensor;

pub use execution::Execution;
pub use identity::TensorIdentity;
pub use tensor::{
    FlexTensor, TrackedTensor, as_slice, contiguous, from_buffer, into_tensor, is_flex, tracked,
};
