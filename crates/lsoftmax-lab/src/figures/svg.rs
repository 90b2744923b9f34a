//! The subset of SVG that the figures need.

use std::fmt::Write;
use std::path::Path;

use super::{FigureError, write_file};

/// Text and directions.
pub(super) const INK: &str = "#24292f";
/// Axes and tick labels.
pub(super) const GREY: &str = "#6e7781";
/// Grid lines.
pub(super) const FAINT: &str = "#d8dee4";

/// A finished picture: SVG on a white background, without scripts, styles, ids or links.
///
/// Only this module creates one, so it can be inserted into a page unescaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture(String);

impl Picture {
    /// The SVG.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Writes it to a file atomically; missing directories are created.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), FigureError> {
        write_file(path.as_ref(), self.0.as_bytes())
    }
}

/// Which point of a text is at its coordinates.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text looks.
#[derive(Clone, Copy)]
pub(super) struct Font {
    pub size: f64,
    pub fill: &'static str,
    pub bold: bool,
    /// A white outline, which keeps text readable on top of a drawing.
    pub outline: bool,
}

/// A picture being drawn.
pub(super) struct Svg(String);

impl Svg {
    /// A white background; `label` describes the picture to screen readers.
    pub fn new(width: f64, height: f64, label: &str) -> Self {
        let (width, height) = (coordinate(width), coordinate(height));
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"system-ui, sans-serif\" role=\"img\" \
             aria-label=\"{}\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n",
            escape(label)
        ))
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str, width: f64) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(format_args!(
            "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{stroke}\" stroke-width=\"{width}\"/>\n",
            coordinate(x1),
            coordinate(y1),
            coordinate(x2),
            coordinate(y2)
        ));
    }

    /// A line through points; `dashes` is a `stroke-dasharray`, or empty for a solid line.
    pub fn polyline(&mut self, points: &[(f64, f64)], stroke: &str, dashes: &str) {
        self.push(format_args!("<polyline fill=\"none\" stroke=\"{stroke}\" stroke-width=\"1.6\" stroke-linejoin=\"round\""));
        if !dashes.is_empty() {
            self.push(format_args!(" stroke-dasharray=\"{dashes}\""));
        }
        self.0.push_str(" points=\"");
        for (index, (x, y)) in points.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            self.push(format_args!("{space}{},{}", coordinate(*x), coordinate(*y)));
        }
        self.0.push_str("\"/>\n");
    }

    pub fn circle(&mut self, (x, y): (f64, f64), radius: f64, fill: &str) {
        let (x, y) = (coordinate(x), coordinate(y));
        self.push(format_args!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" fill=\"{fill}\"/>\n"));
    }

    /// Many small circles of one colour, translucent so that overlaps are darker.
    pub fn dots(&mut self, points: impl Iterator<Item = (f64, f64)>, radius: f64, fill: &str) {
        self.push(format_args!("<g fill=\"{fill}\" fill-opacity=\".6\">\n"));
        for (x, y) in points {
            let (x, y) = (coordinate(x), coordinate(y));
            self.push(format_args!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"/>\n"));
        }
        self.0.push_str("</g>\n");
    }

    /// A text, truncated to the width `room`.
    pub fn text(&mut self, at: (f64, f64), anchor: Anchor, font: Font, room: f64, text: &str) {
        self.text_with(at, anchor, font, room, text, "");
    }

    /// A text centred at a point that reads upwards, truncated to the length `room`.
    pub fn vertical_text(&mut self, (x, y): (f64, f64), font: Font, room: f64, text: &str) {
        let rotation = format!(" transform=\"rotate(-90 {} {})\"", coordinate(x), coordinate(y));
        self.text_with((x, y), Anchor::Middle, font, room, text, &rotation);
    }

    fn text_with(
        &mut self,
        (x, y): (f64, f64),
        anchor: Anchor,
        font: Font,
        room: f64,
        text: &str,
        attributes: &str,
    ) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let weight = if font.bold { " font-weight=\"600\"" } else { "" };
        let outline = if font.outline {
            " stroke=\"#fff\" stroke-width=\"3\" stroke-linejoin=\"round\" paint-order=\"stroke\""
        } else {
            ""
        };
        let (x, y, size, fill) = (coordinate(x), coordinate(y), font.size, font.fill);
        let text = escape(&truncated(text, size, room));
        self.push(format_args!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" font-size=\"{size}\" fill=\"{fill}\"{weight}{outline}{attributes}>{text}</text>\n"
        ));
    }

    pub fn finish(mut self) -> Picture {
        self.0.push_str("</svg>\n");
        Picture(self.0)
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("writing to a string does not fail");
    }
}

/// A coordinate with at most one decimal.
fn coordinate(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".into() } else { text.into() }
}

/// An upper estimate of the width of a text: fonts differ.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    text.chars().map(|character| if character.is_ascii() { 0.6 } else { 1.0 }).sum::<f64>() * size
}

/// The text, or as much of it as fits, and an ellipsis.
pub(super) fn truncated(text: &str, size: f64, room: f64) -> String {
    if text_width(text, size) <= room {
        return text.into();
    }
    let mut used = size;
    let fits = |character: &char| {
        used += text_width(character.encode_utf8(&mut [0; 4]), size);
        used <= room
    };
    let start: String = text.chars().take_while(fits).collect();
    format!("{}…", start.trim_end())
}

/// Text escaped for XML. Characters that XML does not allow become `�`.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars().map(allowed) {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// The character, or `�` for one that XML and HTML do not allow.
pub(super) fn allowed(character: char) -> char {
    match character {
        '\t' | '\n' => character,
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        control if control.is_control() => '\u{fffd}',
        other => other,
    }
}
