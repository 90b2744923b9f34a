//! A layer of the networks as a Burn module.

use burn::module::{Flag, Initializer, Module, Param, RunningState};
use burn::tensor::{Device, Tensor};
use lsoftmax_flex::Execution;
use lsoftmax_kernels::conv::{Stack, Unit};

use crate::{NetworkError, run};

/// The slopes that PReLU starts with, as in He et al.
const SLOPE: f64 = 0.25;

/// The default share of a batch in batch norm's running statistics.
const MOMENTUM: f64 = 0.1;

/// A convolution, then what its [`Unit`] asks for of batch norm, PReLU and 2x2 max pooling, in this
/// order.
///
/// With z the convolution of the input (plus a bias), over a channel:
///
/// - batch norm: u = γ (z − mean) / √(variance + ε) + β, with ε = 1e-5
/// - PReLU: u if u > 0, else slope · u
/// - pooling: the largest of two by two, the last row and column alone where the size is odd
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use lsoftmax_nn::{ConvUnit, Unit};
/// let device = Device::flex();
/// let unit = ConvUnit::new(3, Unit { pool: true, ..Unit::new(64) }, &device);
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
    /// The mean that inference uses, one per filter.
    pub running_mean: Option<RunningState<Tensor<1>>>,
    /// The variance that inference uses (divided by the count less one), one per filter.
    pub running_var: Option<RunningState<Tensor<1>>>,
    /// Whether batch norm may train; [`Module::freeze`] and [`Module::valid`] turn it off.
    pub training: Param<Flag>,
    #[module(skip)]
    unit: Unit,
    #[module(skip)]
    momentum: f64,
    #[module(skip)]
    execution: Execution,
}

impl ConvUnit {
    /// A unit for an input of `channels` channels. Its weights are drawn now, not at first use.
    ///
    /// The weights start normal with a variance of 2 / fan-in (He et al.), gamma and the running
    /// variance with 1, the slopes with 0.25, all others with 0.
    ///
    /// # Panics
    /// When a size is 0 or the stride is not 1 or 2.
    pub fn new(channels: usize, unit: Unit, device: &Device) -> Self {
        let Unit { filters, kernel: [height, width], stride, bias, norm, prelu, .. } = unit;
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
            slope: vector(prelu, SLOPE),
            running_mean: norm.then(|| RunningState::new(Tensor::zeros([filters], device))),
            running_var: norm.then(|| RunningState::new(Tensor::ones([filters], device))),
            training: Param::from_bool(true),
            unit,
            momentum: MOMENTUM,
            execution: Execution::default(),
        }
    }

    /// Sets the share of a batch in batch norm's running statistics; 0.1 by default.
    ///
    /// # Panics
    /// When it is not from 0 to 1.
    pub fn with_momentum(mut self, momentum: f64) -> Self {
        assert!((0.0..=1.0).contains(&momentum), "the momentum must be 0 to 1, not {momentum}");
        self.momentum = momentum;
        self
    }

    /// Sets what computes the unit when it is run by itself; by default the CPU kernels with products
    /// of f32. Inside a [`Network`](crate::Network) the network's execution counts, not this one.
    pub fn with_execution(mut self, execution: Execution) -> Self {
        self.execution = execution;
        self
    }

    /// Computes the unit by itself.
    ///
    /// On a device with autodiff, batch norm takes the batch's mean and variance and moves the running
    /// ones towards them; on a plain device, or when frozen, it takes the running ones.
    ///
    /// # Shapes
    /// - input: `[images, channels, height, width]`
    /// - output: `[images, filters, height', width']`, each side (side + 2 padding − kernel) / stride + 1,
    ///   with pooling half of that, rounded up
    ///
    /// # Errors
    /// When the input has other channels or is smaller than the kernel, or the kernel path asked for
    /// is unavailable.
    pub fn forward(&self, input: Tensor<4>) -> Result<Tensor<4>, NetworkError> {
        let [_, channels, height, width] = input.dims();
        let expected = self.weight.dims()[1];
        if channels != expected {
            let (expected, found) = ([expected, height, width], [channels, height, width]);
            return Err(NetworkError::Images { expected, found });
        }
        let stack = Stack::new([channels, height, width], vec![self.unit])?;
        run::units(std::slice::from_ref(self), &stack.into(), &self.execution, input)
    }

    /// What the unit consists of.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Whether batch norm takes the statistics of this input: Burn's own batch norm decides the same.
    pub(crate) fn trains_on(&self, input: &Tensor<4>) -> bool {
        input.device().is_autodiff() && self.training.is_enabled()
    }

    /// Moves the running statistics towards a batch's mean and variance (divided by `count`, the
    /// values of a channel). What is kept is divided by the count less one, if that is not zero.
    pub(crate) fn update_running(&self, mean: Tensor<1>, variance: Tensor<1>, count: usize) {
        let unbiased = if count > 1 { count as f64 / (count - 1) as f64 } else { 1.0 };
        let towards = |running: &Option<RunningState<Tensor<1>>>, batch: Tensor<1>, scale: f64| {
            let Some(running) = running else { return };
            let kept = running.value_sync().to_device(&batch.device());
            let kept = kept.mul_scalar(1.0 - self.momentum);
            running.update((kept + batch.mul_scalar(self.momentum * scale)).detach());
            // Else the update would be pending, and a record taken now would miss it.
            running.value_sync();
        };
        towards(&self.running_mean, mean, 1.0);
        towards(&self.running_var, variance, unbiased);
    }
}
