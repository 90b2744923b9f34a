//! What the tests share: numbers, tensors, and the units written out in f64.

#![allow(dead_code, reason = "no test uses all of it")]

pub mod naive;

use burn::module::{Param, RunningState};
use burn::tensor::{DType, Device, Tensor, TensorData};
use lsoftmax_nn::{ConvUnit, ConvUnitConfig};
use naive::Naive;

/// Numbers from −1 to 1 that repeat for a seed (a linear congruential generator).
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub fn vec(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| self.next()).collect()
    }

    /// From `low` to `high`.
    pub fn within(&mut self, count: usize, low: f64, high: f64) -> Vec<f64> {
        let (middle, half) = ((low + high) / 2.0, (high - low) / 2.0);
        self.vec(count).into_iter().map(|x| middle + half * x).collect()
    }
}

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

/// A unit of a configuration with the naive one's parameters.
pub fn module(config: &ConvUnitConfig, naive: &Naive, device: &Device, dtype: DType) -> ConvUnit {
    let mut unit = config.init(device);
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

/// Asserts that numbers are equal to `tolerance` of the largest expected one.
pub fn assert_close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}: another number of values");
    let scale = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs())).max(1e-3);
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs() / scale;
        assert!(error <= tolerance, "{what}[{i}] is {found}, not {expected} (error {error:.1e})");
    }
}
