//! Contrastive loss on pairs, for the paper's "softmax + contrastive" row.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Bool, Int, Tensor};

/// Configuration of a [`ContrastiveLoss`].
#[derive(Config, Debug)]
pub struct ContrastiveLossConfig {
    /// The distance beyond which pairs of different classes have no loss.
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
/// Pairs of different classes at exactly the same point have a gradient of zero, not NaN.
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
    /// The distance beyond which pairs of different classes have no loss.
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

    /// The loss of all pairs in a batch, with features normalised to length 1: half the mean over pairs of
    /// the same class plus half the mean over pairs of different classes. The mean over no pairs is 0.
    ///
    /// With normalised features, distances range from 0 to 2 for any network, so that the margin has a
    /// fixed meaning. With separate means, the few pairs of the same class are not outweighed.
    ///
    /// # Shapes
    /// - features: `[samples, features]`
    /// - labels: `[samples]`
    /// - output: `[1]`
    pub fn forward_batch(&self, features: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
        let [samples, _] = features.dims();
        let square = features.clone().square().sum_dim(1);
        // Features of length 0 cannot be normalised and stay 0.
        let zero = square.clone().detach().equal_scalar(0.0);
        let length = square.zeros_like().add_scalar(1.0).mask_fill(zero.clone(), 0.0);
        let features = features / square.mask_fill(zero, 1.0).sqrt();

        let device = features.device();
        let index = Tensor::<1, Int>::arange(0..samples as i64, &device);
        let by_pair = |numbers: Tensor<1, Int>| {
            let rows = numbers.clone().reshape([samples, 1]).expand([samples, samples]);
            (rows, numbers.reshape([1, samples]).expand([samples, samples]))
        };
        let (first, second) = by_pair(index);
        let once = first.lower(second);
        let (first, second) = by_pair(labels);
        let same = first.equal(second);

        // |a − b|² = |a|² + |b|² − 2 a·b, with lengths of 1 or 0.
        let cosine = features.clone().matmul(features.transpose());
        let lengths = length.clone() + length.transpose();
        let square = (lengths - cosine.mul_scalar(2.0)).clamp_min(0.0);
        let losses = self.of_square(square, same.clone());
        let mean = |pairs: Tensor<2, Bool>| {
            let count = pairs.clone().float().cast(losses.dtype()).sum().clamp_min(1.0);
            losses.clone().mask_fill(pairs.bool_not(), 0.0).sum() / count
        };
        let pull = mean(once.clone().bool_and(same.clone()));
        let push = mean(once.bool_and(same.bool_not()));
        (pull + push).mul_scalar(0.5)
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
        self.of_square(square, same)
    }

    /// The loss of pairs with these squared distances.
    fn of_square<const D: usize>(&self, square: Tensor<D>, same: Tensor<D, Bool>) -> Tensor<D> {
        // √ has an infinite derivative at 0; coincident pairs get a constant distance of 0 instead.
        let coincident = square.clone().detach().equal_scalar(0.0);
        let distance = square.clone().mask_fill(coincident.clone(), 1.0).sqrt();
        let distance = distance.mask_fill(coincident, 0.0);
        let apart = distance.neg().add_scalar(self.margin).clamp_min(0.0).square();
        apart.mask_where(same, square).mul_scalar(0.5)
    }
}
