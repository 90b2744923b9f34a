//! An HTML page with text, tables and pictures.

use std::collections::HashSet;
use std::path::Path;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::svg::allowed;
use super::{FigureError, Picture, palette, write_file};

/// A self-contained page of HTML: no network, no other files.
///
/// It is light or dark as the reader's system is, or as its button says. Its script hides and shows
/// series by their legends and shows the values under the pointer; without it, everything is visible.
///
/// ```
/// use lsoftmax_lab::figures::{Cell, Page, Section, Table};
/// let table = Table {
///     caption: "Test error".into(),
///     head: vec!["m".into(), "error".into()],
///     rows: vec![vec!["2".into(), Cell::linked("0.32 %", "runs/mnist-m2")]],
///     ..Table::default()
/// };
/// let page = Page {
///     title: "MNIST".into(),
///     introduction: vec!["Ten runs of each margin.".into()],
///     sections: vec![Section::new("errors", "Errors").paragraph("Mean over runs.").table(table)],
///     command: "lsoftmax".into(),
/// };
/// let directory = tempfile::tempdir()?;
/// page.write(directory.path().join("report.html"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The heading.
    pub title: String,
    /// Paragraphs below the heading.
    pub introduction: Vec<String>,
    /// The sections. If there are several, a line at the top links to them.
    pub sections: Vec<Section>,
    /// The command that creates this page; omitted if empty.
    pub command: String,
}

/// A part of a page.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// The anchor, by which it can be linked to as `#id`: letters, digits, - and _.
    pub id: String,
    /// The heading; omitted if empty.
    pub heading: String,
    /// What it consists of, from top to bottom.
    pub content: Vec<Content>,
}

/// A block of a section.
#[derive(Clone, Debug)]
pub enum Content {
    /// Text.
    Paragraph(String),
    /// A table.
    Table(Table),
    /// A picture.
    Figure(Figure),
}

/// A table of text.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Its anchor; none if empty.
    pub id: String,
    /// The text above the table.
    pub caption: String,
    /// The names of the columns.
    pub head: Vec<String>,
    /// The rows. The first column is aligned to the left, the others to the right.
    pub rows: Vec<Vec<Cell>>,
    /// The text below the table; omitted if empty.
    pub note: String,
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// What it says.
    pub text: String,
    /// Where it leads: an anchor of the page such as `#figure-6`, or a path relative to it.
    pub link: Option<String>,
}

/// A picture with a caption.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its anchor; none if empty.
    pub id: String,
    /// The text below the picture.
    pub caption: String,
    /// The picture.
    pub picture: Picture,
    /// Files of the same picture to link to, such as `figure-6.svg` and `figure-6.png`: paths relative
    /// to the page.
    pub files: Vec<String>,
}

impl Section {
    /// A section without content.
    pub fn new(id: impl Into<String>, heading: impl Into<String>) -> Self {
        Self { id: id.into(), heading: heading.into(), content: Vec::new() }
    }

    /// Appends a paragraph.
    pub fn paragraph(mut self, text: impl Into<String>) -> Self {
        self.content.push(Content::Paragraph(text.into()));
        self
    }

    /// Appends a table.
    pub fn table(mut self, table: Table) -> Self {
        self.content.push(Content::Table(table));
        self
    }

    /// Appends a picture.
    pub fn figure(mut self, figure: Figure) -> Self {
        self.content.push(Content::Figure(figure));
        self
    }
}

impl Cell {
    /// A cell that links to an anchor of the page or to a relative path.
    pub fn linked(text: impl Into<String>, link: impl Into<String>) -> Self {
        Self { text: text.into(), link: Some(link.into()) }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self { text: text.into(), link: None }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, link: None }
    }
}

impl Figure {
    /// A picture without an anchor or files.
    pub fn new(caption: impl Into<String>, picture: Picture) -> Self {
        Self { id: String::new(), caption: caption.into(), picture, files: Vec::new() }
    }
}

/// Closed as in XML, which maud does not do, so that XML parsers can read the page too.
const META: &str = "<meta charset=\"utf-8\"/>\
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>";
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

