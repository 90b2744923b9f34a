//! Figure 2 of the paper: the effect of the margin on two-dimensional features.

use std::f64::consts::TAU;

use super::axis::{format_number, round_step};
use super::legend::{Legend, Mark};
use super::palette::Paint;
use super::svg::{Anchor, Font, Svg, coordinate};
use super::{Embedding, FigureError, Picture};

/// The test samples of one training run.
#[derive(Clone, Debug)]
pub struct Panel<'a> {
    /// The heading, such as "m = 2, 98.4 % test accuracy".
    pub title: String,
    /// Two-dimensional features, their labels and the head's weights.
    pub embedding: Embedding<'a>,
}

/// The most samples drawn in a panel, divided equally among the classes.
pub(crate) const MAX_SAMPLES: usize = 2000;
/// Panels per row.
const PANELS_PER_ROW: usize = 4;
const PANEL_SIDE: f64 = 260.0;
const PADDING: f64 = 16.0;
const TITLE_HEIGHT: f64 = 30.0;
const DOT_RADIUS: f64 = 1.3;
/// Distances from the origin: the furthest sample, the end of the class directions, the class names.
const SAMPLE_REACH: f64 = 104.0;
const DIRECTION_REACH: f64 = 109.0;
const NAME_REACH: f64 = 119.0;
const BADGE_RADIUS: f64 = 8.5;

