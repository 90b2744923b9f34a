//! Which vectors a head normalises, and the scale that then takes the place of their lengths.

use burn::module::Param;
use burn::tensor::{Device, Tensor};
use lsoftmax_kernels::head::Geometry;
use serde::{Deserialize, Serialize};

/// Which vectors a head normalises.
///
/// | | logit | used by |
/// |---|---|---|
/// | `None` | `\|W\|\|x\| cos θ` | L-Softmax |
/// | `Weights` | `\|x\| cos θ` | A-Softmax (SphereFace) |
/// | `Both` | `s cos θ` | NormFace, CosFace, ArcFace |
///
/// A normalised vector of zeros has the cosine 0 to every other, and the gradient 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Normalisation {
    /// Nothing.
    #[default]
    None,
    /// The weights of every class.
    Weights,
    /// The weights of every class and the features of every sample.
    Both {
        /// The scale s; if it is learned, its initial value.
        scale: f64,
    },
}

impl Normalisation {
    /// Whether weights are normalised.
    pub fn normalises_weights(self) -> bool {
        self != Self::None
    }

    /// Whether features are normalised.
    pub fn normalises_features(self) -> bool {
        matches!(self, Self::Both { .. })
    }

    /// # Panics
    /// When the scale is not above 0 and finite.
    pub(crate) fn check(self) {
        if let Self::Both { scale } = self {
            assert!(scale > 0.0 && scale.is_finite(), "a scale is above 0 and finite");
        }
    }

    /// The parameter of a learned scale, its logarithm, if there is a scale.
    pub(crate) fn learned_scale(self, device: &Device) -> Option<Param<Tensor<1>>> {
        let Self::Both { scale } = self else { return None };
        Some(Param::from_tensor(Tensor::from_floats([scale.ln() as f32], device)))
    }

    /// Features of length s, if they are normalised; s is learned if its logarithm is given.
    pub(crate) fn of_features(
        self,
        features: Tensor<2>,
        log_scale: Option<&Param<Tensor<1>>>,
    ) -> Tensor<2> {
        let Self::Both { scale } = self else { return features };
        let units = unit_rows(features);
        match log_scale {
            Some(log) => units * log.val().exp().reshape([1, 1]),
            None => units.mul_scalar(scale),
        }
    }

    /// A sample and its class as the margin sees them: with W/|W| in the place of W if weights are
    /// normalised. Features are normalised before.
    pub(crate) fn of_weights(self, geometry: Geometry) -> Geometry {
        let Geometry { dot, feature_norm, weight_norm } = geometry;
        match self.normalises_weights() {
            false => geometry,
            true if weight_norm > 0.0 => {
                Geometry { dot: dot / weight_norm, feature_norm, weight_norm: 1.0 }
            }
            true => Geometry { dot: 0.0, feature_norm, weight_norm: 0.0 },
        }
    }
}

/// Rows of length 1. A row of zeros stays zero, with the derivative 0.
pub(crate) fn unit_rows(rows: Tensor<2>) -> Tensor<2> {
    let (scaled, _) = scaled_rows(rows);
    let square = scaled.clone().square().sum_dim(1);
    let zero = square.clone().detach().equal_scalar(0.0);
    let [count, width] = scaled.dims();
    let norm = square.mask_fill(zero.clone(), 1.0).sqrt();
    (scaled / norm).mask_fill(zero.expand([count, width]), 0.0)
}

/// Rows divided by their largest absolute value, and that value, so that their squares neither overflow
/// nor underflow. The scale is constant for autodiff, since it cancels. It is never so small that its
/// reciprocal, which the backward pass uses, would be infinite.
pub(crate) fn scaled_rows(rows: Tensor<2>) -> (Tensor<2>, Tensor<2>) {
    let smallest = rows.dtype().finfo().map_or(1e-38, |info| info.min_positive);
    let scale = rows.clone().detach().max_abs_dim(1).clamp_min(smallest);
    (rows / scale.clone(), scale)
}
