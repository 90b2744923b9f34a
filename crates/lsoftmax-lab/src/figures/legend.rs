//! Colours, line styles and the legend that names them.

use super::svg::{Anchor, Font, GREY, INK, Svg, text_width, truncated};

/// Ten colours that remain distinguishable with any form of colour blindness, found by simulating it.
const COLOURS: [&str; 10] = [
    "#0076e3", "#ce9703", "#990800", "#782ea6", "#2a4f57", "#f75f8c", "#14dced", "#767a20",
    "#9a98d2", "#acda3e",
];

/// Further names are counted, not shown.
const MAX_NAMES: usize = 40;
const FONT_SIZE: f64 = 13.0;
const FONT: Font = Font { size: FONT_SIZE, fill: INK, bold: false, outline: false };
const ROW_HEIGHT: f64 = 22.0;
const GAP: f64 = 18.0;

/// The colour of a class or series; after ten they repeat.
pub(super) fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// Dark or white text, whichever is more readable on a `#rrggbb`.
pub(super) fn text_colour_on(colour: &str) -> &'static str {
    let part = |at: usize| {
        colour.get(at..at + 2).and_then(|hex| u8::from_str_radix(hex, 16).ok()).unwrap_or(0)
    };
    let light =
        0.299 * f64::from(part(1)) + 0.587 * f64::from(part(3)) + 0.114 * f64::from(part(5));
    if light > 140.0 { INK } else { "#fff" }
}

/// The `stroke-dasharray` of a series: solid first, dashed when the colours repeat.
pub(super) fn dash_pattern(index: usize) -> &'static str {
    ["", "6 3", "2 3"][index / COLOURS.len() % 3]
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
    /// The text, the left edge of its mark, and its row.
    entries: Vec<(String, f64, usize)>,
    width: f64,
}

impl Legend {
    /// Lays the names out in rows of at most `room`.
    pub fn new<'a>(mark: Mark, names: impl ExactSizeIterator<Item = &'a str>, room: f64) -> Self {
        let more = names.len().saturating_sub(MAX_NAMES);
        let mut texts: Vec<String> = names
            .take(MAX_NAMES)
            .map(|name| truncated(name, FONT_SIZE, room - Self::indent(mark)))
            .collect();
        if more > 0 {
            texts.push(format!("and {more} more"));
        }
        let widths: Vec<f64> = texts
            .iter()
            .map(|text| Self::indent(mark) + text_width(text, FONT_SIZE) + GAP)
            .collect();
        let (one_row, widest) =
            (widths.iter().sum::<f64>() - GAP, widths.iter().copied().fold(0.0, f64::max));
        if one_row <= room {
            let mut left = 0.0;
            let place = |(text, width)| {
                left += width;
                (text, left - width, 0)
            };
            return Self {
                mark,
                entries: texts.into_iter().zip(widths).map(place).collect(),
                width: one_row,
            };
        }
        let most = (((room + GAP) / widest) as usize).max(1);
        let columns = texts.len().div_ceil(texts.len().div_ceil(most));
        let place = |(index, text)| (text, (index % columns) as f64 * widest, index / columns);
        let entries = texts.into_iter().enumerate().map(place).collect();
        Self { mark, entries, width: columns as f64 * widest - GAP }
    }

    /// The height of all rows.
    pub fn height(&self) -> f64 {
        ROW_HEIGHT * self.entries.last().map_or(0.0, |entry| (entry.2 + 1) as f64)
    }

    /// Draws it below `top`, centred at `middle`.
    pub fn draw(&self, svg: &mut Svg, middle: f64, top: f64) {
        let indent = Self::indent(self.mark);
        for (index, (text, left, row)) in self.entries.iter().enumerate() {
            let (x, y) = (middle - self.width / 2.0 + left, top + ROW_HEIGHT * (*row as f64 + 0.5));
            match self.mark {
                _ if index == MAX_NAMES => {}
                Mark::Dot => svg.circle((x + 5.0, y), 5.0, colour(index)),
                Mark::Line => svg.polyline(
                    &[(x, y), (x + indent - 8.0, y)],
                    colour(index),
                    dash_pattern(index),
                ),
            }
            let font = Font { fill: if index == MAX_NAMES { GREY } else { INK }, ..FONT };
            svg.text((x + indent, y + 4.5), Anchor::Start, font, f64::INFINITY, text);
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
