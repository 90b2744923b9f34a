//! Curves by step: loss, accuracy, λ, learning rate.

use super::axis::Axis;
use super::legend::{Legend, Mark, colour, dashes};
use super::svg::{Anchor, FAINT, Font, GREY, INK, Picture, Svg, width};
use super::{FigureError, Scale};

/// Numbers by step, of one run or of several.
///
/// ```
/// use lsoftmax_lab::figures::{Chart, Scale, Series};
/// let points = vec![(0, 2.3), (100, 0.4), (200, 0.1)];
/// let chart = Chart { title: "Loss".into(), scale: Scale::Log, series: vec![Series { name: "m = 2".into(), points }] };
/// assert!(chart.draw()?.as_str().contains("m = 2"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Chart {
    /// What the values are.
    pub title: String,
    /// The scale of the values.
    pub scale: Scale,
    /// The curves.
    pub series: Vec<Series>,
}

/// One curve.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Steps and values. A value that is not finite, or beyond ±1e300, interrupts the curve.
    pub points: Vec<(u64, f64)>,
}

const WIDTH: f64 = 720.0;
const EDGE: f64 = 20.0;
const TOP: f64 = 52.0;
const BOTTOM: f64 = 332.0;
const SMALL: Font = Font { size: 12.0, fill: GREY, bold: false, rim: false };

impl Chart {
    /// Draws the curves over a common axis of steps.
    ///
    /// Where many points share a column of the picture, the lowest and the highest are kept.
    ///
    /// # Errors
    /// When there is no series, one has no finite value, or a logarithmic axis should show a value of 0 or less.
    pub fn draw(&self) -> Result<Picture, FigureError> {
        let (across, up) = self.axes()?;
        let labels = up.ticks.iter().map(|(_, text)| width(text, SMALL.size));
        let left = EDGE + labels.fold(0.0, f64::max) + 8.0;
        let right = WIDTH - EDGE - 20.0;
        let legend = Legend::new(
            Mark::Line,
            self.series.iter().map(|series| series.name.as_str()),
            right - left,
        );
        let mut svg = Svg::new(
            WIDTH,
            BOTTOM + 50.0 + legend.height() + 10.0,
            &format!("{} by step", self.title),
        );

        let title = Font { size: 16.0, fill: INK, bold: true, rim: false };
        svg.text((left, 30.0), Anchor::Start, title, right - left, &self.title);
        for (value, text) in &up.ticks {
            let y = BOTTOM - up.place(*value) * (BOTTOM - TOP);
            svg.line((left, y), (right, y), FAINT, 1.0);
            svg.text((left - 8.0, y + 4.0), Anchor::End, SMALL, f64::INFINITY, text);
        }
        svg.line((left, BOTTOM), (right, BOTTOM), GREY, 1.0);
        for (value, text) in &across.ticks {
            let x = left + across.place(*value) * (right - left);
            svg.line((x, BOTTOM), (x, BOTTOM + 5.0), GREY, 1.0);
            svg.text((x, BOTTOM + 19.0), Anchor::Middle, SMALL, f64::INFINITY, text);
        }
        svg.text(
            ((left + right) / 2.0, BOTTOM + 38.0),
            Anchor::Middle,
            SMALL,
            right - left,
            "step",
        );
        for (index, series) in self.series.iter().enumerate() {
            let mut points = series.points.clone();
            points.sort_by_key(|point| point.0);
            for stretch in points.split(|point| !self.scale.draws(point.1)) {
                let place = |point: &(u64, f64)| {
                    let x = left + across.place(point.0 as f64) * (right - left);
                    (x, BOTTOM - up.place(point.1) * (BOTTOM - TOP))
                };
                match thinned(&stretch.iter().map(place).collect::<Vec<_>>()).as_slice() {
                    [] => {}
                    [point] => svg.circle(*point, 2.5, colour(index)),
                    points => svg.polyline(points, colour(index), dashes(index)),
                }
            }
        }
        legend.draw(&mut svg, (left + right) / 2.0, BOTTOM + 50.0);
        Ok(svg.finish())
    }

    /// The axes that hold all values.
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
            drawn.extend(points.iter().filter(|point| self.scale.draws(point.1)).copied());
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

/// At most two points a column: the lowest and the highest, in their order.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
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
