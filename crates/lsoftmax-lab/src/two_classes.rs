//! Two classes of two-dimensional features under softmax and L-Softmax: the geometry of Figure 4 of the
//! paper, as the result of an optimisation.

use std::f64::consts::PI;

use lsoftmax::Margin;

/// Weights and features of two classes, optimised until the loss is [`LOSS`], and the decision
/// boundaries in between.
///
/// Features are free variables within the unit circle; they start in two overlapping fans, the same for
/// every margin. The norms of the weights are fixed: their product is [`NORM`]², their ratio is given.
///
/// ```
/// use lsoftmax::Margin;
/// use lsoftmax_lab::two_classes::TwoClasses;
/// let softmax = TwoClasses::train(Margin::ONE, 1.0)?;
/// assert_eq!(softmax.angular_margin(), 0.0);
/// let margin = TwoClasses::train(Margin::new(2)?, 1.0)?;
/// assert!((margin.angular_margin() - margin.angle_between_weights() / 3.0).abs() < 1e-9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TwoClasses {
    margin: Margin,
    weights: [Vector; 2],
    features: [Vec<Vector>; 2],
    boundaries: [f64; 2],
    loss: f64,
}

/// A vector of the plane.
pub type Vector = [f64; 2];

/// The loss at which the optimisation ends, for every margin: the paper compares losses that were
/// "optimized to the same value".
pub const LOSS: f64 = 0.02;

/// The geometric mean of the norms of both weights.
pub const NORM: f64 = 5.0;

/// Features per class.
const FEATURES: usize = 40;
/// At the start, the weights are this far apart, and features at most this far from their weights.
const START_ANGLE: f64 = PI / 3.0;
const START_SPREAD: f64 = 0.28 * PI;
const RATE: f64 = 0.002;
const MAX_STEPS: usize = 100_000;

/// Why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum TwoClassesError {
    /// A ratio of norms that is too far from 1, or not a number.
    #[error("the ratio of the norms must be from 0.4 to 2.5, but is {0}")]
    Ratio(f64),
    /// The loss did not reach its target.
    #[error("the loss is {0} after {MAX_STEPS} steps, not {LOSS}; use a smaller margin")]
    Loss(f64),
    /// A class whose boundary is not between both weights.
    #[error("the boundary of a class is not between the weights; use a ratio of norms nearer to 1")]
    Boundary,
}

impl TwoClasses {
    /// Minimises the loss by gradient descent, with |W1| / |W2| held at `ratio`.
    ///
    /// # Errors
    /// When the ratio is not from 0.4 to 2.5, the loss stays above [`LOSS`], or a class has no boundary
    /// between both weights.
    pub fn train(margin: Margin, ratio: f64) -> Result<Self, TwoClassesError> {
        if !(0.4..=2.5).contains(&ratio) {
            return Err(TwoClassesError::Ratio(ratio));
        }
        let norms = [NORM * ratio.sqrt(), NORM / ratio.sqrt()];
        let start = [(PI + START_ANGLE) / 2.0, (PI - START_ANGLE) / 2.0];
        let mut weights = [0, 1].map(|class| polar(norms[class], start[class]));
        let mut features = start.map(fan);
        let mut loss = f64::INFINITY;
        for _ in 0..MAX_STEPS {
            loss = descend(margin, &mut weights, &mut features);
            for (weight, norm) in weights.iter_mut().zip(norms) {
                *weight = scaled(*weight, norm / length(*weight));
            }
            if loss <= LOSS {
                let boundaries = boundaries(margin, weights).ok_or(TwoClassesError::Boundary)?;
                return Ok(Self { margin, weights, features, boundaries, loss });
            }
        }
        Err(TwoClassesError::Loss(loss))
    }

    /// m.
    pub fn margin(&self) -> Margin {
        self.margin
    }

    /// W1 and W2.
    pub fn weights(&self) -> [Vector; 2] {
        self.weights
    }

    /// The learnt features of a class, 0 or 1, of norms up to 1.
    pub fn features(&self, class: usize) -> &[Vector] {
        &self.features[class]
    }

    /// The directions of both decision boundaries in radians: that of class 1, beyond which a feature's
    /// logit for class 1 is the smaller one, and that of class 2. Those of softmax coincide.
    pub fn boundaries(&self) -> [f64; 2] {
        self.boundaries
    }

    /// The angle between both boundaries in degrees.
    pub fn angular_margin(&self) -> f64 {
        turn(self.boundaries[0], self.boundaries[1]).abs().to_degrees()
    }

