//! The subset of SVG that the figures need.

use std::fmt::Write;

use base64::prelude::{BASE64_STANDARD, Engine};

use super::Picture;
use super::palette::Paint;

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
    pub paint: Paint,
    pub bold: bool,
    /// An outline in the colour of the paper, which keeps text readable on top of a drawing.
    pub outline: bool,
}

impl Font {
    /// The heading of a chart.
    pub const HEADING: Self = Self { size: 16.0, paint: Paint::Ink, bold: true, outline: false };
    /// The title of one of several panels.
    pub const PANEL: Self = Self { size: 15.0, ..Self::HEADING };
    /// Ticks, titles of axes and notes.
    pub const SMALL: Self = Self { size: 12.0, paint: Paint::Grey, bold: false, outline: false };
}

/// A picture being drawn.
pub(super) struct Svg {
    text: String,
    width: u32,
}

impl Svg {
    /// A white background; `label` describes the picture to screen readers.
    pub fn new(width: f64, height: f64, label: &str) -> Self {
        let pixels = width.ceil() as u32;
        let (width, height) = (coordinate(width), coordinate(height));
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"system-ui, sans-serif\" role=\"img\" \
             aria-label=\"{}\">\n<rect{} width=\"{width}\" height=\"{height}\"/>\n",
            escape(label),
            Paint::Paper.fill()
        );
        Self { text, width: pixels }
    }

    /// Starts a group with attributes for the script of a page.
    pub fn open_group(&mut self, data: &[(&str, &str)]) {
        self.text.push_str("<g");
        self.data(data);
        self.text.push_str(">\n");
    }

    /// Ends the group that was started last.
    pub fn close_group(&mut self) {
        self.text.push_str("</g>\n");
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), paint: Paint, width: f64) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(format_args!(
            "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"{} stroke-width=\"{width}\"/>\n",
            coordinate(x1),
            coordinate(y1),
            coordinate(x2),
            coordinate(y2),
            paint.stroke()
        ));
    }

    /// A line through points; `dashes` is a `stroke-dasharray`, or empty for a solid line.
    pub fn polyline(
        &mut self,
        points: &[(f64, f64)],
        paint: Paint,
        dashes: &str,
        data: &[(&str, &str)],
    ) {
        self.push(format_args!(
            "<polyline fill=\"none\"{} stroke-width=\"1.6\" stroke-linejoin=\"round\"",
            paint.stroke()
        ));
        if !dashes.is_empty() {
            self.push(format_args!(" stroke-dasharray=\"{dashes}\""));
        }
        self.data(data);
        self.points(points);
        self.text.push_str("/>\n");
    }

    /// A translucent area.
    pub fn polygon(&mut self, points: &[(f64, f64)], paint: Paint, opacity: f64) {
        self.push(format_args!("<polygon{} fill-opacity=\"{opacity}\"", paint.fill()));
        self.points(points);
        self.text.push_str("/>\n");
    }

    pub fn circle(&mut self, (x, y): (f64, f64), radius: f64, paint: Paint, data: &[(&str, &str)]) {
        let (x, y) = (coordinate(x), coordinate(y));
        self.push(format_args!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"{}", paint.fill()));
        self.data(data);
        self.text.push_str("/>\n");
    }

    /// A rectangle of a fixed colour, the same on every page.
    pub fn rectangle(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str) {
        let [x, y, width, height] = [x, y, width, height].map(coordinate);
        self.push(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{colour}\" shape-rendering=\"crispEdges\"/>\n"
        ));
    }

    /// Rectangles of a fixed colour in one element: left edge, top edge and width of each, and their
    /// common height.
    pub fn rectangles(
        &mut self,
        places: impl Iterator<Item = (f64, f64, f64)>,
        height: f64,
        colour: &str,
    ) {
        self.push(format_args!("<path fill=\"{colour}\" shape-rendering=\"crispEdges\" d=\""));
        let height = coordinate(height);
        for (x, y, width) in places {
            let [x, y, width] = [x, y, width].map(coordinate);
            self.push(format_args!("M{x} {y}h{width}v{height}h-{width}z"));
        }
        self.text.push_str("\"/>\n");
    }

    /// An image in PNG format, which browsers enlarge without smoothing; `label` describes it to screen readers.
    pub fn image(
        &mut self,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        png: &[u8],
        label: &str,
    ) {
        let [x, y, width, height] = [x, y, width, height].map(coordinate);
        self.push(format_args!(
            "<image x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" image-rendering=\"pixelated\" \
             aria-label=\"{}\" href=\"data:image/png;base64,{}\"/>\n",
            escape(label),
            BASE64_STANDARD.encode(png)
        ));
    }

    /// An invisible rectangle that receives clicks.
    pub fn click_area(&mut self, (x, y): (f64, f64), (width, height): (f64, f64)) {
        let [x, y, width, height] = [x, y, width, height].map(coordinate);
        self.push(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill-opacity=\"0\"/>\n"
        ));
    }

    /// Many small circles of one colour, translucent so that overlaps are darker.
    pub fn dots(
        &mut self,
        points: impl Iterator<Item = (f64, f64)>,
        radius: f64,
        paint: Paint,
        data: &[(&str, &str)],
    ) {
        self.push(format_args!("<g{} fill-opacity=\".6\"", paint.fill()));
        self.data(data);
        self.text.push_str(">\n");
        for (x, y) in points {
            let (x, y) = (coordinate(x), coordinate(y));
            self.push(format_args!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"/>\n"));
        }
        self.text.push_str("</g>\n");
    }

    /// A text, truncated to the width `room`.
    pub fn text(&mut self, at: (f64, f64), anchor: Anchor, font: Font, room: f64, text: &str) {
        self.text_with(at, anchor, font, room, text, "");
    }

    /// A text centred at a point that reads upwards, truncated to the length `room`.
    pub fn vertical_text(&mut self, at: (f64, f64), font: Font, room: f64, text: &str) {
        self.rotated_text(at, Anchor::Middle, font, room, text);
    }

    /// A text that reads upwards, truncated to the length `room`.
    pub fn rotated_text(
        &mut self,
        (x, y): (f64, f64),
        anchor: Anchor,
        font: Font,
        room: f64,
        text: &str,
    ) {
        let rotation = format!(" transform=\"rotate(-90 {} {})\"", coordinate(x), coordinate(y));
        self.text_with((x, y), anchor, font, room, text, &rotation);
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
        let paint = if font.outline { font.paint.fill_with_halo() } else { font.paint.fill() };
        let (x, y, size) = (coordinate(x), coordinate(y), font.size);
        let text = with_subscripts(&escape(&truncated(text, size, room)));
        self.push(format_args!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" font-size=\"{size}\"{paint}{weight}{attributes}>{text}</text>\n"
        ));
    }

    pub fn finish(mut self) -> Picture {
        self.text.push_str("</svg>\n");
        Picture { svg: self.text, width: self.width }
    }

    /// Attributes `data-NAME="VALUE"`.
    fn data(&mut self, data: &[(&str, &str)]) {
        for (name, value) in data {
            self.push(format_args!(" data-{name}=\"{}\"", escape(value)));
        }
    }

    fn points(&mut self, points: &[(f64, f64)]) {
        self.text.push_str(" points=\"");
        for (index, (x, y)) in points.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            self.push(format_args!("{space}{},{}", coordinate(*x), coordinate(*y)));
        }
        self.text.push('"');
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.text.write_fmt(text).expect("writing to a string does not fail");
    }
}

/// A coordinate with at most one decimal.
pub(super) fn coordinate(value: f64) -> String {
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

/// Escaped text with its subscript digits, which few fonts have, as smaller and lower digits.
fn with_subscripts(escaped: &str) -> String {
    let digit = |character: char| ('₀'..='₉').contains(&character);
    if !escaped.contains(digit) {
        return escaped.into();
    }
    let mut text = String::new();
    let mut is_low = false;
    for part in escaped.split_inclusive(digit) {
        let (plain, subscript) = match part.char_indices().next_back() {
            Some((at, last)) if digit(last) => (&part[..at], u32::from(last) - u32::from('₀')),
            _ => (part, u32::MAX),
        };
        if is_low && !plain.is_empty() {
            text.push_str(&format!("<tspan dy=\"-.175em\">{plain}</tspan>"));
            is_low = false;
        } else {
            text.push_str(plain);
        }
        if subscript <= 9 {
            let down = if is_low { "" } else { " dy=\".25em\"" };
            text.push_str(&format!("<tspan{down} font-size=\"70%\">{subscript}</tspan>"));
            is_low = true;
        }
    }
    text
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
