//! A sample and the class of its label: the angle between them, and the gradients through the label's
//! logit.
//!
//! The angle is computed in f64, where the square of an f32 neither overflows nor underflows. The
//! gradient's terms along x and along W nearly cancel at small angles and large margins; in that case
//! they are computed in f64 as well.

use crate::kernel::{Kernel, Simd};

/// A sample x and the weights W_y of its class: the parts of the cosine between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometry {
    /// x·W_y.
    pub dot: f64,
    /// |x|.
    pub feature_norm: f64,
    /// |W_y|.
    pub weight_norm: f64,
}

/// The derivatives of the total loss L through the label's logit f_y.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LabelGradient {
    /// ∂L/∂f_y, which is also the term of the bias.
    pub logit: f64,
    /// The coefficient of x in ∂f_y/∂x.
    pub along_feature: f64,
    /// The coefficient of W_y in ∂f_y/∂W_y.
    pub along_weight: f64,
    /// The coefficient of W_y in ∂f_y/∂x, and of x in ∂f_y/∂W_y.
    pub across: f64,
}

#[inline(always)]
pub(super) fn geometry<K: Kernel>(kernel: K, feature: &[f32], weight: &[f32]) -> Geometry {
    let pairs = [(feature, weight), (feature, feature), (weight, weight)];
    let [dot, feature_square, weight_square] = kernel.vectorize(
        #[inline(always)]
        || kernel.simd().wide_dots(pairs),
    );
    Geometry { dot, feature_norm: feature_square.sqrt(), weight_norm: weight_square.sqrt() }
}

/// Subtracts from a gradient of W its component along W, given 1/|W|: the gradient of a function of W/|W|.
pub(super) fn project<K: Kernel>(kernel: K, gradient: &mut [f32], weight: &[f32], scale: f32) {
    kernel.vectorize(
        #[inline(always)]
        || {
            let scale = f64::from(scale);
            let [dot] = kernel.simd().wide_dots([(&*gradient, weight)]);
            let along = -dot * scale * scale;
            let terms = gradient.iter_mut().zip(weight);
            if along.abs() < 1e30 {
                let along = along as f32;
                terms.for_each(|(g, w)| *g = K::Simd::mul_add(along, *w, *g));
            } else {
                // Of very short weights, in whose product it is of ordinary size again.
                terms.for_each(|(g, w)| *g = (f64::from(*g) + along * f64::from(*w)) as f32);
            }
        },
    );
}

impl LabelGradient {
    /// Below this value of `across`, cancellation between the two terms costs only a few digits of f32.
    const STEEP: f64 = 64.0;

    /// Computes ∂L/∂f_y · (`along` · `own` + `self.across` · `other`), in f32 where that is accurate
    /// enough and in f64 otherwise, and writes it to `out` or, with `add`, adds it.
    #[inline(always)]
    pub(super) fn combine<K: Kernel>(
        &self,
        kernel: K,
        (along, own): (f64, &[f32]),
        other: &[f32],
        out: &mut [f32],
        add: bool,
    ) {
        let (a, b) = (self.logit * along, self.logit * self.across);
        let (own, other) = (&own[..out.len()], &other[..out.len()]);
        let narrow = |value: f64| value == 0.0 || (1e-30..1e30).contains(&value.abs());
        let f32_suffices = self.across.abs() < Self::STEEP && narrow(a) && narrow(b);
        kernel.vectorize(
            #[inline(always)]
            || {
                let terms = own.iter().zip(other);
                if f32_suffices {
                    let (a, b) = (a as f32, b as f32);
                    for (o, (own, other)) in out.iter_mut().zip(terms) {
                        let base = if add { *o } else { 0.0 };
                        *o = K::Simd::mul_add(b, *other, K::Simd::mul_add(a, *own, base));
                    }
                } else {
                    for (o, (own, other)) in out.iter_mut().zip(terms) {
                        let base = if add { f64::from(*o) } else { 0.0 };
                        *o = (base + a * f64::from(*own) + b * f64::from(*other)) as f32;
                    }
                }
            },
        );
    }
}
