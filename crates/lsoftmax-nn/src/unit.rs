//! A layer of the networks as a Burn module.

use burn::config::Config;
use burn::module::{Flag, Initializer, Module, Param, RunningState};
use burn::tensor::{Device, Tensor};
use lsoftmax_kernels::Precision;
use lsoftmax_kernels::conv::Unit;

use crate::{NetworkError, composed, fused};

/// Configuration of a [`ConvUnit`].
///
/// ```
/// use burn::tensor::Device;
/// use lsoftmax_nn::ConvUnitConfig;
/// let unit = ConvUnitConfig::new(3, 64).with_pool(true).init(&Device::flex());
/// assert_eq!(unit.weight.dims(), [64, 3, 3, 3]);
/// ```
#[derive(Config, Debug, PartialEq)]
pub struct ConvUnitConfig {
    /// Channels of the input.
    pub channels: usize,
    /// Channels of the output.
    pub filters: usize,
    /// Height and width of the kernel.
    #[config(default = "[3, 3]")]
    pub kernel: [usize; 2],
    /// Zeros around the input, on every side.
    #[config(default = 1)]
    pub padding: usize,
    /// Input pixels from one output pixel to the next: 1 or 2.
    #[config(default = 1)]
    pub stride: usize,
    /// Whether the convolution adds a bias.
    #[config(default = false)]
    pub bias: bool,
    /// Whether batch norm follows.
    #[config(default = true)]
    pub norm: bool,
    /// Whether PReLU follows, one slope a channel.
    #[config(default = true)]
    pub prelu: bool,
    /// Whether 2x2 max pooling of stride 2 follows; an odd size is rounded up, as Caffe does.
    #[config(default = false)]
    pub pool: bool,
    /// The share of a batch in batch norm's running statistics.
    #[config(default = 0.1)]
    pub momentum: f64,
    /// The precision of products on the CPU.
    #[config(default = "Precision::F32")]
    pub precision: Precision,
    /// Whether to compose the unit of Burn's own operations even where there are kernels for it.
    #[config(default = false)]
    pub composed: bool,
}

/// The slopes that PReLU starts with, as in He et al.
const SLOPE: f64 = 0.25;

impl ConvUnitConfig {
    /// The configuration of a kernel's unit for an input of `channels` channels.
    pub fn of_unit(channels: usize, unit: &Unit) -> Self {
        let Unit { filters, kernel, padding, stride, bias, norm, prelu, pool } = *unit;
        Self::new(channels, filters)
            .with_kernel(kernel)
            .with_padding(padding)
            .with_stride(stride)
            .with_bias(bias)
            .with_norm(norm)
            .with_prelu(prelu)
            .with_pool(pool)
    }

    /// Builds the unit; its weights are drawn here and now, not at first use.
    ///
    /// The weights start normal with a variance of 2 / fan-in (He et al.), gamma and the running
    /// variance with 1, the slopes with 0.25, all others with 0.
    ///
    /// # Panics
    /// When a size is 0, the stride not 1 or 2, or the momentum not from 0 to 1.
    pub fn init(&self, device: &Device) -> ConvUnit {
        let Self { channels, filters, kernel: [height, width], .. } = *self;
        let sizes = [channels, filters, height, width];
        assert!(!sizes.contains(&0), "a unit needs channels, filters and a kernel");
        assert!((1..=2).contains(&self.stride), "the stride must be 1 or 2, not {}", self.stride);
        let momentum = self.momentum;
        assert!((0.0..=1.0).contains(&momentum), "the momentum must be 0 to 1, not {momentum}");

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
        ConvUnit {
            weight,
            bias: vector(self.bias, 0.0),
            gamma: vector(self.norm, 1.0),
            beta: vector(self.norm, 0.0),
            slope: vector(self.prelu, SLOPE),
            running_mean: self.norm.then(|| RunningState::new(Tensor::zeros([filters], device))),
            running_var: self.norm.then(|| RunningState::new(Tensor::ones([filters], device))),
            training: Param::from_bool(true),
            padding: self.padding,
            stride: self.stride,
            pool: self.pool,
            momentum,
            precision: self.precision,
            composed: self.composed,
        }
    }
}

