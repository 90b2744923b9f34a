//! Dispatch of units to the fused or the composed implementation.

use std::sync::Arc;

use burn::tensor::Tensor;
use lsoftmax_flex::Execution;
use lsoftmax_kernels::conv::Stack;

use crate::{ConvUnit, NetworkError, composed, fused};

/// Computes units: fused by the kernels on the CPU, composed of Burn's own operations
/// elsewhere.
pub(crate) fn units(
    units: &[ConvUnit],
    stack: &Arc<Stack>,
    execution: &Execution,
    images: Tensor<4>,
) -> Result<Tensor<4>, NetworkError> {
    let output = fused::run(units, stack, execution, &images)?;
    Ok(output.unwrap_or_else(|| composed::run(units, stack, images)))
}
