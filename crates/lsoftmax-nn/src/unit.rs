//! A layer of the networks as a Burn module.

use std::sync::Arc;

use burn::module::{Flag, Initializer, Module, Param, RunningState};
use burn::tensor::{Device, Tensor};
use lsoftmax_comm::{Alone, Communicator};
use lsoftmax_flex::Execution;
use lsoftmax_kernels::conv::{Stack, Unit};

use crate::{NetworkError, run};

/// The initial slopes of PReLU, as in He et al.
const SLOPE: f64 = 0.25;

/// The default momentum of batch norm's running statistics.
const MOMENTUM: f64 = 0.1;

/// A convolution, followed by batch norm, an activation and pooling, as its [`Unit`] specifies.
///
/// With z the convolution of the input (plus a bias), per channel:
///
/// - batch norm: u = γ (z − mean) / √(variance + ε) + β, with ε = 1e-5
/// - PReLU: u if u > 0, else slope · u
/// - ReLU: u if u > 0, else 0
/// - max pooling: the maximum of 2x2 windows, which are smaller at the end of an odd height or width
///
/// In a [`Network`](crate::Network), the output of another unit may be added before or after the activation.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use lsoftmax_nn::{ConvUnit, Pool, Unit};
/// let device = Device::flex();
/// let unit = ConvUnit::new(3, Unit { pool: Pool::Max, ..Unit::new(64) }, &device);
/// assert_eq!(unit.weight.dims(), [64, 3, 3, 3]);
/// let output = unit.forward(Tensor::zeros([2, 3, 32, 32], &device))?;
/// assert_eq!(output.dims(), [2, 64, 16, 16]);
/// # Ok::<(), lsoftmax_nn::NetworkError>(())
/// ```
#[derive(Module, Debug)]
pub struct ConvUnit {
    /// The kernel: `[filters, channels, height, width]`.
    pub weight: Param<Tensor<4>>,
    /// The convolution's bias, one per filter.
    pub bias: Option<Param<Tensor<1>>>,
    /// γ of batch norm, one per filter.
    pub gamma: Option<Param<Tensor<1>>>,
    /// β of batch norm, one per filter.
    pub beta: Option<Param<Tensor<1>>>,
    /// PReLU's slopes, one per filter.
    pub slope: Option<Param<Tensor<1>>>,
    /// The running mean for inference, one per filter.
    pub running_mean: Option<RunningState<Tensor<1>>>,
    /// The running (unbiased) variance for inference, one per filter.
    pub running_var: Option<RunningState<Tensor<1>>>,
    /// Whether batch norm uses batch statistics; [`Module::freeze`] and [`Module::valid`] turn it off.
    pub training: Param<Flag>,
    #[module(skip)]
    unit: Unit,
    #[module(skip)]
    momentum: f64,
    #[module(skip)]
    execution: Execution,
}

impl ConvUnit {
    /// A unit for an input of `channels` channels. Its weights are initialised eagerly, not at first use.
    ///
    /// The weights are normal with a variance of 2 / fan-in (He et al.), gamma and the running variance
    /// are 1, the slopes 0.25, all others 0.
    ///
    /// # Panics
    /// When a size is 0 or the stride is not 1 or 2.
    pub fn new(channels: usize, unit: Unit, device: &Device) -> Self {
        Self::new_with(channels, unit, Execution::default(), device)
    }

