//! The margin: how many times an angle is multiplied, and the function ψ that makes it trainable.

use serde::{Deserialize, Serialize};

/// Below this sine an angle counts as 0 or π.
const SINE_FLOOR: f64 = 1e-8;

/// The margin m ≥ 1 of the large-margin softmax.
///
/// The label's cosine is replaced by
///
/// ```text
/// ψ(θ) = (−1)^k cos(mθ) − 2k    for θ in [kπ/m, (k+1)π/m]
/// ```
///
/// which falls from 1 at θ = 0 without a jump or a flat end: the larger m, the faster. With m = 1 it
/// is the cosine. m need not be whole; the last interval then ends early, at π.
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

/// The largest margin. ψ takes about m steps; past this a margin is surely a mistake.
const MAX_MARGIN: f64 = 1000.0;

/// ψ at one angle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Psi {
    /// ψ(θ).
    pub value: f64,
    /// dψ/dcos θ.
    pub slope: f64,
    /// The number of the interval that θ is in, from 0.
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

    /// Whether this is plain softmax.
    pub fn is_one(self) -> bool {
        self.0 == 1.0
    }

    /// m as a whole number, if it is one.
    pub fn whole(self) -> Option<usize> {
        (self.0.fract() == 0.0).then_some(self.0 as usize)
    }

    /// The number of intervals of ψ: k runs from 0 to one less.
    pub fn intervals(self) -> usize {
        self.0.ceil() as usize
    }

    /// ψ, its slope and k at an angle given by its cosine, which is brought into [−1, 1].
    ///
    /// For a whole m this is a polynomial recurrence, without an arc cosine. The slope is finite
    /// everywhere: where it would not be (θ = π, m not whole) it is held at a large value, and the
    /// gradient, in which the sine cancels, stays bounded.
    pub fn psi(self, cos: f64) -> Psi {
        let cos = cos.clamp(-1.0, 1.0);
        match self.whole() {
            Some(m) => whole_psi(m, cos),
            None => real_psi(self.0, cos),
        }
    }
}

/// By Chebyshev's recurrences: T_m(cos θ) = cos mθ, and m·U_{m−1} is its derivative.
///
/// k is the number of zeros of U_{m−1} above cos θ, and the polynomials U_0 … U_{m−1} are a Sturm
/// sequence: the number of their sign changes is that number.
fn whole_psi(m: usize, cos: f64) -> Psi {
    let (mut t, mut t_next) = (1.0, cos);
    let (mut u, mut u_next) = (1.0f64, 2.0 * cos);
    let mut k = 0;
    let mut positive = true;
    for _ in 1..m {
        (t, t_next) = (t_next, 2.0 * cos * t_next - t);
        (u, u_next) = (u_next, 2.0 * cos * u_next - u);
        if u != 0.0 && (u > 0.0) != positive {
            positive = !positive;
            k += 1;
        }
    }
    let sign = if k % 2 == 0 { 1.0 } else { -1.0 };
    Psi { value: sign * t_next - 2.0 * k as f64, slope: m as f64 * u.abs(), k }
}

fn real_psi(m: f64, cos: f64) -> Psi {
    let theta = cos.acos();
    let angle = m * theta;
    let last = m.ceil() as usize - 1;
    let k = ((angle / std::f64::consts::PI) as usize).min(last);
    let sign = if k.is_multiple_of(2) { 1.0 } else { -1.0 };
    let sine = theta.sin();
    let slope = if sine < SINE_FLOOR && cos > 0.0 {
        m * m
    } else {
        m * angle.sin().abs() / sine.max(SINE_FLOOR)
    };
    Psi { value: sign * angle.cos() - 2.0 * k as f64, slope, k }
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
