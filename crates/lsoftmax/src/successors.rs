//! The margins of L-Softmax's successors.

use serde::{Deserialize, Serialize};

use crate::{AngularMargin, Number};

/// A margin added to the angle, ψ(θ) = cos(θ + m), as in
/// [ArcFace](https://arxiv.org/abs/1801.07698) (Deng et al., CVPR 2019).
///
/// Past θ = π − m, where cos(θ + m) would rise again, a [`Continuation`] decides.
///
/// ```
/// use lsoftmax::{AdditiveMargin, AngularMargin};
/// let margin = AdditiveMargin::new(0.5)?;
/// let (psi, slope) = margin.value_and_slope(1.0f64.cos());
/// assert!((psi - 1.5f64.cos()).abs() < 1e-12);
/// assert!((slope - 1.5f64.sin() / 1.0f64.sin()).abs() < 1e-12);
/// # Ok::<(), lsoftmax::AngleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdditiveMargin {
    margin: f64,
    #[serde(default)]
    continuation: Continuation,
}

/// What [`AdditiveMargin`] is past θ = π − m.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Continuation {
    /// cos θ − m sin m, as in InsightFace: decreasing, but not continuous.
    #[default]
    Linear,
    /// cos(θ + m): continuous, but rising.
    None,
}

/// A margin subtracted from the cosine, ψ(θ) = cos θ − m, as in
/// [CosFace](https://arxiv.org/abs/1801.09414) (Wang et al., CVPR 2018).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CosineMargin {
    margin: f64,
}

/// All three margins in one, ψ(θ) = cos(m₁θ + m₂) − m₃, as in the ArcFace paper.
///
/// Unlike [`Margin`](crate::Margin), cos(m₁θ) has no continuation past π/m₁, where it rises: use a small m₁.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CombinedMargin {
    /// m₁, the factor of the angle.
    m1: f64,
    /// m₂, added to the angle.
    m2: f64,
    /// m₃, subtracted from the cosine.
    m3: f64,
}

/// A number that cannot be a margin.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{what} must be {rule}, but is {value}")]
pub struct AngleError {
    what: &'static str,
    rule: &'static str,
    value: f64,
}

fn checked(
    what: &'static str,
    rule: &'static str,
    value: f64,
    valid: bool,
) -> Result<f64, AngleError> {
    if valid { Ok(value) } else { Err(AngleError { what, rule, value }) }
}

const ANGLE_RULE: &str = "from 0 to below π";

/// Checks an angle that is added, in radians.
fn angle(what: &'static str, value: f64) -> Result<f64, AngleError> {
    checked(what, ANGLE_RULE, value, (0.0..std::f64::consts::PI).contains(&value))
}

/// Checks a number that is subtracted from a cosine.
fn cosine(what: &'static str, value: f64) -> Result<f64, AngleError> {
    checked(what, "from 0 to 2", value, (0.0..=2.0).contains(&value))
}

impl AdditiveMargin {
    /// A margin of `margin` radians with the linear continuation.
    ///
    /// # Errors
    /// When it is not from 0 to below π.
    pub fn new(margin: f64) -> Result<Self, AngleError> {
        let margin = angle("the margin that is added to the angle", margin)?;
        Ok(Self { margin, continuation: Continuation::default() })
    }

    /// The same margin with another continuation.
    pub fn with_continuation(mut self, continuation: Continuation) -> Self {
        self.continuation = continuation;
        self
    }

    /// m, in radians.
    pub fn value(self) -> f64 {
        self.margin
    }
}

impl AngularMargin for AdditiveMargin {
    fn value_and_slope<N: Number>(&self, cos: N) -> (N, N) {
        let (value, slope) = cos_of_sum(1.0, self.margin, cos.clone());
        if self.continuation == Continuation::None {
            return (value, slope);
        }
        let m = self.margin;
        // 1 where θ + m is at most π.
        let within = cos.above(-m.cos());
        let linear = cos.clone() - m * m.sin();
        (within.clone().choose(value, linear), within.choose(slope, cos.constant(1.0)))
    }

    fn is_identity(&self) -> bool {
        self.margin == 0.0
    }
}

impl CosineMargin {
    /// A margin of `margin`.
    ///
    /// # Errors
    /// When it is not from 0 to 2.
    pub fn new(margin: f64) -> Result<Self, AngleError> {
        Ok(Self { margin: cosine("the margin that is subtracted from the cosine", margin)? })
    }

    /// m.
    pub fn value(self) -> f64 {
        self.margin
    }
}

impl AngularMargin for CosineMargin {
    fn value_and_slope<N: Number>(&self, cos: N) -> (N, N) {
        (cos.clone() - self.margin, cos.constant(1.0))
    }

    fn is_identity(&self) -> bool {
        self.margin == 0.0
    }
}

impl CombinedMargin {
    /// The margins m₁, m₂ (in radians) and m₃.
    ///
    /// # Errors
    /// When m₁ is not from 1 to 1000, m₂ not from 0 to below π, or m₃ not from 0 to 2.
    pub fn new(m1: f64, m2: f64, m3: f64) -> Result<Self, AngleError> {
        Ok(Self {
            m1: checked("m₁", "from 1 to 1000", m1, (1.0..=1000.0).contains(&m1))?,
            m2: angle("m₂", m2)?,
            m3: cosine("m₃", m3)?,
        })
    }

    /// m₁, m₂ and m₃.
    pub fn values(self) -> [f64; 3] {
        [self.m1, self.m2, self.m3]
    }
}

impl AngularMargin for CombinedMargin {
    fn value_and_slope<N: Number>(&self, cos: N) -> (N, N) {
        if (self.m1, self.m2) == (1.0, 0.0) {
            return (cos.clone() - self.m3, cos.constant(1.0));
        }
        let (value, slope) = cos_of_sum(self.m1, self.m2, cos);
        (value - self.m3, slope)
    }

    fn is_identity(&self) -> bool {
        (self.m1, self.m2, self.m3) == (1.0, 0.0, 0.0)
    }
}

/// cos(aθ + b), and its slope a sin(aθ + b) / sin θ by cos θ. Where sin θ vanishes the slope may be
/// infinite; it is limited to a large value, and the gradient, in which the sine cancels, stays bounded.
fn cos_of_sum<N: Number>(a: f64, b: f64, cos: N) -> (N, N) {
    let smallest = cos.smallest_sine();
    let theta = cos.acos();
    let sum = theta.clone() * a + b;
    let slope = sum.clone().sin() * a / theta.sin().clamp(smallest, 1.0);
    (sum.cos(), slope)
}
