//! Shared test support: numbers, tensors, and a naive implementation of the units in f64.

#![allow(dead_code, reason = "no test uses all of it")]

pub mod naive;

use burn::module::{Param, RunningState};
use burn::tensor::{DType, Device, Tensor, TensorData};
use lsoftmax_nn::ConvUnit;
use lsoftmax_testing::assert_close_to_scale;
use naive::Naive;

pub fn tensor<const D: usize>(
    numbers: &[f64],
    shape: [usize; D],
    device: &Device,
    dtype: DType,
) -> Tensor<D> {
    let data = TensorData::new(numbers.to_vec(), shape).convert_dtype(dtype);
    Tensor::from_data(data, (device, dtype))
}

pub fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// A unit with the parameters of a naive one.
pub fn module(naive: &Naive, device: &Device, dtype: DType) -> ConvUnit {
    let mut unit = ConvUnit::new(naive.channels, naive.unit, device);
    let vector = |numbers: &[f64]| {
        let vector = || tensor(numbers, [numbers.len()], device, dtype);
        (!numbers.is_empty()).then(vector)
    };
    let dims = unit.weight.dims();
    unit.weight = Param::from_tensor(tensor(&naive.weight, dims, device, dtype));
    unit.bias = vector(&naive.bias).map(Param::from_tensor);
    unit.gamma = vector(&naive.gamma).map(Param::from_tensor);
    unit.beta = vector(&naive.beta).map(Param::from_tensor);
    unit.slope = vector(&naive.slope).map(Param::from_tensor);
    unit.running_mean = vector(&naive.mean).map(RunningState::new);
    unit.running_var = vector(&naive.variance).map(RunningState::new);
    unit
}

/// Asserts that numbers are equal to within `tolerance` times the largest expected one.
pub fn assert_close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_close_to_scale(what, found, expected, tolerance, 1e-3);
}
