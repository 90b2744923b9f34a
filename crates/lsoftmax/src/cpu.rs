//! Tensors of Burn's CPU backend as slices, and back, without a copy.

use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::{Device, FloatTensor};
use burn::backend::{BackendTensor, DispatchTensorKind, Flex};
use burn::tensor::{DType, Shape, Tensor, TensorData};
use lsoftmax_kernels::Buffer;

/// A tensor of the CPU backend.
pub type FlexTensor = FloatTensor<Flex>;

/// The CPU backend's own tensor, without autodiff, if it is one.
pub fn inner<const D: usize>(tensor: Tensor<D>) -> Option<FlexTensor> {
    match tensor.into_dispatch().kind {
        DispatchTensorKind::Flex(BackendTensor::Float(tensor)) => Some(tensor),
        DispatchTensorKind::Autodiff(kind) => match *kind {
            DispatchTensorKind::Flex(BackendTensor::Autodiff(tensor)) => {
                Some(tensor.into_primitive())
            }
            _ => None,
        },
        #[allow(unreachable_patterns, reason = "other backends come with features")]
        _ => None,
    }
}

/// The same, in one piece of memory and of f32, if it is one.
pub fn contiguous<const D: usize>(tensor: Tensor<D>) -> Option<FlexTensor> {
    let tensor = inner(tensor).filter(|tensor| tensor.dtype() == DType::F32)?;
    Some(if tensor.is_contiguous() { tensor } else { tensor.to_contiguous() })
}

/// The numbers of a tensor made by [`contiguous`] or [`tensor`].
///
/// # Panics
/// When it was not made so.
pub fn slice(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice().expect("the tensor was made contiguous")
}

/// A tensor of a buffer's numbers.
pub fn tensor(values: Buffer, shape: impl Into<Shape>) -> FlexTensor {
    let data = TensorData::from_bytes(values.into_bytes(), shape.into(), DType::F32);
    Flex::float_from_data(data, &Device::<Flex>::default())
}
