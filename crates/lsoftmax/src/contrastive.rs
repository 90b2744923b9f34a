//! Contrastive loss on pairs, for the paper's "softmax + contrastive" row.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Bool, Tensor};

/// Configuration of a [`ContrastiveLoss`].
#[derive(Config, Debug)]
pub struct ContrastiveLossConfig {
    /// The distance from which different pairs are far enough apart.
    #[config(default = 1.0)]
    pub margin: f64,
}

impl ContrastiveLossConfig {
    /// Builds the loss.
    ///
    /// # Panics
    /// When the margin is not a positive number.
    pub fn init(&self) -> ContrastiveLoss {
        assert!(
            self.margin > 0.0 && self.margin.is_finite(),
            "the contrastive margin must be a positive number, but is {}",
            self.margin
        );
        ContrastiveLoss { margin: self.margin }
    }
}

/// Contrastive loss: pulls pairs of the same class together, pushes others `margin` apart.
///
/// ```text
/// L = 1/N Σ ½ d²               for pairs of the same class
///     1/N Σ ½ max(0, m − d)²   for the others,      d = |a − b|
/// ```
///
/// Two different samples on the very same point have no direction to be pushed in: their gradient is
/// zero, not NaN.
///
/// ```
/// use burn::tensor::{Bool, Device, Tensor};
/// use lsoftmax::ContrastiveLossConfig;
/// let device = Device::flex();
/// let a = Tensor::<2>::from_floats([[0.0, 0.0], [0.0, 0.0]], &device);
/// let b = Tensor::<2>::from_floats([[3.0, 4.0], [0.6, 0.8]], &device);
/// let same = Tensor::<1, Bool>::from_data([true, false], &device);
/// let loss = ContrastiveLossConfig::new().with_margin(2.0).init().forward(a, b, same);
/// assert!((loss.into_scalar::<f32>() - 6.5).abs() < 1e-6); // (½·5² + ½·1²) / 2
/// ```
#[derive(Module, Debug)]
pub struct ContrastiveLoss {
    /// The distance from which different pairs are far enough apart.
    #[module(skip)]
    pub margin: f64,
}

impl ContrastiveLoss {
    /// The mean over pairs.
    ///
    /// # Shapes
    /// - a, b: `[pairs, features]`
    /// - same: `[pairs]`
    /// - output: `[1]`
    pub fn forward(&self, a: Tensor<2>, b: Tensor<2>, same: Tensor<1, Bool>) -> Tensor<1> {
        self.forward_no_reduction(a, b, same).mean()
    }

    /// The loss of every pair, `[pairs]`.
    pub fn forward_no_reduction(
        &self,
        a: Tensor<2>,
        b: Tensor<2>,
        same: Tensor<1, Bool>,
    ) -> Tensor<1> {
        let [pairs, _] = a.dims();
        let square = (a - b).square().sum_dim(1).reshape([pairs]);
        // √ has no finite slope at 0; coincident pairs take a constant distance of 0 instead.
        let coincident = square.clone().detach().equal_scalar(0.0);
        let distance = square.clone().mask_fill(coincident.clone(), 1.0).sqrt();
        let distance = distance.mask_fill(coincident, 0.0);
        let apart = distance.neg().add_scalar(self.margin).clamp_min(0.0).square();
        apart.mask_where(same, square).mul_scalar(0.5)
    }
}
