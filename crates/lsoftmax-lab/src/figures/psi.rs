//! Figure 3 of the paper: ψ(θ) of softmax and of margins.

use lsoftmax::Margin;

use super::{Chart, FigureError, Picture, Series};

/// Draws ψ(θ) over θ from 0° to 180°, one curve per margin, computed as the head does.
///
/// ```
/// use lsoftmax::Margin;
/// use lsoftmax_lab::figures::psi;
/// let margins = [1, 2, 3, 4].map(|m| Margin::new(m).expect("an integer is a margin"));
/// assert!(psi(&margins)?.as_str().contains("m = 4"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When there is no margin.
pub fn psi(margins: &[Margin]) -> Result<Picture, FigureError> {
    let curve = |margin: &Margin| {
        let value = |degrees: u32| margin.psi(f64::from(degrees).to_radians().cos()).value;
        let name =
            if *margin == Margin::ONE { "softmax (m = 1)".into() } else { format!("m = {margin}") };
        Series {
            name,
            points: (0..=180).map(|degrees| (f64::from(degrees), value(degrees))).collect(),
        }
    };
    let chart = Chart {
        title: "ψ(θ) = (−1)ᵏ cos mθ − 2k".into(),
        x_title: "θ (degrees)".into(),
        x_every: Some(30.0),
        y_title: "ψ(θ)".into(),
        series: margins.iter().map(curve).collect(),
        ..Chart::default()
    };
    chart.draw()
}
