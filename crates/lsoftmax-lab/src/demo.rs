//! The first thing to see: the paper's closed form, found by the head itself.
//!
//! Two classes with weights of length 1, θ₁₂ apart, and a sample that turns from one to the other.
//! Under the margin a class holds the sample only up to the angle where its logit, ψ(θ) in place of
//! cos θ, equals the other's: there the loss is ln 2. That angle is searched for with the head's own
//! loss, for both classes; between the two lies the angular margin, (m−1)/(m+1)·θ₁₂ in the paper.

use std::f64::consts::LN_2;
use std::fmt;

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use lsoftmax::{HeadError, LSoftmax, Margin, MarginError, Precision};

/// The angle between the two classes, in degrees.
const BETWEEN: f64 = 90.0;

/// The length of the sample. Longer makes the loss steeper where it crosses ln 2.
const LENGTH: f64 = 10.0;

/// The boundaries of two classes under a margin. Angles are in degrees from the first class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Boundaries {
    /// The margin m.
    pub margin: Margin,
    /// θ₁₂, the angle between the two classes.
    pub between: f64,
    /// Up to here the first class holds a sample.
    pub first: f64,
    /// From here on the second class does.
    pub second: f64,
}

impl Boundaries {
    /// The angular margin between the two classes, as measured.
    pub fn measured(&self) -> f64 {
        self.second - self.first
    }

    /// The paper's closed form, (m−1)/(m+1)·θ₁₂.
    pub fn closed_form(&self) -> f64 {
        let m = self.margin.value();
        (m - 1.0) / (m + 1.0) * self.between
    }
}

/// The demonstration's result; displays itself as a table.
#[derive(Clone, Debug)]
pub struct Demo {
    /// One entry a margin.
    pub rows: Vec<Boundaries>,
}

/// Why the demonstration failed.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The head refused a sample.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// A margin is none.
    #[error(transparent)]
    Margin(#[from] MarginError),
}

/// Finds the boundaries for m = 1, 2, 3 and 4. Takes milliseconds.
///
/// # Errors
/// When the head refuses, as with an unknown kernel path in the environment.
pub fn run() -> Result<Demo, DemoError> {
    let row = |m: u8| boundaries(Margin::new(m)?, BETWEEN);
    Ok(Demo { rows: (1..=4).map(row).collect::<Result<_, _>>()? })
}

/// Finds the boundaries of two classes `between` degrees apart.
///
/// ```
/// use lsoftmax::Margin;
/// let found = lsoftmax_lab::demo::boundaries(Margin::new(2)?, 90.0)?;
/// assert!((found.measured() - 30.0).abs() < 1e-3);
/// # Ok::<(), lsoftmax_lab::demo::DemoError>(())
/// ```
///
/// # Errors
/// When the head refuses.
pub fn boundaries(margin: Margin, between: f64) -> Result<Boundaries, DemoError> {
    let device = Device::flex();
    let weights = [direction(0.0, 1.0), direction(between, 1.0)].concat();
    let head = LSoftmax {
        weight: Param::from_data(TensorData::new(weights, [2, 2]), &device),
        bias: None,
        margin,
        precision: Precision::F32,
    };
    let loss = |angle: f64, label: i64| -> Result<f64, HeadError> {
        let sample = TensorData::new(direction(angle, LENGTH), [1, 2]);
        let label = Tensor::from_ints([label], &device);
        Ok(head.forward(Tensor::from_data(sample, &device), label, 0.0)?.report()?.loss)
    };
    let first = bisect(between, |angle| Ok(loss(angle, 0)? < LN_2))?;
    let second = between - bisect(between, |angle| Ok(loss(between - angle, 1)? < LN_2))?;
    Ok(Boundaries { margin, between, first, second })
}

fn direction(degrees: f64, length: f64) -> Vec<f32> {
    let (sine, cosine) = degrees.to_radians().sin_cos();
    vec![(length * cosine) as f32, (length * sine) as f32]
}

/// The angle from 0 to `end` up to which `holds`.
fn bisect(end: f64, holds: impl Fn(f64) -> Result<bool, HeadError>) -> Result<f64, HeadError> {
    let (mut low, mut high) = (0.0, end);
    for _ in 0..32 {
        let middle = (low + high) / 2.0;
        if holds(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok((low + high) / 2.0)
}

/// Characters of the picture beside the table.
const WIDTH: usize = 30;

/// From the first class on the left to the second on the right: who holds which angle.
fn picture(row: &Boundaries) -> String {
    let angle = |i: usize| (i as f64 + 0.5) / WIDTH as f64 * row.between;
    let mark = |i: usize| match angle(i) {
        angle if angle < row.first => '1',
        angle if angle > row.second => '2',
        _ => '·',
    };
    (0..WIDTH).map(mark).collect()
}

const INTRODUCTION: &str = "\
Large-margin softmax multiplies the angle between a sample and its class by m.
Two classes, 90° apart: how far may a sample turn before the other class wins?
Found by bisection on the head's own loss; the paper says (m−1)/(m+1)·90°.
";

const NEXT: &str = "
m = 1 is softmax: the classes touch. A larger m opens a gap that training has to keep.

Next:
  lsoftmax loss --help     the loss and its gradients for your own .npy arrays
  lsoftmax bench head      how fast the head is on this machine
  lsoftmax --help          everything else";

impl fmt::Display for Demo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{INTRODUCTION}")?;
        write!(f, "  m    class 1 up to   class 2 from    margin   closed form   ")?;
        writeln!(f, "0°{:>1$}", "90°", WIDTH - 2)?;
        for row in &self.rows {
            let Boundaries { margin, first, second, .. } = *row;
            let (measured, closed) = (row.measured(), row.closed_form());
            write!(f, "  {:<3} {first:>13.3}° {second:>13.3}° ", margin.value())?;
            writeln!(f, "{measured:>8.3}° {closed:>12.3}°   {}", picture(row))?;
        }
        f.write_str(NEXT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_reaches_the_closed_form_at_every_angle() {
        for m in [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 8.0] {
            for between in [20.0, 60.0, 90.0, 120.0, 170.0] {
                let margin = Margin::new(m).expect("a margin");
                let found = boundaries(margin, between).expect("the head takes the sample");
                let error = (found.measured() - found.closed_form()).abs();
                assert!(error < 1e-3, "m = {m}, θ12 = {between}: {found:?}");
            }
        }
    }

    #[test]
    fn the_picture_widens_with_the_margin() {
        let demo = run().expect("the demonstration runs");
        let gaps: Vec<_> = demo.rows.iter().map(|row| picture(row).matches('·').count()).collect();
        assert!(gaps.is_sorted() && gaps[0] == 0 && gaps[3] > WIDTH / 2, "{gaps:?}");
    }
}
