//! Figure 4 of the paper: decision boundaries of two classes, and the margin between them.

use lsoftmax::Margin;

use super::legend::{Legend, Mark};
use super::palette::Paint;
use super::svg::{Anchor, Font, Svg, coordinate};
use super::{FigureError, Picture};
use crate::two_classes::{TwoClasses, TwoClassesError};

/// The result of one optimisation.
#[derive(Clone, Debug)]
pub struct BoundaryPanel {
    /// The heading, such as "L-Softmax (m = 2), |W₁| > |W₂|".
    pub title: String,
    /// Weights, features and boundaries.
    pub classes: TwoClasses,
}

/// Panels per row.
const PANELS_PER_ROW: usize = 3;
const PANEL_WIDTH: f64 = 340.0;
const PANEL_HEIGHT: f64 = 268.0;
const PADDING: f64 = 16.0;
/// From the top of a panel to the origin.
const ORIGIN: f64 = 222.0;
/// Lengths in pixels: of the features' unit circle, of a boundary, of the longest weights.
const UNIT: f64 = 135.0;
const BOUNDARY: f64 = 158.0;
const LONGEST_WEIGHT: f64 = 112.0;
/// The distance of the margin's number from the origin.
const NUMBER: f64 = 172.0;
const CLASSES: [&str; 2] = ["class 1", "class 2"];

/// Draws weights, features, decision boundaries and the margin between them, three panels per row.
///
/// ```
/// use lsoftmax::Margin;
/// use lsoftmax_lab::figures::{BoundaryPanel, decision_boundaries};
/// let panels = BoundaryPanel::softmax_and(Margin::new(2)?)?;
/// assert!(decision_boundaries(&panels)?.as_str().starts_with("<svg"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When there is no panel.
pub fn decision_boundaries(panels: &[BoundaryPanel]) -> Result<Picture, FigureError> {
    if panels.is_empty() {
        return Err(FigureError::Empty("panels"));
    }
    let across = panels.len().min(PANELS_PER_ROW) as f64;
    let width = PADDING + across * (PANEL_WIDTH + PADDING);
    let bottom = PADDING + panels.len().div_ceil(PANELS_PER_ROW) as f64 * PANEL_HEIGHT;
    let legend = Legend::new(Mark::Dot, CLASSES.into_iter(), width - 2.0 * PADDING);
    let titles: Vec<&str> = panels.iter().map(|panel| panel.title.as_str()).collect();
    let label = format!("Decision boundaries of two classes: {}", titles.join("; "));
    let mut svg = Svg::new(width, bottom + legend.height() + PADDING, &label);
    let norms = panels.iter().flat_map(|panel| panel.classes.weights()).map(|[x, y]| x.hypot(y));
    let longest = norms.fold(0.0, f64::max);
    for (index, panel) in panels.iter().enumerate() {
        let left = PADDING + (index % PANELS_PER_ROW) as f64 * (PANEL_WIDTH + PADDING);
        let top = PADDING + (index / PANELS_PER_ROW) as f64 * PANEL_HEIGHT;
        panel.draw(&mut svg, (left + PANEL_WIDTH / 2.0, top), LONGEST_WEIGHT / longest);
    }
    legend.draw(&mut svg, width / 2.0, bottom);
    Ok(svg.finish())
}

impl BoundaryPanel {
    /// The panels of the paper's figure: softmax above L-Softmax, for |W1| equal to, larger and smaller
    /// than |W2|, by a factor of 1.7.
    ///
    /// # Errors
    /// When a panel [cannot be optimised](TwoClasses::train).
    pub fn softmax_and(margin: Margin) -> Result<Vec<Self>, TwoClassesError> {
        let mut panels = Vec::new();
        for (loss, margin) in
            [("Softmax".into(), Margin::ONE), (format!("L-Softmax (m = {margin})"), margin)]
        {
            for (relation, ratio) in [("=", 1.0), (">", 1.7), ("<", 1.0 / 1.7)] {
                let title = format!("{loss}, |W₁| {relation} |W₂|");
                panels.push(Self { title, classes: TwoClasses::train(margin, ratio)? });
            }
        }
        Ok(panels)
    }

