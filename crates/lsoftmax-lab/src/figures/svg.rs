//! The little of SVG that is needed here.

use std::fmt::Write;
use std::path::Path;

use crate::arrays::{WriteError, write_whole};

/// Text, axes and their labels.
pub(super) const INK: &str = "#24292f";
/// What should stand back: axes, tick labels.
pub(super) const GREY: &str = "#6e7781";
/// What should hardly be seen: grid lines.
pub(super) const FAINT: &str = "#d8dee4";

/// A finished picture: SVG on a white ground of its own, without scripts, styles, ids or links.
///
/// Only this module makes one, so it can stand in a page as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture(String);

impl Picture {
    /// The SVG.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Writes it to a file, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), WriteError> {
        write_whole(path.as_ref(), self.0.as_bytes())
    }
}

/// Where a text stands from its point.
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
    /// A white rim, to be read on top of a drawing.
    pub rim: bool,
}

/// A picture being drawn.
pub(super) struct Svg(String);

impl Svg {
    /// A white sheet; `label` is what it shows, for those who cannot see it.
    pub fn new(width: f64, height: f64, label: &str) -> Self {
        let (width, height) = (number(width), number(height));
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"system-ui, sans-serif\" role=\"img\" \
             aria-label=\"{}\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n",
            escape(label)
        ))
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str, width: f64) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.put(format_args!(
            "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{stroke}\" stroke-width=\"{width}\"/>\n",
            number(x1),
            number(y1),
            number(x2),
            number(y2)
        ));
    }

    /// A line through points; `dashes` as SVG's `stroke-dasharray`, or nothing.
    pub fn polyline(&mut self, points: &[(f64, f64)], stroke: &str, dashes: &str) {
        self.put(format_args!("<polyline fill=\"none\" stroke=\"{stroke}\" stroke-width=\"1.6\" stroke-linejoin=\"round\""));
        if !dashes.is_empty() {
            self.put(format_args!(" stroke-dasharray=\"{dashes}\""));
        }
        self.0.push_str(" points=\"");
        for (index, (x, y)) in points.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            self.put(format_args!("{space}{},{}", number(*x), number(*y)));
        }
        self.0.push_str("\"/>\n");
    }

    pub fn circle(&mut self, (x, y): (f64, f64), radius: f64, fill: &str) {
        let (x, y) = (number(x), number(y));
        self.put(format_args!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" fill=\"{fill}\"/>\n"));
    }

    /// Many small circles of one colour that darken where they lie on each other.
    pub fn dots(&mut self, points: impl Iterator<Item = (f64, f64)>, radius: f64, fill: &str) {
        self.put(format_args!("<g fill=\"{fill}\" fill-opacity=\".6\">\n"));
        for (x, y) in points {
            let (x, y) = (number(x), number(y));
            self.put(format_args!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"/>\n"));
        }
        self.0.push_str("</g>\n");
    }

    /// A text, cut short if it would be wider than `room`.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, font: Font, room: f64, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let weight = if font.bold { " font-weight=\"600\"" } else { "" };
        let rim = if font.rim {
            " stroke=\"#fff\" stroke-width=\"3\" stroke-linejoin=\"round\" paint-order=\"stroke\""
        } else {
            ""
        };
        let (x, y, size, fill) = (number(x), number(y), font.size, font.fill);
        let text = escape(&shortened(text, size, room));
        self.put(format_args!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" font-size=\"{size}\" fill=\"{fill}\"{weight}{rim}>{text}</text>\n"
        ));
    }

    pub fn finish(mut self) -> Picture {
        self.0.push_str("</svg>\n");
        Picture(self.0)
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("writing to a string does not fail");
    }
}

/// A coordinate with one decimal at most.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".into() } else { text.into() }
}

/// The width of a text, rather too large: fonts differ.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|character| if character.is_ascii() { 0.6 } else { 1.0 }).sum::<f64>() * size
}

/// The text, or its beginning and an ellipsis.
pub(super) fn shortened(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.into();
    }
    let mut used = size;
    let fits = |character: &char| {
        used += width(character.encode_utf8(&mut [0; 4]), size);
        used <= room
    };
    let start: String = text.chars().take_while(fits).collect();
    format!("{}…", start.trim_end())
}

/// Text as it is written in XML and HTML. Characters that neither allows become `�`.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' => escaped.push(character),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}