    /// The angle between W1 and W2 in degrees.
    pub fn angle_between_weights(&self) -> f64 {
        let [first, second] = self.weights.map(direction);
        turn(first, second).abs().to_degrees()
    }

    /// The final loss.
    pub fn loss(&self) -> f64 {
        self.loss
    }
}

/// The directions of the decision boundaries of class 1 and class 2 in radians:
/// |W1| ψ(θ1) = |W2| cos θ2 for class 1, |W2| ψ(θ2) = |W1| cos θ1 for class 2.
///
/// `None` if one of them is not between both weights.
pub fn boundaries(margin: Margin, weights: [Vector; 2]) -> Option<[f64; 2]> {
    let [first, second] = weights;
    Some([
        boundary(margin, first, second)?,
        // With m = 1 both conditions are the same; solving one of them keeps the result the same too.
        if margin == Margin::ONE {
            boundary(margin, first, second)?
        } else {
            boundary(margin, second, first)?
        },
    ])
}

/// The direction between both weights at which the logit of the class of `own`, with its margin, is
/// that of the other class.
fn boundary(margin: Margin, own: Vector, other: Vector) -> Option<f64> {
    let angle = turn(direction(own), direction(other));
    let lead = |from_own: f64| {
        let own_logit = length(own) * margin.psi(from_own.cos()).value;
        own_logit - length(other) * (angle.abs() - from_own).cos()
    };
    let (mut low, mut high) = (0.0, angle.abs());
    if !(lead(low) > 0.0 && lead(high) < 0.0) {
        return None;
    }
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if lead(middle) > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(direction(own) + (low + high) / 2.0 * angle.signum())
}

/// One step of gradient descent on all variables; features stay within the unit circle. Returns the
/// mean loss before the step.
fn descend(margin: Margin, weights: &mut [Vector; 2], features: &mut [Vec<Vector>; 2]) -> f64 {
    let mut loss = 0.0;
    let mut weight_gradients = [[0.0; 2]; 2];
    for (class, features) in features.iter_mut().enumerate() {
        let (own, other) = (weights[class], weights[1 - class]);
        for x in features {
            let norms = (length(own), length(*x));
            let cos = dot(own, *x) / (norms.0 * norms.1);
            let psi = margin.psi(cos);
            // The logit of the other class minus that of the label; its softmax loss and the slope of it.
            let lead = dot(other, *x) - norms.0 * norms.1 * psi.value;
            loss += lead.max(0.0) + (-lead.abs()).exp().ln_1p();
            let slope = 1.0 / (1.0 + (-lead).exp());
            let radial = psi.value - cos * psi.slope;
            let label_by_x = added(scaled(*x, radial * norms.0 / norms.1), scaled(own, psi.slope));
            let label_by_own =
                added(scaled(own, radial * norms.1 / norms.0), scaled(*x, psi.slope));
            add(&mut weight_gradients[class], scaled(label_by_own, -slope));
            add(&mut weight_gradients[1 - class], scaled(*x, slope));
            add(x, scaled(added(other, scaled(label_by_x, -1.0)), -RATE * slope));
            *x = scaled(*x, 1.0 / length(*x).max(1.0));
        }
    }
    for (weight, gradient) in weights.iter_mut().zip(weight_gradients) {
        add(weight, scaled(gradient, -RATE));
    }
    loss / (2 * FEATURES) as f64
}

/// Features around a direction, of norms from 0.5 to 1 in a fixed order.
fn fan(middle: f64) -> Vec<Vector> {
    let feature = |index: usize| {
        let place = (index as f64 + 0.5) / FEATURES as f64;
        let norm = 0.5 + 0.5 * (index as f64 * 0.618).fract();
        polar(norm, middle + START_SPREAD * (2.0 * place - 1.0))
    };
    (0..FEATURES).map(feature).collect()
}

/// The angle from one direction to another, from −π to π.
fn turn(from: f64, to: f64) -> f64 {
    let difference = (to - from).rem_euclid(2.0 * PI);
    if difference > PI { difference - 2.0 * PI } else { difference }
}

fn polar(norm: f64, angle: f64) -> Vector {
    [norm * angle.cos(), norm * angle.sin()]
}

fn direction([x, y]: Vector) -> f64 {
    y.atan2(x)
}

fn length([x, y]: Vector) -> f64 {
    x.hypot(y)
}

fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1]
}

fn scaled([x, y]: Vector, factor: f64) -> Vector {
    [x * factor, y * factor]
}

fn added(a: Vector, b: Vector) -> Vector {
    [a[0] + b[0], a[1] + b[1]]
}

fn add(to: &mut Vector, other: Vector) {
    *to = added(*to, other);
}