    /// Draws the panel centred at `middle`, below `top`.
    fn draw(&self, svg: &mut Svg, (middle, top): (f64, f64), weight_scale: f64) {
        let title = Font::PANEL;
        svg.text((middle, top + 16.0), Anchor::Middle, title, PANEL_WIDTH, &self.title);
        let (x, y) = (middle, top + ORIGIN);
        let at =
            |angle: f64, distance: f64| (x + distance * angle.cos(), y - distance * angle.sin());
        let boundaries = self.classes.boundaries();
        let margin = self.classes.angular_margin();
        let is_margin = margin > 0.05;
        svg.line((x - UNIT - 15.0, y), (x + UNIT + 15.0, y), Paint::Faint, 1.0);
        if is_margin {
            let arc = (0..=24).map(|step| {
                let part = f64::from(step) / 24.0;
                at(boundaries[0] * (1.0 - part) + boundaries[1] * part, BOUNDARY)
            });
            let wedge: Vec<(f64, f64)> = [(x, y)].into_iter().chain(arc).collect();
            svg.polygon(&wedge, Paint::Grey, 0.22);
        }
        let origin = [coordinate(x), coordinate(y)].join(" ");
        svg.open_group(&[("plot", "scatter"), ("origin", &origin), ("unit", &UNIT.to_string())]);
        for (class, name) in CLASSES.iter().enumerate() {
            let features = self.classes.features(class).iter();
            let place = features.map(|feature| (x + feature[0] * UNIT, y - feature[1] * UNIT));
            svg.dots(place, 2.6, Paint::Series(class), &[("series", name)]);
        }
        svg.close_group();
        if is_margin {
            for (class, boundary) in boundaries.into_iter().enumerate() {
                svg.polyline(&[(x, y), at(boundary, BOUNDARY)], Paint::Series(class), "6 4", &[]);
            }
        } else {
            svg.polyline(&[(x, y), at(boundaries[0], BOUNDARY)], Paint::Ink, "6 4", &[]);
        }
        for (class, [a, b]) in self.classes.weights().into_iter().enumerate() {
            let (angle, norm) = (b.atan2(a), a.hypot(b) * weight_scale);
            svg.open_group(&[("part-of", CLASSES[class])]);
            svg.line((x, y), at(angle, norm - 6.0), Paint::Series(class), 2.6);
            let (tip, back) = (at(angle, norm), at(angle, norm - 11.0));
            let (side_x, side_y) = (5.0 * angle.sin(), 5.0 * angle.cos());
            let head =
                [tip, (back.0 + side_x, back.1 + side_y), (back.0 - side_x, back.1 - side_y)];
            svg.polygon(&head, Paint::Series(class), 1.0);
            let name = Font { size: 14.0, paint: Paint::Ink, bold: true, outline: true };
            let place = at(angle, norm + 13.0);
            let text = ["W₁", "W₂"][class];
            svg.text((place.0, place.1 + 5.0), Anchor::Middle, name, f64::INFINITY, text);
            svg.close_group();
        }
        if is_margin {
            let font = Font { size: 14.0, paint: Paint::Ink, bold: true, outline: true };
            let (a, b) = at((boundaries[0] + boundaries[1]) / 2.0, NUMBER);
            let text = format!("{margin:.1}°");
            svg.text((a, b + 5.0), Anchor::Middle, font, f64::INFINITY, &text);
        }
        let note = Font::SMALL;
        let between = self.classes.angle_between_weights();
        let text = if is_margin {
            format!("margin {margin:.1}° of {between:.1}° between W₁ and W₂")
        } else {
            format!("no margin; {between:.1}° between W₁ and W₂")
        };
        svg.text((middle, y + 26.0), Anchor::Middle, note, PANEL_WIDTH, &text);
    }
}