impl Page {
    /// The page as HTML.
    ///
    /// # Errors
    /// When a table row does not have one cell per column, an anchor is invalid or used twice, or a link
    /// is neither an anchor of the page nor a relative path.
    pub fn html(&self) -> Result<String, FigureError> {
        self.check()?;
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    (PreEscaped(META))
                    title { (text(&self.title)) }
                    style { (PreEscaped(palette::style())) (PreEscaped(STYLE)) }
                }
                body {
                    nav aria-label="Sections" {
                        @if self.sections.len() > 1 {
                            @for section in self.sections.iter().filter(|it| !it.heading.is_empty()) {
                                a href={ "#" (section.id) } { (text(&section.heading)) }
                            }
                        }
                    }
                    main {
                        h1 { (text(&self.title)) }
                        @for paragraph in &self.introduction { p { (text(paragraph)) } }
                        @for section in &self.sections { (section.markup()) }
                        @if !self.command.is_empty() {
                            h2 { "How to run this again" }
                            pre { code { (text(&self.command)) } }
                        }
                    }
                    // CDATA for XML parsers, in a comment for JavaScript.
                    script { "//" (PreEscaped("<![CDATA[\n")) (PreEscaped(SCRIPT)) "//" (PreEscaped("]]>")) }
                }
            }
        };
        Ok(page.into_string() + "\n")
    }

    /// Writes the page to a file atomically; missing directories are created.
    ///
    /// # Errors
    /// When the page is [invalid](Self::html), or the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), FigureError> {
        write_file(path.as_ref(), self.html()?.as_bytes())
    }

    /// Checks tables, anchors and links.
    fn check(&self) -> Result<(), FigureError> {
        let mut anchors = HashSet::new();
        for section in &self.sections {
            let content = section.content.iter().filter_map(|content| match content {
                Content::Paragraph(_) => None,
                Content::Table(table) => Some(table.id.as_str()),
                Content::Figure(figure) => Some(figure.id.as_str()),
            });
            let ids = content.filter(|id| !id.is_empty()).chain([section.id.as_str()]);
            for id in ids {
                let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
                if id.is_empty() || !id.chars().all(valid) || !anchors.insert(id) {
                    return Err(FigureError::Anchor(id.into()));
                }
            }
        }
        for content in self.sections.iter().flat_map(|section| &section.content) {
            match content {
                Content::Paragraph(_) => {}
                Content::Table(table) => table.check(&anchors)?,
                Content::Figure(figure) => {
                    figure.files.iter().try_for_each(|file| check_path(file))?;
                }
            }
        }
        Ok(())
    }
}

impl Section {
    fn markup(&self) -> Markup {
        html! {
            section id=(self.id) {
                @if !self.heading.is_empty() { h2 { (text(&self.heading)) } }
                @for content in &self.content {
                    @match content {
                        Content::Paragraph(paragraph) => p { (text(paragraph)) },
                        Content::Table(table) => (table.markup()),
                        Content::Figure(figure) => (figure.markup()),
                    }
                }
            }
        }
    }
}

impl Table {
    /// Checks that every row has one cell per column, and that links lead somewhere.
    fn check(&self, anchors: &HashSet<&str>) -> Result<(), FigureError> {
        let expected = self.head.len();
        if let Some(index) = self.rows.iter().position(|row| row.len() != expected) {
            return Err(FigureError::TableRow {
                table: self.caption.clone(),
                row: index + 1,
                found: self.rows[index].len(),
                expected,
            });
        }
        for link in self.rows.iter().flatten().filter_map(|cell| cell.link.as_deref()) {
            match link.strip_prefix('#') {
                Some(anchor) if anchors.contains(anchor) => {}
                Some(_) => return Err(FigureError::Link(link.into())),
                None => check_path(link)?,
            }
        }
        Ok(())
    }

    fn markup(&self) -> Markup {
        html! {
            div.wide id=[anchor(&self.id)] {
                table {
                    caption { (text(&self.caption)) }
                    thead { tr { @for name in &self.head { th scope="col" { (text(name)) } } } }
                    tbody {
                        @for row in &self.rows {
                            tr { @for cell in row { td { (cell.markup()) } } }
                        }
                    }
                }
                @if !self.note.is_empty() { p.note { (text(&self.note)) } }
            }
        }
    }
}

impl Cell {
    fn markup(&self) -> Markup {
        html! {
            @match self.link.as_deref() {
                None => (text(&self.text)),
                Some(link) => a href=(address(link)) { (text(&self.text)) },
            }
        }
    }
}

impl Figure {
    fn markup(&self) -> Markup {
        html! {
            figure id=[anchor(&self.id)] {
                div.wide style={ "--width:" (self.picture.width) "px" } {
                    (PreEscaped(self.picture.as_str()))
                }
                figcaption {
                    (text(&self.caption))
                    @for file in &self.files {
                        " " a.file href=(address(file)) { (text(&kind(file))) }
                    }
                }
            }
        }
    }
}

/// The extension of a file in capitals, or its name.
fn kind(file: &str) -> String {
    let extension = Path::new(file).extension().and_then(|extension| extension.to_str());
    extension.map_or_else(|| file.into(), str::to_uppercase)
}

/// The value of an `id`, unless it is empty.
fn anchor(id: &str) -> Option<&str> {
    (!id.is_empty()).then_some(id)
}

/// Checks that a link is a relative path, not an address.
fn check_path(link: &str) -> Result<(), FigureError> {
    let first = link.split('/').next().unwrap_or("");
    if first.is_empty() || first.contains(':') || link.contains('\\') || link.starts_with('#') {
        return Err(FigureError::Link(link.into()));
    }
    Ok(())
}

/// A link as it is written into an address: characters of a path that mean something else there are
/// encoded.
fn address(link: &str) -> String {
    if link.starts_with('#') {
        return link.into();
    }
    let mut address = String::new();
    for byte in link.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                address.push(char::from(byte));
            }
            other => address.push_str(&format!("%{other:02X}")),
        }
    }
    address
}

/// Text without the characters that HTML does not allow; maud escapes the others.
fn text(text: &str) -> String {
    text.chars().map(allowed).collect()
}
