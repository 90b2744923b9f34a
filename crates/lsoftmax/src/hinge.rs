//! One-against-all multi-class hinge loss, as in Caffe's `HingeLoss` layer.

use burn::config::Config;
use burn::module::Module;
use burn::tensor::activation::relu;
use burn::tensor::{Int, Tensor};

/// The norm of the violations.
#[derive(Config, Debug, Copy, PartialEq, Eq)]
pub enum HingeNorm {
    /// Their sum.
    L1,
    /// The sum of their squares.
    L2,
}

/// Configuration of a [`HingeLoss`].
#[derive(Config, Debug)]
pub struct HingeLossConfig {
    /// The norm; Caffe's default is L1.
    #[config(default = "HingeNorm::L1")]
    pub norm: HingeNorm,
}

impl HingeLossConfig {
    /// Builds the loss.
    pub fn init(&self) -> HingeLoss {
        HingeLoss { norm: self.norm }
    }
}

/// One-against-all hinge loss.
///
/// ```text
/// L = 1/N Σ_i Σ_j max(0, 1 − t_ij s_ij)^p,    t_ij = 1 if j is i's label, −1 otherwise
/// ```
///
/// with p = 1 or 2. Note that it is not Burn's `MultiMarginLoss`, which compares every class with the
/// label's score; the paper's hinge rows come from Caffe, whose layer is this one.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use lsoftmax::HingeLossConfig;
/// let device = Device::flex();
/// let scores = Tensor::<2>::from_floats([[2.0, -0.5]], &device);
/// let loss = HingeLossConfig::new().init().forward(scores, Tensor::from_ints([0], &device));
/// assert_eq!(loss.into_scalar::<f32>(), 0.5); // max(0, 1 − 2) + max(0, 1 − 0.5)
/// ```
#[derive(Module, Debug)]
pub struct HingeLoss {
    /// The norm.
    #[module(skip)]
    pub norm: HingeNorm,
}

impl HingeLoss {
    /// The mean over samples of the summed violations.
    ///
    /// # Shapes
    /// - scores: `[samples, classes]`
    /// - labels: `[samples]`
    /// - output: `[1]`
    pub fn forward(&self, scores: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
        self.forward_no_reduction(scores, labels).mean()
    }

    /// The summed violations of every sample, `[samples]`.
    pub fn forward_no_reduction(&self, scores: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
        let [samples, classes] = scores.dims();
        let signs = labels.one_hot_fill::<2>(classes, 1.0, -1.0, 1);
        let signs = signs.float().cast(scores.dtype());
        // Not `clamp_min`: the derivative exactly at the margin is 0, as in Caffe.
        let violation = relu((scores * signs).neg().add_scalar(1.0));
        let violation = match self.norm {
            HingeNorm::L1 => violation,
            HingeNorm::L2 => violation.square(),
        };
        violation.sum_dim(1).reshape([samples])
    }
}
