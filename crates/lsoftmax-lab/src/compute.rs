//! What computes a model.

use std::sync::Arc;

use burn::tensor::Device;
use lsoftmax::{EngineError, Execution, Precision};
use lsoftmax_comm::{Alone, Communicator};

/// A device, on the CPU either the fused kernels or Burn's own operations, and the ranks that share the work.
/// Chosen once per run.
#[derive(Clone, Debug)]
pub struct Compute {
    /// The device, without autodiff.
    pub device: Device,
    /// What computes head and network.
    pub execution: Execution,
    /// The ranks that train together.
    pub ranks: Arc<dyn Communicator>,
}

impl Compute {
    /// The kernels with products of this precision on the CPU; Burn's own operations, which are f32, on
    /// other devices, or everywhere if `composed`.
    ///
    /// # Errors
    /// When the CPU lacks the kernel path that `LSOFTMAX_KERNEL` asks for.
    pub fn new(device: Device, precision: Precision, composed: bool) -> Result<Self, EngineError> {
        let execution = match composed || device != Device::flex() {
            true => Execution::Composed,
            false => Execution::new(precision),
        };
        execution.engine()?;
        Ok(Self { device, execution, ranks: Arc::new(Alone) })
    }

    /// Sets the ranks that train together.
    pub fn with_ranks(mut self, ranks: Arc<dyn Communicator>) -> Self {
        self.ranks = ranks;
        self
    }

    /// The precision of products.
    pub fn precision(&self) -> Precision {
        match self.execution {
            Execution::Fused(engine) => engine.precision(),
            _ => Precision::F32,
        }
    }

    /// The name of the kernel path, or `burn` for Burn's own operations.
    pub fn path(&self) -> &'static str {
        match self.execution {
            Execution::Fused(engine) => engine.path().name(),
            _ => "burn",
        }
    }

    /// The name of the device; `cpu` for the CPU.
    pub fn device_name(&self) -> String {
        if self.device == Device::flex() { "cpu".into() } else { format!("{:?}", self.device) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burns_operations_are_f32_whatever_was_asked_for() {
        let composed = Compute::new(Device::flex(), Precision::Bf16, true).unwrap();
        assert_eq!((composed.path(), composed.precision()), ("burn", Precision::F32));
        assert_eq!(composed.device_name(), "cpu");
    }
}
