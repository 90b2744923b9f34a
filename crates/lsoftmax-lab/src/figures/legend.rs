//! Which colour is which.

use super::svg::{Anchor, Font, GREY, INK, Svg, shortened, width};

/// Ten colours that stay apart with every kind of colour blindness, chosen by simulating it.
const COLOURS: [&str; 10] = [
    "#0076e3", "#ce9703", "#990800", "#782ea6", "#2a4f57", "#f75f8c", "#14dced", "#767a20",
    "#9a98d2", "#acda3e",
];

/// More names than this are counted, not shown.
const SHOWN: usize = 40;
const SIZE: f64 = 13.0;
const FONT: Font = Font { size: SIZE, fill: INK, bold: false, rim: false };
const ROW: f64 = 22.0;
const GAP: f64 = 18.0;

/// The colour of the index-th class or series; after ten they come again.
pub(super) fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

/// Black or white, whichever is read better on a `#rrggbb`.
pub(super) fn ink_on(colour: &str) -> &'static str {
    let part = |at: usize| {
        colour.get(at..at + 2).and_then(|hex| u8::from_str_radix(hex, 16).ok()).unwrap_or(0)
    };
    let light =
        0.299 * f64::from(part(1)) + 0.587 * f64::from(part(3)) + 0.114 * f64::from(part(5));
    if light > 140.0 { INK } else { "#fff" }
}

/// Whole lines first; then, as the colours come again, dashed ones.
pub(super) fn dashes(index: usize) -> &'static str {
    ["", "6 3", "2 3"][index / COLOURS.len() % 3]
}

/// What stands before a name.
#[derive(Clone, Copy)]
pub(super) enum Mark {
    Dot,
    Line,
}

/// Marks and names: in one row if they fit, else in columns.
pub(super) struct Legend {
    mark: Mark,
    /// What is written, and where its mark begins: from the left, and in which row.
    entries: Vec<(String, f64, usize)>,
    width: f64,
}

impl Legend {
    /// Divides the names into rows of at most `room`.
    pub fn new<'a>(mark: Mark, names: impl ExactSizeIterator<Item = &'a str>, room: f64) -> Self {
        let more = names.len().saturating_sub(SHOWN);
        let mut texts: Vec<String> = names
            .take(SHOWN)
            .map(|name| shortened(name, SIZE, room - Self::indent(mark)))
            .collect();
        if more > 0 {
            texts.push(format!("and {more} more"));
        }
        let widths: Vec<f64> =
            texts.iter().map(|text| Self::indent(mark) + width(text, SIZE) + GAP).collect();
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

    pub fn height(&self) -> f64 {
        ROW * self.entries.last().map_or(0.0, |entry| (entry.2 + 1) as f64)
    }

    /// Draws it below `top`, around `middle`.
    pub fn draw(&self, svg: &mut Svg, middle: f64, top: f64) {
        let indent = Self::indent(self.mark);
        for (index, (text, left, row)) in self.entries.iter().enumerate() {
            let (x, y) = (middle - self.width / 2.0 + left, top + ROW * (*row as f64 + 0.5));
            match self.mark {
                _ if index == SHOWN => {}
                Mark::Dot => svg.circle((x + 5.0, y), 5.0, colour(index)),
                Mark::Line => {
                    svg.polyline(&[(x, y), (x + indent - 8.0, y)], colour(index), dashes(index))
                }
            }
            let font = Font { fill: if index == SHOWN { GREY } else { INK }, ..FONT };
            svg.text((x + indent, y + 4.5), Anchor::Start, font, f64::INFINITY, text);
        }
    }

    /// From the mark's left edge to the name.
    fn indent(mark: Mark) -> f64 {
        match mark {
            Mark::Dot => 16.0,
            Mark::Line => 32.0,
        }
    }
}
