//! Figure 5 of the paper: cosines between classes as colours.

use std::collections::BTreeMap;

use super::axis::Axis;
use super::palette::{Paint, viridis};
use super::svg::{Anchor, Font, Svg, coordinate, text_width};
use super::{FigureError, Picture, Scale};

/// The matrix of one training run.
#[derive(Clone, Debug)]
pub struct HeatMap {
    /// The heading, such as "L-Softmax (m = 4)".
    pub title: String,
    /// Cosines from −1 to 1, row by row, one row and one column per class.
    pub values: Vec<f64>,
}

/// Panels per row.
const PANELS_PER_ROW: usize = 3;
/// The side of a matrix is at most this.
const SIDE: f64 = 300.0;
const PADDING: f64 = 20.0;
const TITLE_HEIGHT: f64 = 34.0;
/// More classes have no names on the axes.
pub(super) const MAX_NAMES: usize = 20;
/// The most room for a name on an axis.
pub(super) const NAME_ROOM: f64 = 84.0;
const BAR_WIDTH: f64 = 16.0;
const BAR_STEPS: usize = 64;
pub(super) const SMALL: Font = Font { size: 11.0, paint: Paint::Grey, bold: false, outline: false };

/// Draws matrices of cosines between classes side by side, three per row, with one colour bar.
///
/// The bar covers the values of all panels. Classes are named on the axes if there are at most 20.
///
/// ```
/// use lsoftmax_lab::figures::{HeatMap, heat_maps};
/// let softmax = HeatMap { title: "softmax".into(), values: vec![0.8, 0.4, 0.4, 0.7] };
/// let margin = HeatMap { title: "m = 4".into(), values: vec![0.9, 0.1, 0.1, 0.9] };
/// let picture = heat_maps(&[softmax, margin], &["cat".into(), "dog".into()])?;
/// assert!(picture.as_str().starts_with("<svg"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When there is no panel or class, a panel is not a square matrix with one row per class, or a value is
/// not from −1 to 1.
pub fn heat_maps(panels: &[HeatMap], classes: &[String]) -> Result<Picture, FigureError> {
    for (what, count) in [("panels", panels.len()), ("classes", classes.len())] {
        if count == 0 {
            return Err(FigureError::Empty(what));
        }
    }
    panels.iter().try_for_each(|panel| panel.check(classes.len()))?;
    let values = || panels.iter().flat_map(|panel| &panel.values).copied();
    let (low, high) = values()
        .fold((1.0, -1.0), |(low, high), value| (f64::min(low, value), f64::max(high, value)));
    let bar = Axis::new(Scale::Linear, low, high);

    let cell = (SIDE / classes.len() as f64).floor().max(1.0);
    let side = cell * classes.len() as f64;
    let named = classes.len() <= MAX_NAMES;
    let widest = classes.iter().map(|name| text_width(name, SMALL.size)).fold(0.0, f64::max);
    let names_room = if named { widest.min(NAME_ROOM) + 8.0 } else { 0.0 };
    let pitch = (names_room + side + PADDING, TITLE_HEIGHT + side + names_room + PADDING);
    let (across, down) =
        (panels.len().min(PANELS_PER_ROW) as f64, panels.len().div_ceil(PANELS_PER_ROW) as f64);
    let bar_labels = bar.ticks.iter().map(|(_, text)| text_width(text, SMALL.size));
    let bar_room = 12.0 + BAR_WIDTH + 8.0 + bar_labels.fold(0.0, f64::max);
    let titles: Vec<&str> = panels.iter().map(|panel| panel.title.as_str()).collect();
    let label = format!("Cosines between classes: {}", titles.join("; "));
    let mut svg =
        Svg::new(PADDING + across * pitch.0 + bar_room + PADDING, PADDING + down * pitch.1, &label);
    let names = serde_json::to_string(classes).expect("strings are valid JSON");
    for (index, panel) in panels.iter().enumerate() {
        let left = PADDING + (index % PANELS_PER_ROW) as f64 * pitch.0 + names_room;
        let top = PADDING + (index / PANELS_PER_ROW) as f64 * pitch.1 + TITLE_HEIGHT;
        let title = Font::PANEL;
        let middle = (left + side / 2.0, top - 14.0);
        svg.text(middle, Anchor::Middle, title, side + names_room, &panel.title);
        panel.draw(&mut svg, (left, top), cell, &bar, &names);
        if named {
            draw_names(&mut svg, (left, top), cell, classes);
        }
    }
    let place = (PADDING + across * pitch.0 + 12.0 - PADDING / 2.0, PADDING + TITLE_HEIGHT);
    draw_bar(&mut svg, place, side, &bar);
    Ok(svg.finish())
}

