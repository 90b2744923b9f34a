//! Which code computes a chain of units.

use std::sync::Arc;

use burn::tensor::Tensor;
use lsoftmax_flex::Execution;
use lsoftmax_kernels::conv::Stack;

use crate::{ConvUnit, NetworkError, composed, fused};

/// Computes units one after the other: on the CPU together, with the kernels, elsewhere composed of
/// Burn's own operations.
///
/// A frozen unit on a device with autodiff is composed, too: the kernels train, or infer.
pub(crate) fn units(
    units: &[ConvUnit],
    stack: &Arc<Stack>,
    execution: &Execution,
    images: Tensor<4>,
) -> Result<Tensor<4>, NetworkError> {
    let output = fused::run(units, stack, execution, &images)?;
    Ok(output.unwrap_or_else(|| composed::run(units, images)))
}
