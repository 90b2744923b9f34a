//! Line styles and the legend that names them and the colours.

use super::palette::{COLOURS, Paint};
use super::svg::{Anchor, Font, Svg, text_width, truncated};

/// Further names are counted, not shown.
const MAX_NAMES: usize = 40;
const FONT_SIZE: f64 = 13.0;
const FONT: Font = Font { size: FONT_SIZE, paint: Paint::Ink, bold: false, outline: false };
const ROW_HEIGHT: f64 = 22.0;
const GAP: f64 = 18.0;

/// The `stroke-dasharray` of a series: solid first, dashed when the colours repeat.
pub(super) fn dash_pattern(index: usize) -> &'static str {
    ["", "6 3", "2 3"][index / COLOURS % 3]
}

/// The symbol before a name.
#[derive(Clone, Copy)]
pub(super) enum Mark {
    Dot,
    Line,
}

/// Marks and names: in one row if they fit, otherwise in columns.
pub(super) struct Legend {
    mark: Mark,
    entries: Vec<Entry>,
    width: f64,
}

struct Entry {
    /// The whole name.
    name: String,
    /// As much of it as fits.
    text: String,
    /// The left edge of the mark.
    left: f64,
    row: usize,
}

impl Legend {
    /// Lays the names out in rows of at most `room`.
    pub fn new<'a>(mark: Mark, names: impl ExactSizeIterator<Item = &'a str>, room: f64) -> Self {
        let more = names.len().saturating_sub(MAX_NAMES);
        let indent = Self::indent(mark);
        let mut texts: Vec<(String, String)> = names
            .take(MAX_NAMES)
            .map(|name| (name.into(), truncated(name, FONT_SIZE, room - indent)))
            .collect();
        if more > 0 {
            texts.push((String::new(), format!("and {more} more")));
        }
        let widths: Vec<f64> =
            texts.iter().map(|(_, text)| indent + text_width(text, FONT_SIZE) + GAP).collect();
        let (one_row, widest) =
            (widths.iter().sum::<f64>() - GAP, widths.iter().copied().fold(0.0, f64::max));
        if one_row <= room {
            let mut left = 0.0;
            let place = |((name, text), width)| {
                left += width;
                Entry { name, text, left: left - width, row: 0 }
            };
            let entries = texts.into_iter().zip(widths).map(place).collect();
            return Self { mark, entries, width: one_row };
        }
        let most = (((room + GAP) / widest) as usize).max(1);
        let columns = texts.len().div_ceil(texts.len().div_ceil(most));
        let place = |(index, (name, text))| Entry {
            name,
            text,
            left: (index % columns) as f64 * widest,
            row: index / columns,
        };
        let entries = texts.into_iter().enumerate().map(place).collect();
        Self { mark, entries, width: columns as f64 * widest - GAP }
    }

    /// The height of all rows.
    pub fn height(&self) -> f64 {
        ROW_HEIGHT * self.entries.last().map_or(0.0, |entry| (entry.row + 1) as f64)
    }

    /// Draws it below `top`, centred at `middle`. An entry hides and shows its series on a page.
    pub fn draw(&self, svg: &mut Svg, middle: f64, top: f64) {
        let indent = Self::indent(self.mark);
        for (index, Entry { name, text, left, row }) in self.entries.iter().enumerate() {
            let (x, y) = (middle - self.width / 2.0 + left, top + ROW_HEIGHT * (*row as f64 + 0.5));
            if index == MAX_NAMES {
                let font = Font { paint: Paint::Grey, ..FONT };
                svg.text((x + indent, y + 4.5), Anchor::Start, font, f64::INFINITY, text);
                break;
            }
            svg.open_group(&[("toggle", name)]);
            let size = (indent + text_width(text, FONT_SIZE), ROW_HEIGHT - 2.0);
            svg.click_area((x, y - size.1 / 2.0), size);
            match self.mark {
                Mark::Dot => svg.circle((x + 5.0, y), 5.0, Paint::Series(index), &[]),
                Mark::Line => svg.polyline(
                    &[(x, y), (x + indent - 8.0, y)],
                    Paint::Series(index),
                    dash_pattern(index),
                    &[],
                ),
            }
            svg.text((x + indent, y + 4.5), Anchor::Start, FONT, f64::INFINITY, text);
            svg.close_group();
        }
    }

    /// The distance from the mark's left edge to the name.
    fn indent(mark: Mark) -> f64 {
        match mark {
            Mark::Dot => 16.0,
            Mark::Line => 32.0,
        }
    }
}
