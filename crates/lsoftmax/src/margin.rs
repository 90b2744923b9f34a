//! The margin: the factor m of the angle, and the function ψ that makes it trainable.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use crate::{AngularMargin, Number};

/// The margin m ≥ 1 of the large-margin softmax.
///
/// The label's cosine is replaced by
///
/// ```text
/// ψ(θ) = (−1)^k cos(mθ) − 2k    for θ in [kπ/m, (k+1)π/m]
/// ```
///
/// which is continuous and decreases monotonically from 1 at θ = 0, faster for larger m. With m = 1 it
/// is the cosine. m need not be an integer; the last interval then ends early, at π.
///
/// ```
/// use lsoftmax::Margin;
/// let margin = Margin::new(2)?;
/// let psi = margin.psi(0.5); // θ = 60°
/// assert!((psi.value - -0.5).abs() < 1e-15); // cos 120°
/// assert_eq!(psi.k, 0);
/// assert!(Margin::new(0.5).is_err());
/// # Ok::<(), lsoftmax::MarginError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Margin(f64);

/// A number that cannot be a margin.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("the margin must be a number from 1 to {MAX_MARGIN}, but is {0}")]
pub struct MarginError(f64);

/// The largest margin accepted; the run time of ψ is proportional to m.
const MAX_MARGIN: f64 = 1000.0;

/// ψ at one angle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Psi {
    /// ψ(θ).
    pub value: f64,
    /// dψ/dcos θ.
    pub slope: f64,
    /// The index of the interval that contains θ, from 0.
    pub k: usize,
}

impl Margin {
    /// The margin of plain softmax.
    pub const ONE: Margin = Margin(1.0);

    /// A margin of `m`.
    ///
    /// # Errors
    /// When `m` is not a number from 1 to 1000.
    pub fn new(m: impl Into<f64>) -> Result<Self, MarginError> {
        let m = m.into();
        if (1.0..=MAX_MARGIN).contains(&m) { Ok(Self(m)) } else { Err(MarginError(m)) }
    }

    /// m.
    pub fn value(self) -> f64 {
        self.0
    }

    /// m as an integer, if it is one.
    pub fn as_integer(self) -> Option<usize> {
        (self.0.fract() == 0.0).then_some(self.0 as usize)
    }

    /// ψ, its slope and k at an angle given by its cosine, which is clamped to [−1, 1].
    ///
    /// For an integer m this is a polynomial recurrence, without an arc cosine. The slope is finite
    /// everywhere: where it would not be (θ = π, m not an integer) it is limited to a large value, and
    /// the gradient, in which the sine cancels, stays bounded.
    pub fn psi(self, cos: f64) -> Psi {
        let (value, slope, k) = self.value_slope_and_k(cos.clamp(-1.0, 1.0));
        Psi { value, slope, k: k as usize }
    }

    fn value_slope_and_k<N: Number>(self, cos: N) -> (N, N, N) {
        match self.as_integer() {
            Some(m) => integer_psi(m, cos),
            None => real_psi(self.0, cos),
        }
    }
}

impl AngularMargin for Margin {
    fn value_and_slope<N: Number>(&self, cos: N) -> (N, N) {
        let (value, slope, _) = self.value_slope_and_k(cos);
        (value, slope)
    }

    /// Whether m is 1.
    fn is_identity(&self) -> bool {
        self.0 == 1.0
    }

    /// The number of intervals of ψ: k runs from 0 to one less.
    fn intervals(&self) -> usize {
        self.0.ceil() as usize
    }

    /// k.
    fn interval(&self, cos: f64) -> usize {
        self.psi(cos).k
    }
}

/// ψ, its slope and k by Chebyshev's recurrences: T_m(cos θ) = cos mθ, and m·U_{m−1} is its
/// derivative.
///
/// k is the number of zeros of U_{m−1} above cos θ, and the polynomials U_0 … U_{m−1} are a Sturm
/// sequence, so this number is that of their sign changes.
fn integer_psi<N: Number>(m: usize, cos: N) -> (N, N, N) {
    let double = cos.clone() * 2.0;
    let (mut t, mut t_next) = (cos.constant(1.0), cos.clone());
    let (mut u, mut u_next) = (cos.constant(1.0), double.clone());
    // The sign of the last U that was not 0, which is (−1)^k.
    let (mut k, mut sign) = (cos.constant(0.0), cos.constant(1.0));
    for _ in 1..m {
        (t, t_next) = (t_next.clone(), double.clone() * t_next - t);
        (u, u_next) = (u_next.clone(), double.clone() * u_next - u);
        let changed = (u.clone() * sign.clone()).below(0.0);
        k = k + changed.clone();
        sign = sign * (changed * -2.0 + 1.0);
    }
    (sign * t_next - k.clone() * 2.0, u.abs() * m as f64, k)
}

/// ψ, its slope m |sin mθ| / sin θ, and k by the angle itself.
fn real_psi<N: Number>(m: f64, cos: N) -> (N, N, N) {
    let theta = cos.clone().acos();
    let angle = theta.clone() * m;
    let k = (angle.clone() / PI).floor().clamp(0.0, m.ceil() - 1.0);
    let odd = k.clone() - (k.clone() / 2.0).floor() * 2.0;
    let sign = odd * -2.0 + 1.0;
    let value = sign * angle.clone().cos() - k.clone() * 2.0;

    let (sine, smallest) = (theta.sin(), cos.smallest_sine());
    let slope = angle.sin().abs() * m / sine.clone().clamp(smallest, 1.0);
    // At θ = 0 the quotient of the sines is m.
    let at_zero = sine.below(smallest) * cos.above(0.0);
    (value, at_zero.choose(cos.constant(m * m), slope), k)
}

impl TryFrom<f64> for Margin {
    type Error = MarginError;

    fn try_from(m: f64) -> Result<Self, MarginError> {
        Self::new(m)
    }
}

impl From<Margin> for f64 {
    fn from(margin: Margin) -> f64 {
        margin.0
    }
}

impl std::fmt::Display for Margin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
