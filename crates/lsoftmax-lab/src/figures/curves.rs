//! Line charts: loss, error, λ, learning rate by step; any function of one variable.

use super::axis::Axis;
use super::legend::{Legend, Mark, dash_pattern};
use super::palette::Paint;
use super::svg::{Anchor, Font, Svg, coordinate, text_width};
use super::{FigureError, Picture, Scale};

/// A line chart, of one run or several.
///
/// ```
/// use lsoftmax_lab::figures::{Chart, Scale, Series};
/// let points = vec![(0, 2.3), (100, 0.4), (200, 0.1)];
/// let chart = Chart {
///     title: "MNIST".into(),
///     x_title: "iteration".into(),
///     y_title: "training loss".into(),
///     scale: Scale::Log,
///     series: vec![Series::by_step("m = 2", points)],
///     ..Chart::default()
/// };
/// assert!(chart.draw()?.as_str().contains("m = 2"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// The heading.
    pub title: String,
    /// The title of the horizontal axis, such as "step"; omitted if empty.
    pub x_title: String,
    /// The distance between ticks of the horizontal axis; `None` for one that suits the range.
    pub x_every: Option<f64>,
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
    /// Points, in any order. A value that is not finite, or beyond ±1e300, interrupts the curve; a
    /// point whose first coordinate is such a number is not drawn.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// A curve by training step.
    pub fn by_step(name: impl Into<String>, points: impl IntoIterator<Item = (u64, f64)>) -> Self {
        let points = points.into_iter().map(|(step, value)| (step as f64, value)).collect();
        Self { name: name.into(), points }
    }
}

/// The width of a picture with one chart.
const WIDTH: f64 = 720.0;
/// The width of a chart beside another.
const NARROW: f64 = 560.0;
/// Charts per row.
const CHARTS_PER_ROW: usize = 2;
const PADDING: f64 = 20.0;
/// The width of a vertical axis title.
const Y_TITLE_WIDTH: f64 = 20.0;
/// The ends of the value axis.
const TOP: f64 = 52.0;
const BOTTOM: f64 = 332.0;
/// The height of a chart without a legend.
const HEIGHT: f64 = BOTTOM + 50.0;
const SMALL: Font = Font::SMALL;

/// Draws charts beside each other, two per row, with one legend: series of the same name have the same
/// colour, and are hidden and shown together.
///
/// # Errors
/// When there is no chart, or one of them [cannot be drawn](Chart::draw).
pub fn chart_row(charts: &[Chart]) -> Result<Picture, FigureError> {
    if charts.is_empty() {
        return Err(FigureError::Empty("charts"));
    }
    let axes: Vec<(Axis, Axis)> = charts.iter().map(Chart::axes).collect::<Result<_, _>>()?;
    let across = charts.len().min(CHARTS_PER_ROW);
    let chart_width = if across == 1 { WIDTH } else { NARROW };
    let width = chart_width * across as f64;
    let names = LegendNames::of(charts);
    let texts = names.0.iter().map(|(name, _)| *name);
    let (left, _) = charts[0].ends(chart_width, &axes[0].1);
    let room = if across == 1 { width - PADDING - 20.0 - left } else { width - 4.0 * PADDING };
    let legend = Legend::new(Mark::Line, texts, room);
    let bottom = HEIGHT * charts.len().div_ceil(CHARTS_PER_ROW) as f64;
    let labels: Vec<String> = charts.iter().map(Chart::label).collect();
    let mut svg = Svg::new(width, bottom + legend.height() + 10.0, &labels.join("; "));
    for (index, (chart, axes)) in charts.iter().zip(&axes).enumerate() {
        let corner = (
            (index % CHARTS_PER_ROW) as f64 * chart_width,
            (index / CHARTS_PER_ROW) as f64 * HEIGHT,
        );
        chart.draw_at(&mut svg, corner, chart_width, axes, &names);
    }
    let middle = if across == 1 { (left + width - PADDING - 20.0) / 2.0 } else { width / 2.0 };
    legend.draw(&mut svg, middle, bottom);
    Ok(svg.finish())
}

