//! Differences between two kinds of runs under many conditions, one line each: a forest plot.

use super::axis::{Axis, round_step};
use super::palette::Paint;
use super::svg::{Anchor, Font, Svg, text_width};
use super::{FigureError, Picture, Scale};

/// One line of the plot.
#[derive(Clone, Debug)]
pub struct ForestRow {
    /// What it is, such as "MNIST, 3,000 steps".
    pub label: String,
    /// What belongs together, and has one colour.
    pub colour: usize,
    /// The difference of every pair of runs.
    pub differences: Vec<Difference>,
    /// Texts beside the plot, one for each column.
    pub cells: Vec<String>,
}

/// The difference of a pair of runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The difference itself.
    pub value: f64,
    /// Half the length of its interval.
    pub within: f64,
}

const PADDING: f64 = 20.0;
const TITLE_HEIGHT: f64 = 50.0;
const LINE: f64 = 20.0;
const PLOT_WIDTH: f64 = 520.0;
/// The height of the axis, its ticks and its title.
const AXIS_HEIGHT: f64 = 52.0;
const MOST_LABEL_ROOM: f64 = 480.0;
const SMALL: Font = Font::SMALL;
const LABEL: Font = Font { paint: Paint::Ink, ..SMALL };

/// Draws one line per row: a dot with its interval for every pair of runs, and a bar at the mean of several. `columns` are
/// the headings of the rows' cells.
///
/// ```
/// use lsoftmax_lab::figures::{Difference, ForestRow, forest};
/// let difference = Difference { value: -9.9, within: 5.1 };
/// let row = ForestRow { label: "CIFAR10".into(), colour: 0, differences: vec![difference], cells: vec!["13.84".into()] };
/// let picture = forest("m = 4", "difference to softmax, %", &["softmax, %"], &[row])?;
/// assert!(picture.as_str().contains("CIFAR10"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When there is no row, or a row has no difference, one that is not finite, or not one cell for each column.
pub fn forest(
    title: &str,
    x_title: &str,
    columns: &[&str],
    rows: &[ForestRow],
) -> Result<Picture, FigureError> {
    if rows.is_empty() {
        return Err(FigureError::Empty("rows"));
    }
    // The axis contains 0, where neither is better.
    let (mut low, mut high) = (0.0, 0.0);
    for (index, ForestRow { label, differences, cells, .. }) in rows.iter().enumerate() {
        if cells.len() != columns.len() {
            return Err(FigureError::TableRow {
                table: title.to_owned(),
                row: index + 1,
                found: cells.len(),
                expected: columns.len(),
            });
        }
        let shown = |end: f64| Scale::Linear.can_show(end);
        let ends = |one: &Difference| [one.value - one.within, one.value + one.within];
        let ends: Vec<f64> = differences.iter().flat_map(ends).collect();
        if ends.is_empty() || !ends.iter().copied().all(shown) {
            return Err(FigureError::NoValues(label.clone()));
        }
        (low, high) = ends
            .into_iter()
            .fold((low, high), |(low, high), end| (f64::min(low, end), f64::max(high, end)));
    }
    let every = (high > low).then(|| round_step((high - low) / 10.0));
    let axis = Axis::exact(low, high, false, every);
    let widest = |texts: &mut dyn Iterator<Item = &str>| {
        texts.map(|text| text_width(text, SMALL.size)).fold(0.0, f64::max)
    };
    let label_room = widest(&mut rows.iter().map(|row| row.label.as_str())).min(MOST_LABEL_ROOM);
    let column_rooms: Vec<f64> = columns
        .iter()
        .enumerate()
        .map(|(index, head)| {
            let cells = rows.iter().filter_map(|row| row.cells.get(index));
            16.0 + widest(&mut cells.map(String::as_str).chain([*head]))
        })
        .collect();
    let left = PADDING + label_room + 12.0;
    let right = left + PLOT_WIDTH;
    let (top, bottom) = (TITLE_HEIGHT, TITLE_HEIGHT + LINE * rows.len() as f64);
    let width = right + column_rooms.iter().sum::<f64>() + PADDING;
    let across = |value: f64| left + axis.position(value) * PLOT_WIDTH;

    let mut svg = Svg::new(width, bottom + AXIS_HEIGHT, &format!("{title}: {x_title}"));
    svg.text((PADDING, 26.0), Anchor::Start, Font::HEADING, right - PADDING, title);
    for (value, text) in &axis.ticks {
        let x = across(*value);
        svg.line((x, top), (x, bottom), Paint::Faint, 1.0);
        svg.text((x, bottom + 18.0), Anchor::Middle, SMALL, f64::INFINITY, text);
    }
    svg.line((across(0.0), top - 6.0), (across(0.0), bottom), Paint::Grey, 1.0);
    let middle = ((left + right) / 2.0, bottom + 38.0);
    svg.text(middle, Anchor::Middle, SMALL, PLOT_WIDTH, x_title);
    let ends: Vec<f64> = column_rooms
        .iter()
        .scan(right, |end, room| {
            *end += room;
            Some(*end)
        })
        .collect();
    for (head, end) in columns.iter().zip(&ends) {
        svg.text((*end, top - 8.0), Anchor::End, SMALL, f64::INFINITY, head);
    }
    for (index, row) in rows.iter().enumerate() {
        let y = top + (index as f64 + 0.5) * LINE;
        svg.text((left - 12.0, y + 4.0), Anchor::End, LABEL, label_room, &row.label);
        row.draw(&mut svg, y, &across);
        for (cell, end) in row.cells.iter().zip(&ends) {
            svg.text((*end, y + 4.0), Anchor::End, SMALL, f64::INFINITY, cell);
        }
    }
    Ok(svg.finish())
}

impl ForestRow {
    fn draw(&self, svg: &mut Svg, y: f64, across: &dyn Fn(f64) -> f64) {
        let paint = Paint::Series(self.colour);
        let count = self.differences.len();
        // Pairs beside each other, within the height of the line.
        let step = LINE * 0.6 / count as f64;
        for (index, Difference { value, within }) in self.differences.iter().enumerate() {
            let y = y + (index as f64 - (count - 1) as f64 / 2.0) * step;
            svg.line((across(value - within), y), (across(value + within), y), paint, 1.2);
            svg.circle((across(*value), y), 2.6, paint, &[]);
        }
        if count > 1 {
            let mean = self.differences.iter().map(|one| one.value).sum::<f64>() / count as f64;
            svg.line((across(mean), y - LINE * 0.4), (across(mean), y + LINE * 0.4), paint, 3.0);
        }
    }
}
