//! Colours: on white, and their counterparts on a dark page.

use std::fmt::Write;

/// What an element is painted with.
///
/// An element has the colour for white paper as an attribute and the name of its paint as a class, by
/// which the stylesheet of a page replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paint {
    /// Text and directions.
    Ink,
    /// Axes and tick labels.
    Grey,
    /// Grid lines.
    Faint,
    /// The background.
    Paper,
    /// Text on a light colour that is the same on every page.
    Dark,
    /// Text on a dark colour that is the same on every page.
    Light,
    /// A class or series; after ten, colours repeat.
    Series(usize),
    /// Text on the colour of a class or series.
    OnSeries(usize),
}

/// On white and on dark.
const INK: [&str; 2] = ["#24292f", "#e6edf3"];
const GREY: [&str; 2] = ["#6e7781", "#9aa5b1"];
const FAINT: [&str; 2] = ["#d8dee4", "#333c47"];
const PAPER: [&str; 2] = ["#fff", "#10151b"];

/// Ten colours that remain distinguishable with any form of colour blindness, found by simulating it:
/// on white and on dark.
const SERIES: [[&str; 2]; 10] = [
    ["#0076e3", "#197dff"],
    ["#ce9703", "#f2c84d"],
    ["#990800", "#fc886c"],
    ["#782ea6", "#b154a4"],
    ["#2a4f57", "#bcffd0"],
    ["#f75f8c", "#d93468"],
    ["#14dced", "#34faff"],
    ["#767a20", "#817800"],
    ["#9a98d2", "#b2a5fe"],
    ["#acda3e", "#f5ff00"],
];

/// The number of different colours of series.
pub(super) const COLOURS: usize = SERIES.len();

impl Paint {
    /// Every paint.
    fn all() -> impl Iterator<Item = Self> {
        let series = (0..COLOURS).flat_map(|index| [Self::Series(index), Self::OnSeries(index)]);
        [Self::Ink, Self::Grey, Self::Faint, Self::Paper, Self::Dark, Self::Light]
            .into_iter()
            .chain(series)
    }

    /// The colours on white and on dark.
    fn colours(self) -> [&'static str; 2] {
        match self {
            Self::Ink => INK,
            Self::Grey => GREY,
            Self::Faint => FAINT,
            Self::Paper => PAPER,
            Self::Dark => [INK[0]; 2],
            Self::Light => [PAPER[0]; 2],
            Self::Series(index) => SERIES[index % COLOURS],
            Self::OnSeries(index) => SERIES[index % COLOURS].map(text_colour_on),
        }
    }

    fn name(self) -> String {
        match self {
            Self::Ink => "ink".into(),
            Self::Grey => "grey".into(),
            Self::Faint => "faint".into(),
            Self::Paper => "paper".into(),
            Self::Dark => "dark".into(),
            Self::Light => "light".into(),
            Self::Series(index) => format!("c{}", index % COLOURS),
            Self::OnSeries(index) => format!("on{}", index % COLOURS),
        }
    }

    /// The attributes of an element that is filled with this.
    pub fn fill(self) -> String {
        format!(" class=\"f-{}\" fill=\"{}\"", self.name(), self.colours()[0])
    }

    /// The attributes of an element whose outline has this colour.
    pub fn stroke(self) -> String {
        format!(" class=\"s-{}\" stroke=\"{}\"", self.name(), self.colours()[0])
    }

    /// The attributes of a filled text with an outline in the colour of the paper.
    pub fn fill_with_halo(self) -> String {
        let (name, fill) = (self.name(), self.colours()[0]);
        format!(
            " class=\"f-{name} s-paper\" fill=\"{fill}\" stroke=\"{}\" stroke-width=\"3\" \
             stroke-linejoin=\"round\" paint-order=\"stroke\"",
            PAPER[0]
        )
    }
}

/// The stylesheet's rules for all paints: light by default, dark where the reader asks for it and on
/// screens only.
pub(super) fn style() -> String {
    let variables = |theme: usize| {
        Paint::all().fold(String::new(), |mut text, paint| {
            write!(text, "--{}:{};", paint.name(), paint.colours()[theme])
                .expect("writing to a string does not fail");
            text
        })
    };
    let (light, dark) = (variables(0), variables(1));
    let mut style = format!(
        ":root {{ color-scheme: light; {light} }}\n\
         @media screen and (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{ color-scheme: dark; {dark} }} }}\n\
         @media screen {{ :root[data-theme=dark] {{ color-scheme: dark; {dark} }} }}\n"
    );
    for name in Paint::all().map(Paint::name) {
        writeln!(
            style,
            ".f-{name} {{ fill: var(--{name}) }} .s-{name} {{ stroke: var(--{name}) }}"
        )
        .expect("writing to a string does not fail");
    }
    style
}

/// Dark or white text, whichever is more readable on a `#rrggbb`.
fn text_colour_on(colour: &str) -> &'static str {
    let part = |at: usize| {
        colour.get(at..at + 2).and_then(|hex| u8::from_str_radix(hex, 16).ok()).unwrap_or(0)
    };
    let light =
        0.299 * f64::from(part(1)) + 0.587 * f64::from(part(3)) + 0.114 * f64::from(part(5));
    if light > 140.0 { INK[0] } else { PAPER[0] }
}

/// The colour of a position from 0 to 1 on a scale from dark blue to yellow: viridis, which is
/// perceptually uniform and the same for every form of colour blindness.
pub(super) fn viridis(position: f64) -> String {
    const STOPS: [[f64; 3]; 11] = [
        [68.0, 1.0, 84.0],
        [72.0, 36.0, 117.0],
        [65.0, 68.0, 135.0],
        [53.0, 95.0, 141.0],
        [42.0, 120.0, 142.0],
        [33.0, 145.0, 140.0],
        [34.0, 168.0, 132.0],
        [68.0, 191.0, 112.0],
        [122.0, 209.0, 81.0],
        [189.0, 223.0, 38.0],
        [253.0, 231.0, 37.0],
    ];
    let last = STOPS.len() - 1;
    let at = position.clamp(0.0, 1.0) * last as f64;
    let stop = (at as usize).min(last - 1);
    let part = at - stop as f64;
    let [r, g, b] = [0, 1, 2].map(|channel| {
        (STOPS[stop][channel] * (1.0 - part) + STOPS[stop + 1][channel] * part).round() as u8
    });
    format!("#{r:02x}{g:02x}{b:02x}")
}