/// The entries of a legend: a name, and which of the series of this name in its chart it is. Charts
/// share entries.
struct LegendNames<'a>(Vec<(&'a str, usize)>);

impl<'a> LegendNames<'a> {
    fn of(charts: &'a [Chart]) -> Self {
        let mut entries = Vec::new();
        for chart in charts {
            for index in 0..chart.series.len() {
                let entry = Self::entry(chart, index);
                if !entries.contains(&entry) {
                    entries.push(entry);
                }
            }
        }
        Self(entries)
    }

    fn entry(chart: &Chart, index: usize) -> (&str, usize) {
        let name = chart.series[index].name.as_str();
        (name, chart.series[..index].iter().filter(|series| series.name == name).count())
    }

    /// The index of a series in the legend, which is that of its colour.
    fn index(&self, chart: &Chart, index: usize) -> usize {
        let entry = Self::entry(chart, index);
        self.0.iter().position(|other| *other == entry).unwrap_or(index)
    }
}

impl Chart {
    /// Draws the curves over a common horizontal axis.
    ///
    /// Of points that share a pixel column, only the lowest and the highest are drawn.
    ///
    /// # Errors
    /// When there is no series, a series has no finite value, or the scale is logarithmic and a value is
    /// not positive.
    pub fn draw(&self) -> Result<Picture, FigureError> {
        chart_row(std::slice::from_ref(self))
    }

    /// The ends of the horizontal axis in a chart of a width.
    fn ends(&self, width: f64, y_axis: &Axis) -> (f64, f64) {
        let labels = y_axis.ticks.iter().map(|(_, text)| text_width(text, SMALL.size));
        let y_title_width = if self.y_title.is_empty() { 0.0 } else { Y_TITLE_WIDTH };
        (PADDING + y_title_width + labels.fold(0.0, f64::max) + 8.0, width - PADDING - 20.0)
    }

    /// Draws the chart without a legend, with its upper left corner at `(x, y)`.
    fn draw_at(
        &self,
        svg: &mut Svg,
        (x, y): (f64, f64),
        width: f64,
        (x_axis, y_axis): &(Axis, Axis),
        names: &LegendNames<'_>,
    ) {
        let (left, right) = self.ends(width, y_axis);
        let (left, right, top, bottom) = (x + left, x + right, y + TOP, y + BOTTOM);
        let across = |value: f64| left + x_axis.position(value) * (right - left);
        let up = |value: f64| bottom - y_axis.position(value) * (bottom - top);

        svg.text((left, y + 30.0), Anchor::Start, Font::HEADING, right - left, &self.title);
        for (value, text) in &y_axis.ticks {
            let y = up(*value);
            svg.line((left, y), (right, y), Paint::Faint, 1.0);
            svg.text((left - 8.0, y + 4.0), Anchor::End, SMALL, f64::INFINITY, text);
        }
        svg.line((left, bottom), (right, bottom), Paint::Grey, 1.0);
        for (value, text) in &x_axis.ticks {
            let x = across(*value);
            svg.line((x, bottom), (x, bottom + 5.0), Paint::Grey, 1.0);
            svg.text((x, bottom + 19.0), Anchor::Middle, SMALL, f64::INFINITY, text);
        }
        if !self.x_title.is_empty() {
            let middle = ((left + right) / 2.0, bottom + 38.0);
            svg.text(middle, Anchor::Middle, SMALL, right - left, &self.x_title);
        }
        if !self.y_title.is_empty() {
            let middle = (x + PADDING + SMALL.size, (top + bottom) / 2.0);
            svg.vertical_text(middle, SMALL, bottom - top, &self.y_title);
        }
        let area = [left, top, right, bottom].map(coordinate).join(" ");
        svg.open_group(&[("plot", "chart"), ("area", &area), ("x", &self.x_title)]);
        for (index, series) in self.series.iter().enumerate() {
            let index = names.index(self, index);
            svg.open_group(&[("series", &series.name)]);
            let points = sorted(&series.points);
            for stretch in points.split(|point| !self.scale.can_show(point.1)) {
                let drawn: Vec<Drawn> = stretch
                    .iter()
                    .map(|point| Drawn { at: (across(point.0), up(point.1)), value: *point })
                    .collect();
                let drawn = column_extremes(&drawn);
                let values: Vec<String> = drawn.iter().map(|point| compact(point.value)).collect();
                let (values, points): (_, Vec<_>) =
                    (values.join(" "), drawn.iter().map(|point| point.at).collect());
                let data = [("values", values.as_str())];
                match points[..] {
                    [] => {}
                    [point] => svg.circle(point, 2.5, Paint::Series(index), &data),
                    _ => svg.polyline(&points, Paint::Series(index), dash_pattern(index), &data),
                }
            }
            svg.close_group();
        }
        svg.close_group();
    }

