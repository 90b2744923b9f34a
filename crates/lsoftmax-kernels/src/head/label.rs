//! What concerns a sample's own class: the parts of its angle, and its share of the gradients.
//!
//! Both are computed in f64. A square of an f32 never over- or underflows there, and the terms
//! along x and along W, which nearly cancel at small angles, lose nothing.

use crate::kernel::Kernel;

const LANES: usize = 16;

/// A sample against the weights of its class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometry {
    /// x·W_y.
    pub dot: f64,
    /// |x|.
    pub feature_norm: f64,
    /// |W_y|.
    pub weight_norm: f64,
}

/// The derivative of the total loss through the label's logit f_y.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LabelGradient {
    /// ∂L/∂f_y, which is also the bias's share.
    pub logit: f64,
    /// ∂f_y/∂x along x.
    pub along_feature: f64,
    /// ∂f_y/∂W_y along W_y.
    pub along_weight: f64,
    /// ∂f_y/∂x along W_y, and ∂f_y/∂W_y along x.
    pub across: f64,
}

#[inline(always)]
pub(super) fn geometry<K: Kernel>(kernel: K, feature: &[f32], weight: &[f32]) -> Geometry {
    kernel.vectorize(
        #[inline(always)]
        || Geometry {
            dot: dot(feature, weight),
            feature_norm: dot(feature, feature).sqrt(),
            weight_norm: dot(weight, weight).sqrt(),
        },
    )
}

#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut sums = [0.0f64; LANES];
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest = a.remainder().iter().zip(b.remainder());
    for (sum, (a, b)) in sums.iter_mut().zip(rest) {
        *sum = f64::from(*a) * f64::from(*b);
    }
    for (a, b) in a.zip(b) {
        for lane in 0..LANES {
            sums[lane] += f64::from(a[lane]) * f64::from(b[lane]);
        }
    }
    sums.iter().sum()
}

/// `out = a · own + b · other`, or `out += …`, each element in f64.
#[inline(always)]
pub(super) fn combine<K: Kernel>(
    kernel: K,
    out: &mut [f32],
    (a, own): (f64, &[f32]),
    (b, other): (f64, &[f32]),
    add: bool,
) {
    kernel.vectorize(
        #[inline(always)]
        || {
            let (own, other) = (&own[..out.len()], &other[..out.len()]);
            if add {
                for ((o, own), other) in out.iter_mut().zip(own).zip(other) {
                    *o += (a * f64::from(*own) + b * f64::from(*other)) as f32;
                }
            } else {
                for ((o, own), other) in out.iter_mut().zip(own).zip(other) {
                    *o = (a * f64::from(*own) + b * f64::from(*other)) as f32;
                }
            }
        },
    );
}
