//! What concerns a sample's own class: the parts of its angle, and its share of the gradients.
//!
//! The angle is computed in f64, where a square of an f32 never over- or underflows. The gradient's
//! terms along x and along W nearly cancel at small angles and large margins; then they are, too.

use crate::kernel::{Kernel, Vectors};

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

impl LabelGradient {
    /// Below this slope the terms along and across cancel by no more than some digits of f32.
    const STEEP: f64 = 64.0;

    /// Adds to `out`, or makes it, the sum of `along` times `own` and across times `other`, both
    /// times ∂L/∂f_y: in f32 where that is good enough, in f64 where it is not.
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
        let f32_will_do = self.across.abs() < Self::STEEP && narrow(a) && narrow(b);
        kernel.vectorize(
            #[inline(always)]
            || {
                let terms = own.iter().zip(other);
                if f32_will_do {
                    let (a, b) = (a as f32, b as f32);
                    for (o, (own, other)) in out.iter_mut().zip(terms) {
                        let base = if add { *o } else { 0.0 };
                        *o = K::Vectors::mul_add(b, *other, K::Vectors::mul_add(a, *own, base));
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
