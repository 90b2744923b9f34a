//! What concerns a sample's own class: the parts of its angle, and its share of the gradients.
//!
//! Both are computed in f64. A square of an f32 never over- or underflows there, and the terms
//! along x and along W, which nearly cancel at small angles, lose nothing.

use crate::kernel::Kernel;

const LANES: usize = 8;

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
        || {
            let mut sums = [[0.0f64; LANES]; 3];
            let mut add = |lane: usize, x: f32, w: f32| {
                let (x, w) = (f64::from(x), f64::from(w));
                sums[0][lane] += x * w;
                sums[1][lane] += x * x;
                sums[2][lane] += w * w;
            };
            let whole = feature.len() / LANES * LANES;
            for (x, w) in feature.chunks_exact(LANES).zip(weight.chunks_exact(LANES)) {
                for lane in 0..LANES {
                    add(lane, x[lane], w[lane]);
                }
            }
            for (lane, (x, w)) in feature[whole..].iter().zip(&weight[whole..]).enumerate() {
                add(lane, *x, *w);
            }
            let [dot, xx, ww] = sums.map(|lanes| lanes.iter().sum::<f64>());
            Geometry { dot, feature_norm: xx.sqrt(), weight_norm: ww.sqrt() }
        },
    )
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
            for ((o, own), other) in out.iter_mut().zip(own).zip(other) {
                let term = a * f64::from(*own) + b * f64::from(*other);
                *o = if add { (f64::from(*o) + term) as f32 } else { term as f32 };
            }
        },
    );
}