    /// As [`ConvUnit::new`], with an execution that was chosen before.
    pub(crate) fn new_with(
        channels: usize,
        unit: Unit,
        execution: Execution,
        device: &Device,
    ) -> Self {
        let Unit { filters, kernel: [height, width], stride, bias, norm, .. } = unit;
        let sizes = [channels, filters, height, width];
        assert!(!sizes.contains(&0), "a unit needs channels, filters and a kernel");
        assert!((1..=2).contains(&stride), "the stride must be 1 or 2, not {stride}");

        let he = Initializer::KaimingNormal { gain: std::f64::consts::SQRT_2, fan_out_only: false };
        let fan_in = channels * height * width;
        let weight = he.init_with([filters, channels, height, width], Some(fan_in), None, device);
        weight.val();
        let vector = |wanted: bool, value: f64| {
            wanted.then(|| {
                let vector = Initializer::Constant { value }.init([filters], device);
                vector.val();
                vector
            })
        };
        Self {
            weight,
            bias: vector(bias, 0.0),
            gamma: vector(norm, 1.0),
            beta: vector(norm, 0.0),
            slope: vector(unit.has_slopes(), SLOPE),
            running_mean: norm.then(|| RunningState::new(Tensor::zeros([filters], device))),
            running_var: norm.then(|| RunningState::new(Tensor::ones([filters], device))),
            training: Param::from_bool(true),
            unit,
            momentum: MOMENTUM,
            execution,
        }
    }

    /// Sets the momentum of batch norm's running statistics, the weight of the new batch; 0.1 by default.
    ///
    /// # Panics
    /// When it is not from 0 to 1.
    pub fn with_momentum(mut self, momentum: f64) -> Self {
        assert!((0.0..=1.0).contains(&momentum), "the momentum must be 0 to 1, not {momentum}");
        self.momentum = momentum;
        self
    }

    /// Sets the execution of the unit when it is run by itself; by default the CPU kernels with f32
    /// products. A [`Network`](crate::Network) uses its own execution instead.
    pub fn with_execution(mut self, execution: Execution) -> Self {
        self.execution = execution;
        self
    }

    /// Computes the unit by itself.
    ///
    /// On a device with autodiff, batch norm uses the mean and variance of the batch and updates the
    /// running statistics; on a plain device, or when frozen, it uses the running statistics.
    ///
    /// # Shapes
    /// - input: `[images, channels, height, width]`
    /// - output: `[images, filters, height', width']`, each side (side + 2 padding − kernel) / stride + 1,
    ///   with pooling half of that, rounded up
    ///
    /// # Errors
    /// When the input has another number of channels or is smaller than the kernel, when the unit reads or adds
    /// the output of another one, or the requested kernel path is unavailable.
    pub fn forward(&self, input: Tensor<4>) -> Result<Tensor<4>, NetworkError> {
        let [_, channels, height, width] = input.dims();
        let expected = self.weight.dims()[1];
        if channels != expected {
            let (expected, found) = ([expected, height, width], [channels, height, width]);
            return Err(NetworkError::Images { expected, found });
        }
        let stack = Stack::new([channels, height, width], vec![self.unit])?;
        let alone: Arc<dyn Communicator> = Arc::new(Alone);
        run::units(std::slice::from_ref(self), &stack.into(), &self.execution, &alone, input)
    }

    /// The description of the unit.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Whether batch norm uses the statistics of this input, under the same conditions as Burn's own.
    pub(crate) fn trains_on(&self, input: &Tensor<4>) -> bool {
        input.device().is_autodiff() && self.training.is_enabled()
    }

    /// Updates the running statistics with the mean and (biased) variance of a batch with `count` values
    /// per channel. The running variance is unbiased, unless `count` is 1.
    pub(crate) fn update_running(&self, mean: Tensor<1>, variance: Tensor<1>, count: usize) {
        let unbiased = if count > 1 { count as f64 / (count - 1) as f64 } else { 1.0 };
        let update = |running: &Option<RunningState<Tensor<1>>>, batch: Tensor<1>, scale: f64| {
            let Some(running) = running else { return };
            let previous = running.value_sync().to_device(&batch.device());
            let previous = previous.mul_scalar(1.0 - self.momentum);
            running.update((previous + batch.mul_scalar(self.momentum * scale)).detach());
            // Without this the update would be pending, and a record taken now would miss it.
            running.value_sync();
        };
        update(&self.running_mean, mean, 1.0);
        update(&self.running_var, variance, unbiased);
    }
}