    /// A description for screen readers: the heading and the axes.
    fn label(&self) -> String {
        let [title, x, y] = [&self.title, &self.x_title, &self.y_title].map(String::as_str);
        let values = if y.is_empty() { title.into() } else { format!("{title}: {y}") };
        if x.is_empty() { values } else { format!("{values} by {x}") }
    }

    /// The horizontal axis and the value axis that contain all points.
    fn axes(&self) -> Result<(Axis, Axis), FigureError> {
        let mut drawn: Vec<(f64, f64)> = Vec::new();
        for Series { name, points } in &self.series {
            let before = drawn.len();
            if let Some((x, value)) =
                points.iter().find(|point| self.scale == Scale::Log && point.1 <= 0.0)
            {
                let x_title = if self.x_title.is_empty() { "x =" } else { &self.x_title };
                return Err(FigureError::Logarithm {
                    series: name.clone(),
                    at: format!("{x_title} {x}"),
                    value: *value,
                });
            }
            drawn.extend(sorted(points).iter().filter(|point| self.scale.can_show(point.1)));
            if drawn.len() == before {
                return Err(FigureError::NoValues(name.clone()));
            }
        }
        let [first, ..] = drawn[..] else { return Err(FigureError::Empty("series")) };
        let (mut across, mut values) = ((first.0, first.0), (first.1, first.1));
        for (x, value) in &drawn {
            across = (across.0.min(*x), across.1.max(*x));
            values = (values.0.min(*value), values.1.max(*value));
        }
        let whole = drawn.iter().all(|point| point.0.fract() == 0.0);
        Ok((
            Axis::exact(across.0, across.1, whole, self.x_every),
            Axis::new(self.scale, values.0, values.1),
        ))
    }
}

/// The points whose first coordinate can be shown, in its order.
fn sorted(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let shown = |point: &&(f64, f64)| Scale::Linear.can_show(point.0);
    let mut points: Vec<(f64, f64)> = points.iter().filter(shown).copied().collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// A point of a curve: where it is, and what it stands for.
#[derive(Clone, Copy)]
struct Drawn {
    at: (f64, f64),
    value: (f64, f64),
}

/// At most two points per pixel column: the lowest and the highest, in their order.
fn column_extremes(points: &[Drawn]) -> Vec<Drawn> {
    let mut kept = Vec::new();
    for column in points.chunk_by(|a, b| a.at.0.floor() == b.at.0.floor()) {
        let order = |a: &usize, b: &usize| column[*a].at.1.total_cmp(&column[*b].at.1);
        let low = (0..column.len()).min_by(order).unwrap_or(0);
        let high = (0..column.len()).max_by(order).unwrap_or(0);
        kept.push(column[low.min(high)]);
        if low != high {
            kept.push(column[low.max(high)]);
        }
    }
    kept
}

/// A point as text: its first coordinate, and its value to five digits.
fn compact((x, value): (f64, f64)) -> String {
    let value: f64 = format!("{value:.4e}").parse().unwrap_or(value);
    let short = |value: f64| {
        let [plain, exponent] = [format!("{value}"), format!("{value:e}")];
        if plain.len() <= exponent.len() { plain } else { exponent }
    };
    format!("{},{}", short(x), short(value))
}
