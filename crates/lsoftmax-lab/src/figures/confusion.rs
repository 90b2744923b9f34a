//! Confusion matrices as colours and counts.

use std::collections::BTreeMap;

use super::axis::group_thousands;
use super::heat_maps::{MAX_NAMES, NAME_ROOM, SMALL, draw_names};
use super::palette::{Paint, viridis};
use super::svg::{Anchor, Font, Svg, coordinate, text_width};
use super::{FigureError, Picture};

/// The side of a cell with a count.
const CELL: f64 = 38.0;
/// The side of a matrix whose cells have no counts is at most this, unless cells would be below a pixel.
const SIDE: f64 = 640.0;
const PADDING: f64 = 20.0;
const TITLE: f64 = 20.0;
const BAR_WIDTH: f64 = 16.0;
const BAR_STEPS: usize = 64;
/// The shares with a tick on the bar.
const TICKS: [f64; 6] = [0.0, 0.01, 0.1, 0.25, 0.5, 1.0];

/// Draws a confusion matrix: `counts[i][j]` images of class i are classified as class j.
///
/// A cell's colour is the share of its row, on a scale of square roots on which one percent is visible.
/// With at most 20 classes, cells have their counts and axes their names.
///
/// ```
/// use lsoftmax_lab::figures::confusion_matrix;
/// let picture = confusion_matrix(&[vec![9, 1], vec![0, 10]], &["cat".into(), "dog".into()])?;
/// assert!(picture.as_str().starts_with("<svg"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When there is no class, or the matrix does not have one row and one column per class.
pub fn confusion_matrix(counts: &[Vec<u32>], classes: &[String]) -> Result<Picture, FigureError> {
    if classes.is_empty() {
        return Err(FigureError::Empty("classes"));
    }
    let count = classes.len();
    if counts.len() != count || counts.iter().any(|row| row.len() != count) {
        return Err(FigureError::Matrix {
            panel: "confusion matrix".into(),
            found: counts.iter().map(Vec::len).sum(),
            classes: count,
        });
    }
    let named = count <= MAX_NAMES;
    let cell = if named { CELL } else { (SIDE / count as f64).floor().max(1.0) };
    let side = cell * count as f64;
    let widest = classes.iter().map(|name| text_width(name, SMALL.size)).fold(0.0, f64::max);
    let names_room = if named { widest.min(NAME_ROOM) + 8.0 } else { 6.0 };
    let (left, top) = (PADDING + TITLE + names_room, PADDING);
    let bar_left = left + side + 16.0;
    let labels = TICKS.map(|share| format!("{} %", share * 100.0));
    let widest_tick = labels.iter().map(|text| text_width(text, SMALL.size)).fold(0.0, f64::max);
    let width = bar_left + BAR_WIDTH + 8.0 + widest_tick + PADDING;
    let height = top + side + names_room + TITLE + PADDING;
    let mut svg = Svg::new(width, height, "Confusion matrix: labels by row, predictions by column");

    let names = serde_json::to_string(classes).expect("strings are valid JSON");
    let values: Vec<String> = counts.iter().flatten().map(u32::to_string).collect();
    let area = [left, top, left + side, top + side].map(coordinate).join(" ");
    svg.open_group(&[
        ("plot", "confusion"),
        ("area", &area),
        ("classes", &names),
        ("values", &values.join(" ")),
    ]);
    draw_cells(&mut svg, (left, top), cell, counts);
    if named {
        draw_counts(&mut svg, (left, top), cell, counts);
    }
    svg.close_group();
    if named {
        draw_names(&mut svg, (left, top), cell, classes);
    }
    let title = Font { size: 12.0, ..SMALL };
    svg.vertical_text((PADDING + 10.0, top + side / 2.0), title, side, "label");
    let below = (left + side / 2.0, top + side + names_room + 14.0);
    svg.text(below, Anchor::Middle, title, side, "predicted");
    draw_bar(&mut svg, (bar_left, top), side.clamp(120.0, 300.0), &labels);
    Ok(svg.finish())
}

/// From 0 to 1, in hundredths.
fn shade(share: f64) -> u32 {
    (share.sqrt() * 100.0).round() as u32
}

/// The share of every cell in its row.
fn shares(row: &[u32]) -> impl Iterator<Item = f64> {
    let total: u64 = row.iter().map(|count| u64::from(*count)).sum();
    row.iter().map(move |count| f64::from(*count) / total.max(1) as f64)
}

/// One element per colour, in which equal neighbours are one rectangle.
fn draw_cells(svg: &mut Svg, (x, y): (f64, f64), cell: f64, counts: &[Vec<u32>]) {
    let mut by_shade: BTreeMap<u32, Vec<(f64, f64, f64)>> = BTreeMap::new();
    for (row, counts) in counts.iter().enumerate() {
        let shades: Vec<u32> = shares(counts).map(shade).collect();
        let mut column = 0;
        for run in shades.chunk_by(|a, b| a == b) {
            let place = (x + column as f64 * cell, y + row as f64 * cell, run.len() as f64 * cell);
            by_shade.entry(run[0]).or_default().push(place);
            column += run.len();
        }
    }
    for (shade, places) in by_shade {
        svg.rectangles(places.into_iter(), cell, &viridis(f64::from(shade) / 100.0));
    }
}

/// The counts other than 0, light on dark cells and dark on light ones.
fn draw_counts(svg: &mut Svg, (x, y): (f64, f64), cell: f64, counts: &[Vec<u32>]) {
    for (row, counts) in counts.iter().enumerate() {
        for (column, (count, share)) in counts.iter().zip(shares(counts)).enumerate() {
            if *count == 0 {
                continue;
            }
            let paint = if share.sqrt() > 0.6 { Paint::Dark } else { Paint::Light };
            let font = Font { paint, ..SMALL };
            let text = group_thousands(&count.to_string());
            let at = (x + (column as f64 + 0.5) * cell, y + (row as f64 + 0.5) * cell + 4.0);
            svg.text(at, Anchor::Middle, font, f64::INFINITY, &text);
        }
    }
}

/// The colours of shares from 0 at the bottom to 1 at the top.
fn draw_bar(svg: &mut Svg, (x, y): (f64, f64), height: f64, labels: &[String]) {
    let step = height / BAR_STEPS as f64;
    for index in 0..BAR_STEPS {
        let colour = viridis((index as f64 + 0.5) / BAR_STEPS as f64);
        let top = y + height - (index + 1) as f64 * step;
        svg.rectangle((x, top), (BAR_WIDTH, step), &colour);
    }
    for (share, text) in TICKS.iter().zip(labels) {
        let tick = y + height - share.sqrt() * height;
        svg.line((x + BAR_WIDTH, tick), (x + BAR_WIDTH + 4.0, tick), Paint::Grey, 1.0);
        svg.text((x + BAR_WIDTH + 7.0, tick + 4.0), Anchor::Start, SMALL, f64::INFINITY, text);
    }
}
