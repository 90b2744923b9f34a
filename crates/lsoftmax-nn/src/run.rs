//! Dispatch of units to the fused or the composed implementation.

use std::sync::Arc;

use burn::tensor::Tensor;
use lsoftmax_comm::Communicator;
use lsoftmax_flex::Execution;
use lsoftmax_kernels::conv::Stack;

use crate::{ConvUnit, NetworkError, composed, fused};

/// Computes units: fused by the kernels on the CPU, composed of Burn's own operations
/// elsewhere.
pub(crate) fn units(
    units: &[ConvUnit],
    stack: &Arc<Stack>,
    execution: &Execution,
    ranks: &Arc<dyn Communicator>,
    images: Tensor<4>,
) -> Result<Tensor<4>, NetworkError> {
    match fused::run(units, stack, execution, ranks, &images)? {
        Some(output) => Ok(output),
        None if ranks.size() > 1 && images.device().is_autodiff() => Err(NetworkError::Ranks),
        None => Ok(composed::run(units, stack, images)),
    }
}