/// Draws samples by class, one panel per run, with the directions of the class weights.
///
/// Every panel is centred on the origin and has its own scale, the same for both axes. At most 2,000
/// samples per panel are drawn: equally many of each class, evenly spaced in sample order.
///
/// ```
/// use lsoftmax_lab::figures::{Embedding, Panel, scatter};
/// let (features, weights) = ([1.0, 0.1, 0.2, 2.0], [3.0, 0.0, 0.0, 1.0]);
/// let embedding = Embedding::new(&features, &[0, 1], &weights, 2)?;
/// let panel = Panel { title: "m = 2, 98.4 % test accuracy".into(), embedding };
/// let picture = scatter(&[panel], &["0".into(), "1".into()])?;
/// assert!(picture.as_str().starts_with("<svg"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When there is no panel, a panel is not two-dimensional, or its number of classes differs from the
/// number of names.
pub fn scatter(panels: &[Panel<'_>], classes: &[String]) -> Result<Picture, FigureError> {
    if panels.is_empty() {
        return Err(FigureError::Empty("panels"));
    }
    for Panel { title, embedding } in panels {
        if embedding.columns() != 2 {
            return Err(FigureError::Dimensions {
                panel: title.clone(),
                columns: embedding.columns(),
            });
        }
        if embedding.classes() != classes.len() {
            return Err(FigureError::Classes {
                panel: title.clone(),
                found: embedding.classes(),
                names: classes.len(),
            });
        }
    }
    let across = panels.len().min(PANELS_PER_ROW) as f64;
    let width = PADDING + across * (PANEL_SIDE + PADDING);
    let legend = Legend::new(Mark::Dot, classes.iter().map(String::as_str), width - 2.0 * PADDING);
    let bottom =
        PADDING + panels.len().div_ceil(PANELS_PER_ROW) as f64 * (TITLE_HEIGHT + PANEL_SIDE);
    let titles: Vec<&str> = panels.iter().map(|panel| panel.title.as_str()).collect();
    let label = format!("Two-dimensional features by class: {}", titles.join("; "));
    let mut svg = Svg::new(width, bottom + legend.height() + PADDING, &label);
    for (index, panel) in panels.iter().enumerate() {
        let left = PADDING + (index % PANELS_PER_ROW) as f64 * (PANEL_SIDE + PADDING);
        let top = PADDING + (index / PANELS_PER_ROW) as f64 * (TITLE_HEIGHT + PANEL_SIDE);
        let font = Font::PANEL;
        svg.text(
            (left + PANEL_SIDE / 2.0, top + 16.0),
            Anchor::Middle,
            font,
            PANEL_SIDE,
            &panel.title,
        );
        draw_panel(
            &mut svg,
            (left + PANEL_SIDE / 2.0, top + TITLE_HEIGHT + PANEL_SIDE / 2.0),
            &panel.embedding,
            classes,
        );
    }
    legend.draw(&mut svg, width / 2.0, bottom);
    Ok(svg.finish())
}

/// Draws a panel centred at `(x, y)`.
fn draw_panel(svg: &mut Svg, (x, y): (f64, f64), embedding: &Embedding<'_>, classes: &[String]) {
    let drawn = embedding.subsample(MAX_SAMPLES);
    let norm = |sample: &usize| {
        let [a, b] = coordinates(embedding.feature(*sample));
        a.hypot(b)
    };
    let furthest = drawn.iter().flatten().map(norm).fold(0.0, f64::max);
    let furthest = if furthest > 0.0 { furthest } else { 1.0 };
    let scale = SAMPLE_REACH / furthest;

    let place = [coordinate(x), coordinate(y)].join(" ");
    svg.open_group(&[("plot", "scatter"), ("origin", &place), ("unit", &format!("{scale:.6e}"))]);
    svg.line((x - DIRECTION_REACH, y), (x + DIRECTION_REACH, y), Paint::Faint, 1.0);
    svg.line((x, y - DIRECTION_REACH), (x, y + DIRECTION_REACH), Paint::Faint, 1.0);
    for (class, samples) in drawn.iter().enumerate().filter(|(_, samples)| !samples.is_empty()) {
        let place = |sample: &usize| {
            let [a, b] = coordinates(embedding.feature(*sample));
            (x + a * scale, y - b * scale)
        };
        let data = [("series", classes[class].as_str())];
        svg.dots(samples.iter().map(place), DOT_RADIUS, Paint::Series(class), &data);
    }
    let directions = class_directions(embedding);
    for (class, angle) in &directions {
        let end = (x + DIRECTION_REACH * angle.cos(), y - DIRECTION_REACH * angle.sin());
        svg.open_group(&[("part-of", &classes[*class])]);
        svg.line((x, y), end, Paint::Ink, 0.7);
        svg.close_group();
    }
    draw_ticks(svg, (x, y), furthest, scale);
    svg.close_group();
    if classes.iter().any(|name| name.chars().count() > 2) {
        return;
    }
    for (class, angle) in spread_apart(directions, 2.0 * BADGE_RADIUS / NAME_REACH) {
        let at = (x + NAME_REACH * angle.cos(), y - NAME_REACH * angle.sin());
        svg.open_group(&[("part-of", &classes[class])]);
        svg.circle(at, BADGE_RADIUS, Paint::Series(class), &[]);
        let font = Font { size: 11.0, paint: Paint::OnSeries(class), bold: true, outline: false };
        svg.text((at.0, at.1 + 4.0), Anchor::Middle, font, f64::INFINITY, &classes[class]);
        svg.close_group();
    }
}

/// Draws one or two ticks on each half axis, with labels on the positive halves.
fn draw_ticks(svg: &mut Svg, (x, y): (f64, f64), furthest: f64, scale: f64) {
    let step = round_step(furthest / 2.5);
    let font = Font { size: 10.0, paint: Paint::Grey, bold: false, outline: true };
    for count in [-2.0, -1.0, 1.0, 2.0] {
        let value = count * step;
        let at = value * scale;
        if at.abs() > SAMPLE_REACH {
            continue;
        }
        svg.line((x + at, y - 2.5), (x + at, y + 2.5), Paint::Grey, 1.0);
        svg.line((x - 2.5, y - at), (x + 2.5, y - at), Paint::Grey, 1.0);
        if value > 0.0 {
            let text = format_number(value, step);
            svg.text((x + at, y + 13.0), Anchor::Middle, font, f64::INFINITY, &text);
            svg.text((x - 5.0, y - at + 3.5), Anchor::End, font, f64::INFINITY, &text);
        }
    }
}

/// The classes whose weights are not zero, and the angle of these.
fn class_directions(embedding: &Embedding<'_>) -> Vec<(usize, f64)> {
    let angle = |class| {
        let [a, b] = coordinates(embedding.weight(class));
        (a != 0.0 || b != 0.0).then(|| (class, b.atan2(a)))
    };
    (0..embedding.classes()).filter_map(angle).collect()
}

/// Moves angles apart until neighbours differ by at least `least`; empty if there are too many.
fn spread_apart(mut angles: Vec<(usize, f64)>, least: f64) -> Vec<(usize, f64)> {
    let count = angles.len();
    if count as f64 * least > TAU {
        return Vec::new();
    }
    angles.sort_by(|a, b| a.1.total_cmp(&b.1));
    for _ in 0..200 {
        for (here, next) in
            (0..count).map(|here| (here, (here + 1) % count)).filter(|(here, next)| here != next)
        {
            let turn = if next == 0 { TAU } else { 0.0 };
            let missing = least - (angles[next].1 + turn - angles[here].1);
            if missing > 0.0 {
                angles[here].1 -= missing / 2.0;
                angles[next].1 += missing / 2.0;
            }
        }
    }
    angles
}

fn coordinates(row: &[f32]) -> [f64; 2] {
    [f64::from(row[0]), f64::from(row[1])]
}
