//! Tensors of Burn's CPU backend as slices, and back.

use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::{Device, FloatTensor};
use burn::backend::{Autodiff, BackendTensor, DispatchTensor, DispatchTensorKind, Flex};
use burn::tensor::{DType, Shape, Tensor, TensorData};
use lsoftmax_kernels::Buffer;

/// A float tensor of the CPU backend.
pub type FlexTensor = FloatTensor<Flex>;

/// A float tensor of the CPU backend with autodiff.
pub type TrackedTensor = FloatTensor<Autodiff<Flex>>;

/// Whether a tensor is on the CPU backend, with or without autodiff, so that its values can be read
/// without blocking on a device.
pub fn is_flex<const D: usize>(tensor: &Tensor<D>) -> bool {
    primitive(tensor.clone()).is_some()
}

/// The values of an f32 tensor of the CPU backend, row-major and contiguous; copied only if the tensor
/// is a non-contiguous view. `None` for other backends and types.
pub fn contiguous<const D: usize>(tensor: Tensor<D>) -> Option<FlexTensor> {
    let tensor = primitive(tensor).filter(|tensor| tensor.dtype() == DType::F32)?;
    Some(if tensor.is_contiguous() { tensor } else { tensor.to_contiguous() })
}

/// The values of a tensor made by [`contiguous`] or [`from_buffer`].
///
/// # Panics
/// When the tensor is not contiguous or not of f32.
pub fn as_slice(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice().expect("the tensor is contiguous and of f32")
}

/// A tensor that takes ownership of a buffer.
pub fn from_buffer(values: Buffer, shape: impl Into<Shape>) -> FlexTensor {
    let data = TensorData::from_bytes(values.into_bytes(), shape.into(), DType::F32);
    Flex::float_from_data(data, &Device::<Flex>::default())
}

/// Converts a tensor of the CPU backend, without autodiff, to a [`Tensor`].
pub fn into_tensor<const D: usize>(tensor: FlexTensor) -> Tensor<D> {
    let kind = DispatchTensorKind::Flex(BackendTensor::Float(tensor));
    Tensor::from_dispatch(DispatchTensor { kind, autodiff: Default::default() })
}

/// The CPU backend's tensor with its graph node, if the tensor is on an autodiff device.
pub fn tracked<const D: usize>(tensor: Tensor<D>) -> Option<TrackedTensor> {
    match tensor.into_dispatch().kind {
        DispatchTensorKind::Autodiff(kind) => match *kind {
            DispatchTensorKind::Flex(BackendTensor::Autodiff(tensor)) => Some(tensor),
            _ => None,
        },
        _ => None,
    }
}

/// The CPU backend's own tensor, without autodiff, if the tensor is on that backend.
fn primitive<const D: usize>(tensor: Tensor<D>) -> Option<FlexTensor> {
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
