//! The interface of custom margins.

use std::fmt::Debug;

use crate::Number;

/// An angular margin: the function ψ that replaces the label's cosine.
///
/// With the angle θ between a sample x and the weights W of its label, the label's logit is
/// `|W||x| (λ cos θ + ψ(θ)) / (1 + λ)` instead of `|W||x| cos θ`. [`Margin`](crate::Margin) is the
/// paper's margin; others implement this trait:
///
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use lsoftmax::{AngularMargin, Execution, LSoftmaxConfig, Number};
///
/// /// ψ(θ) = cos(θ + m), as in ArcFace.
/// #[derive(Clone, Debug)]
/// struct Additive(f64);
///
/// impl AngularMargin for Additive {
///     fn value_and_slope<N: Number>(&self, cos: N) -> (N, N) {
///         let theta = cos.clone().acos();
///         let widened = theta.clone() + self.0;
///         let sine = theta.sin().clamp(cos.smallest_sine(), 1.0);
///         (widened.clone().cos(), widened.sin() / sine)
///     }
/// }
///
/// let device = Device::flex().autodiff();
/// let head = LSoftmaxConfig::new(64, 10).init(&device).with_margin(Additive(0.5));
/// let features = Tensor::random([4, 64], Distribution::Normal(0.0, 1.0), &device);
/// let labels = Tensor::from_ints([3, 1, 4, 1], &device);
/// let fused = head.forward(features.clone(), labels.clone(), 0.0)?.loss.into_scalar::<f32>();
/// let head = head.with_execution(Execution::Composed);
/// let composed = head.forward(features, labels, 0.0)?.loss.into_scalar::<f32>();
/// assert!((fused - composed).abs() < 1e-4);
/// # Ok::<(), lsoftmax::HeadError>(())
/// ```
pub trait AngularMargin: Clone + Debug + Send {
    /// ψ and its slope dψ/dcos θ at a cosine from −1 to 1. Both must be finite, including at ±1.
    fn value_and_slope<N: Number>(&self, cos: N) -> (N, N);

    /// Whether ψ is the cosine, that is, there is no margin. The label's logit is then taken from the
    /// matrix product like all others, and the loss is bit-identical to the softmax loss.
    fn is_identity(&self) -> bool {
        false
    }

    /// The number of intervals of θ that a [`Report`](crate::Report) counts samples in.
    fn intervals(&self) -> usize {
        1
    }

    /// The interval of an angle given by its cosine, from 0 to one less than
    /// [`intervals`](AngularMargin::intervals).
    fn interval(&self, _cos: f64) -> usize {
        0
    }
}
