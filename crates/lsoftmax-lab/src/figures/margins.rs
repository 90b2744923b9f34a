//! Decision boundaries of heads in angles: which angles to two classes a loss accepts as one of them.

use lsoftmax::AngularMargin;

use super::legend::{Legend, Mark};
use super::palette::Paint;
use super::svg::{Anchor, Font, Svg};
use super::{FigureError, Picture};
use crate::head::HeadSettings;

/// Panels per row.
const PANELS_PER_ROW: usize = 3;
const PADDING: f64 = 16.0;
/// The side of a panel's square, the space left of it and above it, and the whole height of a panel.
const SIDE: f64 = 240.0;
const LEFT: f64 = 50.0;
const ABOVE: f64 = 30.0;
const HEIGHT: f64 = 340.0;
/// The largest angle shown, and the distance between labelled angles.
const LARGEST: f64 = 120.0;
const EVERY: usize = 30;
/// The ratio of |W₁| to |W₂| of the dotted boundaries, where norms are free.
const RATIO: f64 = 1.3;
const CLASSES: [&str; 2] = ["class 1 from here on", "class 2 from here on"];

/// The angle in degrees between the boundaries of two classes whose weights are of the same length and 90°
/// apart, for features in the plane of the weights.
pub fn angular_margin(head: HeadSettings) -> f64 {
    // Class 1 is accepted at θ₁ while ψ(θ₁) is at least cos θ₂ = cos(90° − θ₁).
    let accepted = |degrees: f64| psi(head, degrees) >= (90.0 - degrees).to_radians().cos();
    let (mut low, mut high) = (0.0, 90.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        *(if accepted(middle) { &mut low } else { &mut high }) = middle;
    }
    90.0 - 2.0 * low
}

/// ψ, as the head computes it.
fn psi(head: HeadSettings, degrees: f64) -> f64 {
    head.margin().value_and_slope(degrees.to_radians().cos()).0
}

/// Draws the boundaries of each head for two classes over the angles θ₁ and θ₂ to them, three panels per
/// row, and the margin between them.
///
/// ```
/// use lsoftmax_lab::figures::margins;
/// use lsoftmax_lab::head::{HeadKind, HeadSettings};
/// let arcface = HeadSettings::new(HeadKind::ArcFace, Some(0.5), None)?;
/// assert!(margins(&[arcface])?.as_str().contains("28.6°"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When there is no head.
pub fn margins(heads: &[HeadSettings]) -> Result<Picture, FigureError> {
    if heads.is_empty() {
        return Err(FigureError::Empty("heads"));
    }
    let panel_width = LEFT + SIDE + PADDING;
    let width = PADDING + heads.len().min(PANELS_PER_ROW) as f64 * panel_width;
    let bottom = PADDING + heads.len().div_ceil(PANELS_PER_ROW) as f64 * HEIGHT;
    let legend = Legend::new(Mark::Dot, CLASSES.into_iter(), width - 2.0 * PADDING);
    let names: Vec<String> = heads.iter().map(HeadSettings::to_string).collect();
    let label = format!("Decision boundaries in angles: {}", names.join("; "));
    let mut svg = Svg::new(width, bottom + legend.height() + PADDING, &label);
    for (index, head) in heads.iter().enumerate() {
        let left = PADDING + (index % PANELS_PER_ROW) as f64 * panel_width + LEFT;
        let top = PADDING + (index / PANELS_PER_ROW) as f64 * HEIGHT + ABOVE;
        draw(&mut svg, *head, (left, top));
    }
    legend.draw(&mut svg, width / 2.0, bottom);
    Ok(svg.finish())
}

/// The boundary of a class with the weights' norms in this ratio: the other class's angle by its own,
/// where it is within the panel.
fn boundary(head: HeadSettings, ratio: f64) -> Vec<(f64, f64)> {
    let angles = (0..=(4.0 * LARGEST) as u32).map(|quarter| f64::from(quarter) / 4.0);
    let points = angles.map(|own| (own, (ratio * psi(head, own)).acos().to_degrees()));
    // Where the other class's cosine would have to be above 1, there is no boundary.
    points.filter(|(_, other)| *other <= LARGEST).collect()
}

/// Draws one head with the square's upper left corner at `(left, top)`.
fn draw(svg: &mut Svg, head: HeadSettings, (left, top): (f64, f64)) {
    let at = |(first, second): (f64, f64)| {
        (left + SIDE * first / LARGEST, top + SIDE * (1.0 - second / LARGEST))
    };
    let mirrored = |points: &[(f64, f64)]| points.iter().map(|(a, b)| at((*b, *a))).collect();
    let title = Font::PANEL;
    let middle = left + SIDE / 2.0;
    svg.text((middle, top - 12.0), Anchor::Middle, title, SIDE + LEFT, &head.to_string());
    let small = Font::SMALL;
    for degrees in (0..=LARGEST as usize).step_by(EVERY) {
        let (x, y) = at((degrees as f64, degrees as f64));
        svg.line((x, top), (x, top + SIDE), Paint::Faint, 1.0);
        svg.line((left, y), (left + SIDE, y), Paint::Faint, 1.0);
        let text = format!("{degrees}°");
        svg.text((x, top + SIDE + 16.0), Anchor::Middle, small, LEFT, &text);
        svg.text((left - 6.0, y + 4.0), Anchor::End, small, LEFT, &text);
    }
    svg.text((middle, top + SIDE + 32.0), Anchor::Middle, small, SIDE, "θ₁, angle to class 1");
    svg.vertical_text((left - 38.0, top + SIDE / 2.0), small, SIDE, "θ₂, angle to class 2");

    let first = boundary(head, 1.0);
    let one: Vec<(f64, f64)> = first.iter().copied().map(at).collect();
    let two: Vec<(f64, f64)> = mirrored(&first);
    if head.has_margin() {
        let (near, far) = (at((0.0, 0.0)), at((LARGEST, LARGEST)));
        let first = [near].into_iter().chain(one.iter().copied());
        let band: Vec<(f64, f64)> = first.chain([far]).chain(two.iter().rev().copied()).collect();
        svg.polygon(&band, Paint::Grey, 0.22);
    }
    if head.is_free() {
        let longer: Vec<(f64, f64)> = boundary(head, RATIO).into_iter().map(at).collect();
        svg.polyline(&longer, Paint::Series(0), "2 4", &[]);
        svg.polyline(&mirrored(&boundary(head, 1.0 / RATIO)), Paint::Series(1), "2 4", &[]);
    }
    svg.polyline(&one, Paint::Series(0), "", &[]);
    svg.polyline(&two, Paint::Series(1), if head.has_margin() { "" } else { "8 8" }, &[]);
    // Where the features of two classes at 90° are.
    svg.polyline(&[at((0.0, 90.0)), at((90.0, 0.0))], Paint::Ink, "1 3", &[]);
    let note = Font { size: 13.0, paint: Paint::Ink, bold: true, outline: true };
    let text = format!("{:.1}°", angular_margin(head).max(0.0));
    svg.text(at((47.0, 49.0)), Anchor::Start, note, SIDE, &text);
}
