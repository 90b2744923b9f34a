//! The label's logit, the only one that the margin changes.

use lsoftmax_kernels::head::{Geometry, LabelGradient};

use crate::AngularMargin;
use crate::lambda::shares;

/// The label's logit before the bias, and its derivatives.
///
/// With n = |W||x|, c = W·x/n and g = 1 + λ:
///
/// ```text
/// f     = (λ W·x + n ψ(c)) / g
/// ∂f/∂x = [(ψ − cψ') |W|/|x| x + (ψ' + λ) W] / g
/// ∂f/∂W = [(ψ − cψ') |x|/|W| W + (ψ' + λ) x] / g
/// ```
///
/// At x = 0 or W = 0, where the angle is undefined, f = 0 and the derivatives are those of plain softmax:
/// finite, and not all zero, so that training continues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LabelTerm {
    pub logit: f64,
    /// cos θ; 0 where the angle is undefined.
    pub cos: f64,
    gradient: LabelGradient,
}

impl LabelTerm {
    pub fn new(margin: &impl AngularMargin, lambda: f64, geometry: &Geometry) -> Self {
        let Geometry { dot, feature_norm, weight_norm } = *geometry;
        let norm = feature_norm * weight_norm;
        let defined = norm > 0.0;
        let cos = if defined { (dot / norm).clamp(-1.0, 1.0) } else { 0.0 };
        let plain = LabelGradient { across: 1.0, ..LabelGradient::default() };
        if margin.is_identity() || !defined {
            return Self { logit: dot, cos, gradient: plain };
        }
        let (psi, slope) = margin.value_and_slope(cos);
        let (plain_share, margin_share) = shares(lambda);
        let along = (psi - cos * slope) * margin_share;
        Self {
            logit: dot * plain_share + norm * psi * margin_share,
            cos,
            gradient: LabelGradient {
                along_feature: along * weight_norm / feature_norm,
                along_weight: along * feature_norm / weight_norm,
                across: slope * margin_share + plain_share,
                ..plain
            },
        }
    }

    /// The derivatives of a loss whose derivative by the label's logit is `logit`.
    pub fn gradient(&self, logit: f64) -> LabelGradient {
        LabelGradient { logit, ..self.gradient }
    }
}
