//! Which colour is which.

use super::svg::{Anchor, Font, GREY, INK, Svg, shortened, width};

/// Ten colours that stay apart with every kind of colour blindness, chosen by simulating it.
const COLOURS: [&str; 10] = [
    "#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70",
    "#717581", "#92dadb",
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

/// Marks and names in as many centred rows as they need.
pub(super) struct Legend {
    mark: Mark,
    /// The entries of each row: index, what is written, width.
    rows: Vec<Vec<(usize, String, f64)>>,
}

impl Legend {
    /// Divides the names into rows of at most `room`.
    pub fn new<'a>(mark: Mark, names: impl ExactSizeIterator<Item = &'a str>, room: f64) -> Self {
        let more = names.len().saturating_sub(SHOWN);
        let mut entries: Vec<(usize, String)> = names
            .take(SHOWN)
            .map(|name| shortened(name, SIZE, room - Self::indent(mark)))
            .enumerate()
            .collect();
        if more > 0 {
            entries.push((SHOWN, format!("and {more} more")));
        }
        let mut rows = vec![Vec::new()];
        let mut used = 0.0;
        for (index, text) in entries {
            let needs = Self::indent(mark) + width(&text, SIZE);
            if used > 0.0 && used + GAP + needs > room {
                rows.push(Vec::new());
                used = 0.0;
            }
            used += if used > 0.0 { GAP } else { 0.0 } + needs;
            rows.last_mut().expect("there is a first row").push((index, text, needs));
        }
        Self { mark, rows }
    }

    pub fn height(&self) -> f64 {
        ROW * self.rows.len() as f64
    }

    /// Draws it below `top`, around `middle`.
    pub fn draw(&self, svg: &mut Svg, middle: f64, top: f64) {
        for (row, entries) in self.rows.iter().enumerate() {
            let y = top + ROW * (row as f64 + 0.5);
            let whole = entries.iter().map(|entry| entry.2).sum::<f64>()
                + GAP * (entries.len() as f64 - 1.0);
            let mut x = middle - whole / 2.0;
            for (index, text, needs) in entries {
                let indent = Self::indent(self.mark);
                match self.mark {
                    _ if *index == SHOWN => {}
                    Mark::Dot => svg.circle((x + 5.0, y), 5.0, colour(*index)),
                    Mark::Line => svg.polyline(
                        &[(x, y), (x + indent - 8.0, y)],
                        colour(*index),
                        dashes(*index),
                    ),
                }
                let font = Font { fill: if *index == SHOWN { GREY } else { INK }, ..FONT };
                svg.text((x + indent, y + 4.5), Anchor::Start, font, f64::INFINITY, text);
                x += needs + GAP;
            }
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
