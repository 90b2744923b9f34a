//! Figure 2 of the paper: what the margin does to two-dimensional features.

use std::f64::consts::TAU;

use super::axis::{step, written};
use super::legend::{Legend, Mark, colour, ink_on};
use super::svg::{Anchor, FAINT, Font, GREY, INK, Picture, Svg};
use super::{Embedding, FigureError};

/// Samples of one training run.
#[derive(Clone, Debug)]
pub struct Panel<'a> {
    /// What stands above, such as "m = 2, 98.4 % test accuracy".
    pub title: String,
    /// Two-dimensional features, their labels and the head's weights.
    pub embedding: Embedding<'a>,
}

/// The most samples drawn in a panel, of every class as many.
const DRAWN: usize = 2000;
/// Panels in a row.
const ACROSS: usize = 4;
const SIDE: f64 = 260.0;
const EDGE: f64 = 16.0;
const TITLE: f64 = 30.0;
const DOT: f64 = 1.3;
/// From the origin: the furthest sample, the end of the classes' lines, their names.
const REACH: f64 = 104.0;
const RAY: f64 = 109.0;
const RIM: f64 = 119.0;
const BADGE: f64 = 8.5;

/// Draws samples by class, one panel a run, with the directions of the classes' weights.
///
/// Every panel has the origin in its middle and its own scale, the same along both axes. At most
/// 2,000 samples of a panel are drawn, evenly from the classes and evenly over each class's samples.
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
/// When there is no panel, one is not two-dimensional, or one has not as many classes as there are names.
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
    let across = panels.len().min(ACROSS) as f64;
    let width = EDGE + across * (SIDE + EDGE);
    let legend = Legend::new(Mark::Dot, classes.iter().map(String::as_str), width - 2.0 * EDGE);
    let bottom = EDGE + panels.len().div_ceil(ACROSS) as f64 * (TITLE + SIDE);
    let titles: Vec<&str> = panels.iter().map(|panel| panel.title.as_str()).collect();
    let label = format!("Two-dimensional features by class: {}", titles.join("; "));
    let mut svg = Svg::new(width, bottom + legend.height() + EDGE, &label);
    for (index, panel) in panels.iter().enumerate() {
        let left = EDGE + (index % ACROSS) as f64 * (SIDE + EDGE);
        let top = EDGE + (index / ACROSS) as f64 * (TITLE + SIDE);
        let font = Font { size: 15.0, fill: INK, bold: true, rim: false };
        svg.text((left + SIDE / 2.0, top + 16.0), Anchor::Middle, font, SIDE, &panel.title);
        draw(&mut svg, (left + SIDE / 2.0, top + TITLE + SIDE / 2.0), &panel.embedding, classes);
    }
    legend.draw(&mut svg, width / 2.0, bottom);
    Ok(svg.finish())
}

/// Draws a panel around its origin.
fn draw(svg: &mut Svg, (x, y): (f64, f64), embedding: &Embedding<'_>, classes: &[String]) {
    let drawn = evenly(embedding);
    let norm = |sample: &usize| {
        let [a, b] = pair(embedding.feature(*sample));
        a.hypot(b)
    };
    let furthest = drawn.iter().flatten().map(norm).fold(0.0, f64::max);
    let furthest = if furthest > 0.0 { furthest } else { 1.0 };
    let scale = REACH / furthest;

    svg.line((x - RAY, y), (x + RAY, y), FAINT, 1.0);
    svg.line((x, y - RAY), (x, y + RAY), FAINT, 1.0);
    for (class, samples) in drawn.iter().enumerate().filter(|(_, samples)| !samples.is_empty()) {
        let place = |sample: &usize| {
            let [a, b] = pair(embedding.feature(*sample));
            (x + a * scale, y - b * scale)
        };
        svg.dots(samples.iter().map(place), DOT, colour(class));
    }
    let directions = directions(embedding);
    for (_, angle) in &directions {
        svg.line((x, y), (x + RAY * angle.cos(), y - RAY * angle.sin()), INK, 0.7);
    }
    ticks(svg, (x, y), furthest, scale);
    if classes.iter().any(|name| name.chars().count() > 2) {
        return;
    }
    for (class, angle) in apart(directions, 2.0 * BADGE / RIM) {
        let at = (x + RIM * angle.cos(), y - RIM * angle.sin());
        svg.circle(at, BADGE, colour(class));
        let font = Font { size: 11.0, fill: ink_on(colour(class)), bold: true, rim: false };
        svg.text((at.0, at.1 + 4.0), Anchor::Middle, font, f64::INFINITY, &classes[class]);
    }
}

/// Two ticks or so on each half axis. Numbers, which can be read on top of the samples, are on the positive ones.
fn ticks(svg: &mut Svg, (x, y): (f64, f64), furthest: f64, scale: f64) {
    let step = step(furthest / 2.5);
    let font = Font { size: 10.0, fill: GREY, bold: false, rim: true };
    for count in [-2.0, -1.0, 1.0, 2.0] {
        let value = count * step;
        let at = value * scale;
        if at.abs() > REACH {
            continue;
        }
        svg.line((x + at, y - 2.5), (x + at, y + 2.5), GREY, 1.0);
        svg.line((x - 2.5, y - at), (x + 2.5, y - at), GREY, 1.0);
        if value > 0.0 {
            let text = written(value, step);
            svg.text((x + at, y + 13.0), Anchor::Middle, font, f64::INFINITY, &text);
            svg.text((x - 5.0, y - at + 3.5), Anchor::End, font, f64::INFINITY, &text);
        }
    }
}

/// The samples of every class that are drawn.
fn evenly(embedding: &Embedding<'_>) -> Vec<Vec<usize>> {
    let quota = (DRAWN / embedding.classes()).max(1);
    let spaced = |samples: Vec<usize>| {
        let count = samples.len().min(quota);
        (0..count).map(|index| samples[index * samples.len() / count]).collect()
    };
    embedding.by_class().into_iter().map(spaced).collect()
}

/// The classes whose weights have a direction, and its angle.
fn directions(embedding: &Embedding<'_>) -> Vec<(usize, f64)> {
    let angle = |class| {
        let [a, b] = pair(embedding.weight(class));
        (a != 0.0 || b != 0.0).then(|| (class, b.atan2(a)))
    };
    (0..embedding.classes()).filter_map(angle).collect()
}

/// Moves angles as little as it takes for neighbours to be `least` apart; none if there are too many.
fn apart(mut angles: Vec<(usize, f64)>, least: f64) -> Vec<(usize, f64)> {
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

fn pair(row: &[f32]) -> [f64; 2] {
    [f64::from(row[0]), f64::from(row[1])]
}