/// A convolution, then what is wanted of batch norm, PReLU and 2x2 max pooling, in this order.
///
/// With z the convolution of the input (plus a bias), over a channel:
///
/// - batch norm: u = γ (z − mean) / √(variance + ε) + β, with ε = 1e-5
/// - PReLU: u if u > 0, else slope · u
/// - pooling: the largest of two by two, the last row and column alone where the size is odd
///
/// Built by [`ConvUnitConfig::init`].
#[derive(Module, Debug)]
pub struct ConvUnit {
    /// The kernel: `[filters, channels, height, width]`.
    pub weight: Param<Tensor<4>>,
    /// The convolution's bias, one a filter.
    pub bias: Option<Param<Tensor<1>>>,
    /// γ of batch norm, one a filter.
    pub gamma: Option<Param<Tensor<1>>>,
    /// β of batch norm, one a filter.
    pub beta: Option<Param<Tensor<1>>>,
    /// PReLU's slopes, one a filter.
    pub slope: Option<Param<Tensor<1>>>,
    /// The mean that inference uses, one a filter.
    pub running_mean: Option<RunningState<Tensor<1>>>,
    /// The variance that inference uses (divided by the count less one), one a filter.
    pub running_var: Option<RunningState<Tensor<1>>>,
    /// Whether batch norm may train; [`Module::freeze`] and [`Module::valid`] turn it off.
    pub training: Param<Flag>,
    /// Zeros around the input, on every side.
    #[module(skip)]
    pub padding: usize,
    /// Input pixels from one output pixel to the next.
    #[module(skip)]
    pub stride: usize,
    /// Whether pooling follows.
    #[module(skip)]
    pub pool: bool,
    /// The share of a batch in the running statistics.
    #[module(skip)]
    pub momentum: f64,
    /// The precision of products on the CPU.
    #[module(skip)]
    pub precision: Precision,
    /// Whether to compose the unit of Burn's own operations even where there are kernels for it.
    #[module(skip)]
    pub composed: bool,
}

impl ConvUnit {
    /// Computes the unit.
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
    /// When the input has other channels or is smaller than the kernel, or the environment asks for a
    /// kernel path that the CPU lacks.
    pub fn forward(&self, input: Tensor<4>) -> Result<Tensor<4>, NetworkError> {
        let [_, channels, height, width] = input.dims();
        let expected = self.weight.dims()[1];
        if channels != expected {
            let (expected, found) = ([expected, height, width], [channels, height, width]);
            return Err(NetworkError::Images { expected, found });
        }
        run(std::slice::from_ref(self), input)
    }

    /// The same unit in the words of the CPU kernels.
    pub fn unit(&self) -> Unit {
        let [filters, _, height, width] = self.weight.dims();
        Unit {
            filters,
            kernel: [height, width],
            padding: self.padding,
            stride: self.stride,
            bias: self.bias.is_some(),
            norm: self.gamma.is_some(),
            prelu: self.slope.is_some(),
            pool: self.pool,
        }
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

/// Computes units one after the other: on the CPU in one go with kernels of our own, elsewhere
/// composed of ordinary operations.
///
/// A frozen unit on a device with autodiff is composed, too: the kernels train, or infer.
pub(crate) fn run(units: &[ConvUnit], images: Tensor<4>) -> Result<Tensor<4>, NetworkError> {
    let mut images = images;
    let alike = |a: &ConvUnit, b: &ConvUnit| (a.precision, a.composed) == (b.precision, b.composed);
    for units in units.chunk_by(alike) {
        let output = if units[0].composed { None } else { fused::run(units, &images)? };
        images = output.unwrap_or_else(|| composed::run(units, images));
    }
    Ok(images)
}
