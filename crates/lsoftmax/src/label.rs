//! The label's logit: the only one that the margin touches.

use lsoftmax_kernels::head::{Geometry, LabelGradient};

use crate::lambda::shares;
use crate::{Margin, margin::Psi};

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
/// At x = 0 or W = 0, where the angle is undefined, f = 0 and the derivatives are plain softmax's:
/// finite, and never all zero, so that training goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LabelTerm {
    pub logit: f64,
    /// cos θ; 0 where the angle is undefined.
    pub cos: f64,
    pub psi: Psi,
    gradient: LabelGradient,
}

impl LabelTerm {
    pub fn new(margin: Margin, lambda: f64, geometry: &Geometry) -> Self {
        let Geometry { dot, feature_norm, weight_norm } = *geometry;
        let norm = feature_norm * weight_norm;
        let defined = norm > 0.0;
        let cos = if defined { (dot / norm).clamp(-1.0, 1.0) } else { 0.0 };
        let psi = margin.psi(cos);
        let plain = LabelGradient { across: 1.0, ..LabelGradient::default() };
        if margin.is_one() || !defined {
            return Self { logit: dot, cos, psi, gradient: plain };
        }
        let (plain_share, margin_share) = shares(lambda);
        let along = (psi.value - cos * psi.slope) * margin_share;
        Self {
            logit: dot * plain_share + norm * psi.value * margin_share,
            cos,
            psi,
            gradient: LabelGradient {
                along_feature: along * weight_norm / feature_norm,
                along_weight: along * feature_norm / weight_norm,
                across: psi.slope * margin_share + plain_share,
                ..plain
            },
        }
    }

    /// The derivatives of a loss whose derivative by the label's logit is `logit`.
    pub fn gradient(&self, logit: f64) -> LabelGradient {
        LabelGradient { logit, ..self.gradient }
    }
}
