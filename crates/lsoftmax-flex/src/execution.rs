//! The implementation that computes an operation.

use lsoftmax_kernels::{Engine, EngineError, Precision};

/// How a head or a network is computed. It is determined when they are created.
///
/// ```
/// use lsoftmax_flex::Execution;
/// use lsoftmax_kernels::Precision;
/// let execution = Execution::new(Precision::Bf16);
/// assert_eq!(execution.engine()?.map(|engine| engine.precision()), Some(Precision::Bf16));
/// assert_eq!(Execution::Composed.engine()?, None);
/// # Ok::<(), lsoftmax_kernels::EngineError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Execution {
    /// The CPU kernels for f32 tensors on the CPU, Burn's own operations for all others.
    Fused(Engine),
    /// Burn's own operations everywhere.
    Composed,
    /// `LSOFTMAX_KERNEL` asks for a kernel path that this CPU lacks, or that does not exist. A
    /// forward pass that needs the kernels returns the error.
    Unavailable(EngineError),
}

impl Execution {
    /// The CPU kernels with products of this precision, on the best path that this CPU supports; the
    /// environment variable `LSOFTMAX_KERNEL` limits it to a lower path.
    pub fn new(precision: Precision) -> Self {
        Engine::new(precision).map_or_else(Self::Unavailable, Self::Fused)
    }

    /// The kernels for f32 tensors on the CPU; `None` if Burn's operations are used for them too.
    ///
    /// # Errors
    /// When the requested kernel path is unavailable.
    pub fn engine(&self) -> Result<Option<Engine>, EngineError> {
        match self {
            Self::Fused(engine) => Ok(Some(*engine)),
            Self::Composed => Ok(None),
            Self::Unavailable(error) => Err(error.clone()),
        }
    }
}

impl Default for Execution {
    /// The CPU kernels with f32 products.
    fn default() -> Self {
        Self::new(Precision::default())
    }
}