impl HeatMap {
    fn check(&self, classes: usize) -> Result<(), FigureError> {
        if self.values.len() != classes * classes {
            return Err(FigureError::Matrix {
                panel: self.title.clone(),
                found: self.values.len(),
                classes,
            });
        }
        // Rounding makes a vector's cosine with itself a little more than 1.
        match self.values.iter().position(|value| value.is_nan() || value.abs() > 1.0 + 1e-6) {
            None => Ok(()),
            Some(at) => Err(FigureError::Cosine {
                panel: self.title.clone(),
                row: at / classes,
                column: at % classes,
                value: self.values[at],
            }),
        }
    }

    /// Draws the matrix with its upper left corner at `(x, y)`: one element per colour, in which equal
    /// neighbours are one rectangle.
    fn draw(&self, svg: &mut Svg, (x, y): (f64, f64), cell: f64, bar: &Axis, names: &str) {
        let hundredths: Vec<i32> =
            self.values.iter().map(|value| (value * 100.0).round() as i32).collect();
        let classes = self.values.len().isqrt();
        let mut by_value: BTreeMap<i32, Vec<(f64, f64, f64)>> = BTreeMap::new();
        for (row, values) in hundredths.chunks(classes).enumerate() {
            let mut column = 0;
            for run in values.chunk_by(|a, b| a == b) {
                let place =
                    (x + column as f64 * cell, y + row as f64 * cell, run.len() as f64 * cell);
                by_value.entry(run[0]).or_default().push(place);
                column += run.len();
            }
        }
        let side = cell * classes as f64;
        let area = [x, y, x + side, y + side].map(coordinate).join(" ");
        let values: Vec<String> = hundredths.iter().map(i32::to_string).collect();
        svg.open_group(&[
            ("plot", "heat"),
            ("area", &area),
            ("classes", names),
            ("values", &values.join(" ")),
        ]);
        for (value, places) in by_value {
            let colour = viridis(bar.position(f64::from(value) / 100.0));
            svg.rectangles(places.into_iter(), cell, &colour);
        }
        svg.close_group();
    }
}

/// Draws the classes' names left of and below a matrix at `(x, y)`.
pub(super) fn draw_names(svg: &mut Svg, (x, y): (f64, f64), cell: f64, classes: &[String]) {
    let bottom = y + cell * classes.len() as f64;
    for (index, name) in classes.iter().enumerate() {
        let middle = (index as f64 + 0.5) * cell;
        svg.text((x - 6.0, y + middle + 4.0), Anchor::End, SMALL, NAME_ROOM, name);
        svg.rotated_text((x + middle + 4.0, bottom + 6.0), Anchor::End, SMALL, NAME_ROOM, name);
    }
}

/// Draws the colours of all values, from low at the bottom to high at the top, with ticks.
fn draw_bar(svg: &mut Svg, (x, y): (f64, f64), height: f64, bar: &Axis) {
    let step = height / BAR_STEPS as f64;
    for index in 0..BAR_STEPS {
        let colour = viridis((index as f64 + 0.5) / BAR_STEPS as f64);
        let top = y + height - (index + 1) as f64 * step;
        svg.rectangle((x, top), (BAR_WIDTH, step), &colour);
    }
    for (value, text) in &bar.ticks {
        let tick = y + height - bar.position(*value) * height;
        svg.line((x + BAR_WIDTH, tick), (x + BAR_WIDTH + 4.0, tick), Paint::Grey, 1.0);
        svg.text((x + BAR_WIDTH + 7.0, tick + 4.0), Anchor::Start, SMALL, f64::INFINITY, text);
    }
}
