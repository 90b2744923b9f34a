//! Line charts by step: loss, error, λ, learning rate.

use super::axis::Axis;
use super::legend::{Legend, Mark, colour, dash_pattern};
use super::svg::{Anchor, FAINT, Font, GREY, INK, Picture, Svg, text_width};
use super::{FigureError, Scale};

/// A line chart of values by step, of one run or several.
///
/// ```
/// use lsoftmax_lab::figures::{Chart, Scale, Series};
/// let points = vec![(0, 2.3), (100, 0.4), (200, 0.1)];
/// let chart = Chart {
///     title: "MNIST".into(),
///     x_title: "iteration".into(),
///     y_title: "training loss".into(),
///     scale: Scale::Log,
///     series: vec![Series { name: "m = 2".into(), points }],
/// };
/// assert!(chart.draw()?.as_str().contains("m = 2"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// The heading.
    pub title: String,
    /// The title of the step axis, such as "step"; omitted if empty.
    pub x_title: String,
    /// The title of the value axis, such as "held-out error (%)"; omitted if empty.
    pub y_title: String,
    /// The scale of the value axis.
    pub scale: Scale,
    /// The curves.
    pub series: Vec<Series>,
}

/// One curve.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Steps and values, in any order. A value that is not finite, or beyond ±1e300, interrupts the
    /// curve.
    pub points: Vec<(u64, f64)>,
}

const WIDTH: f64 = 720.0;
const PADDING: f64 = 20.0;
/// The width of a vertical axis title.
const Y_TITLE_WIDTH: f64 = 20.0;
/// The ends of the value axis.
const TOP: f64 = 52.0;
const BOTTOM: f64 = 332.0;
const SMALL: Font = Font { size: 12.0, fill: GREY, bold: false, outline: false };

impl Chart {
    /// Draws the curves over a common step axis.
    ///
    /// Of points that share a pixel column, only the lowest and the highest are drawn.
    ///
    /// # Errors
    /// When there is no series, a series has no finite value, or the scale is logarithmic and a value is
    /// not positive.
    pub fn draw(&self) -> Result<Picture, FigureError> {
        let (x_axis, y_axis) = self.axes()?;
        let labels = y_axis.ticks.iter().map(|(_, text)| text_width(text, SMALL.size));
        let y_title_width = if self.y_title.is_empty() { 0.0 } else { Y_TITLE_WIDTH };
        let left = PADDING + y_title_width + labels.fold(0.0, f64::max) + 8.0;
        let right = WIDTH - PADDING - 20.0;
        let legend = Legend::new(
            Mark::Line,
            self.series.iter().map(|series| series.name.as_str()),
            right - left,
        );
        let mut svg = Svg::new(WIDTH, BOTTOM + 50.0 + legend.height() + 10.0, &self.label());

        let title = Font { size: 16.0, fill: INK, bold: true, outline: false };
        svg.text((left, 30.0), Anchor::Start, title, right - left, &self.title);
        for (value, text) in &y_axis.ticks {
            let y = BOTTOM - y_axis.position(*value) * (BOTTOM - TOP);
            svg.line((left, y), (right, y), FAINT, 1.0);
            svg.text((left - 8.0, y + 4.0), Anchor::End, SMALL, f64::INFINITY, text);
        }
        svg.line((left, BOTTOM), (right, BOTTOM), GREY, 1.0);
        for (value, text) in &x_axis.ticks {
            let x = left + x_axis.position(*value) * (right - left);
            svg.line((x, BOTTOM), (x, BOTTOM + 5.0), GREY, 1.0);
            svg.text((x, BOTTOM + 19.0), Anchor::Middle, SMALL, f64::INFINITY, text);
        }
        if !self.x_title.is_empty() {
            let middle = ((left + right) / 2.0, BOTTOM + 38.0);
            svg.text(middle, Anchor::Middle, SMALL, right - left, &self.x_title);
        }
        if !self.y_title.is_empty() {
            let middle = (PADDING + SMALL.size, (TOP + BOTTOM) / 2.0);
            svg.vertical_text(middle, SMALL, BOTTOM - TOP, &self.y_title);
        }
        for (index, series) in self.series.iter().enumerate() {
            let mut points = series.points.clone();
            points.sort_by_key(|point| point.0);
            for stretch in points.split(|point| !self.scale.can_show(point.1)) {
                let position = |point: &(u64, f64)| {
                    let x = left + x_axis.position(point.0 as f64) * (right - left);
                    (x, BOTTOM - y_axis.position(point.1) * (BOTTOM - TOP))
                };
                match column_extremes(&stretch.iter().map(position).collect::<Vec<_>>()).as_slice()
                {
                    [] => {}
                    [point] => svg.circle(*point, 2.5, colour(index)),
                    points => svg.polyline(points, colour(index), dash_pattern(index)),
                }
            }
        }
        legend.draw(&mut svg, (left + right) / 2.0, BOTTOM + 50.0);
        Ok(svg.finish())
    }

    /// A description for screen readers: the heading and the axes.
    fn label(&self) -> String {
        let [title, x, y] = [&self.title, &self.x_title, &self.y_title].map(String::as_str);
        let values = if y.is_empty() { title.into() } else { format!("{title}: {y}") };
        if x.is_empty() { values } else { format!("{values} by {x}") }
    }

    /// The step axis and the value axis that contain all points.
    fn axes(&self) -> Result<(Axis, Axis), FigureError> {
        let mut drawn = Vec::new();
        for Series { name, points } in &self.series {
            let before = drawn.len();
            if let Some((step, value)) =
                points.iter().find(|point| self.scale == Scale::Log && point.1 <= 0.0)
            {
                return Err(FigureError::Logarithm {
                    series: name.clone(),
                    step: *step,
                    value: *value,
                });
            }
            drawn.extend(points.iter().filter(|point| self.scale.can_show(point.1)).copied());
            if drawn.len() == before {
                return Err(FigureError::NoValues(name.clone()));
            }
        }
        let [first, ..] = drawn[..] else { return Err(FigureError::Empty("series")) };
        let (mut steps, mut values) = ((first.0, first.0), (first.1, first.1));
        for (step, value) in drawn {
            steps = (steps.0.min(step), steps.1.max(step));
            values = (values.0.min(value), values.1.max(value));
        }
        Ok((Axis::steps(steps.0, steps.1), Axis::new(self.scale, values.0, values.1)))
    }
}

/// At most two points per pixel column: the lowest and the highest, in their order.
fn column_extremes(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut kept = Vec::new();
    for column in points.chunk_by(|a, b| a.0.floor() == b.0.floor()) {
        let order = |a: &usize, b: &usize| column[*a].1.total_cmp(&column[*b].1);
        let low = (0..column.len()).min_by(order).unwrap_or(0);
        let high = (0..column.len()).max_by(order).unwrap_or(0);
        kept.push(column[low.min(high)]);
        if low != high {
            kept.push(column[low.max(high)]);
        }
    }
    kept
}
