//! The implementations and precisions of the loss, all of which must agree.

use burn::module::Param;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use lsoftmax::{Execution, HeadError, HeadOutput, LSoftmax, Margin, Precision};

use super::Batch;

/// How the loss is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The fused operation, f32.
    Fused,
    /// The fused operation with bf16 products.
    FusedBf16,
    /// Composed of Burn's own operations, f32.
    Composed,
    /// Composed of Burn's own operations, f64.
    ComposedF64,
}

impl Way {
    pub const ALL: [Way; 4] = [Way::Fused, Way::FusedBf16, Way::Composed, Way::ComposedF64];

    pub fn dtype(self) -> DType {
        if self == Way::ComposedF64 { DType::F64 } else { DType::F32 }
    }

    pub fn execution(self) -> Execution {
        match self {
            Way::Fused => Execution::new(Precision::F32),
            Way::FusedBf16 => Execution::new(Precision::Bf16),
            Way::Composed | Way::ComposedF64 => Execution::Composed,
        }
    }
}

/// The gradients of features, weights and bias.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradients {
    pub features: Vec<f64>,
    pub weights: Vec<f64>,
    pub bias: Option<Vec<f64>>,
}

impl Gradients {
    /// The parts with their names.
    pub fn parts(&self) -> [(&'static str, &[f64]); 3] {
        let bias = self.bias.as_deref().unwrap_or_default();
        [("features", &self.features), ("weights", &self.weights), ("bias", bias)]
    }
}

/// A batch as tensors, with a head that has its weights.
pub struct Setup {
    pub way: Way,
    pub head: LSoftmax,
    pub features: Tensor<2>,
    pub labels: Tensor<1, Int>,
    pub lambda: f64,
}

impl Setup {
    /// On the CPU, with autodiff.
    pub fn new(way: Way, batch: &Batch) -> Self {
        Self::on(&Device::flex().autodiff(), way, batch)
    }

    pub fn on(device: &Device, way: Way, batch: &Batch) -> Self {
        let rows = |v: &[f64]| tensor(v, [v.len() / batch.depth, batch.depth], device, way.dtype());
        let vector = |v: &Vec<f64>| tensor(v, [v.len()], device, way.dtype());
        let head = LSoftmax::from_weights(
            Param::from_tensor(rows(&batch.weights)),
            batch.bias.as_ref().map(vector).map(Param::from_tensor),
            Margin::new(batch.margin).unwrap(),
            way.execution(),
        );
        let features = rows(&batch.features).set_require_grad(device.is_autodiff());
        Self { way, head, features, labels: labels(&batch.labels, device), lambda: batch.lambda }
    }

    pub fn forward(&self) -> Result<HeadOutput, HeadError> {
        self.head.forward(self.features.clone(), self.labels.clone(), self.lambda)
    }

    /// The forward pass, which must succeed.
    pub fn output(&self) -> HeadOutput {
        self.forward().unwrap_or_else(|error| panic!("{:?}: {error}", self.way))
    }

    /// The gradients of a loss of this setup.
    pub fn gradients(&self, loss: &Tensor<1>) -> Gradients {
        let found = loss.backward();
        Gradients {
            features: values(self.features.grad(&found).expect("the features' gradient")),
            weights: values(self.head.weight.val().grad(&found).expect("the weights' gradient")),
            bias: self
                .head
                .bias
                .as_ref()
                .map(|b| values(b.val().grad(&found).expect("the bias's"))),
        }
    }
}

/// The results of a forward and a backward pass of the mean loss.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub loss: f64,
    pub losses: Vec<f64>,
    pub gradients: Gradients,
}

impl Run {
    pub fn new(way: Way, batch: &Batch) -> Self {
        let setup = Setup::new(way, batch);
        let output = setup.output();
        Self {
            loss: values(output.loss.clone())[0],
            losses: values(output.losses.clone()),
            gradients: setup.gradients(&output.loss),
        }
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

pub fn labels(labels: &[usize], device: &Device) -> Tensor<1, Int> {
    let labels: Vec<i64> = labels.iter().map(|label| *label as i64).collect();
    Tensor::from_data(TensorData::new(labels.clone(), [labels.len()]), device)
}

pub fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}
