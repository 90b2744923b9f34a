//! An HTML page with text, tables and pictures.

use std::path::Path;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::svg::allowed;
use super::{FigureError, Picture, write_file};

/// A self-contained page of HTML: no scripts, no network, no other files.
///
/// ```
/// use lsoftmax_lab::figures::{Page, Table};
/// let table = Table {
///     caption: "Test error".into(),
///     head: vec!["m".into(), "error".into()],
///     rows: vec![vec!["2".into(), "0.32 %".into()]],
/// };
/// let page = Page {
///     title: "MNIST".into(),
///     paragraphs: vec!["Ten runs of each margin.".into()],
///     tables: vec![table],
///     figures: vec![],
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
    /// Text below the heading.
    pub paragraphs: Vec<String>,
    /// Tables, below the text.
    pub tables: Vec<Table>,
    /// Pictures, below the tables.
    pub figures: Vec<Figure>,
    /// The command that creates this page; omitted if empty.
    pub command: String,
}

/// A table of text.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The text above the table.
    pub caption: String,
    /// The names of the columns.
    pub head: Vec<String>,
    /// The rows. The first column is aligned to the left, the others to the right.
    pub rows: Vec<Vec<String>>,
}

/// A picture with a caption.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The text below the picture.
    pub caption: String,
    /// The picture.
    pub picture: Picture,
}

/// Closed as in XML, which maud does not do, so that XML parsers can read the page too.
const META: &str = "<meta charset=\"utf-8\"/>\
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>";

const STYLE: &str = "\
:root { color-scheme: light dark; }
body { max-width: 74rem; margin: 3rem auto; padding: 0 1.5rem; font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.8rem; line-height: 1.2; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin-top: 2.5rem; }
p { max-width: 46rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 2rem 0; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .5rem; }
th, td { padding: .35rem 1.1rem .35rem 0; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; }
thead th { border-bottom-color: currentColor; }
figure { margin: 2.5rem 0; }
figure svg { display: block; max-width: 100%; height: auto; border-radius: 6px; }
figcaption { margin-top: .6rem; max-width: 46rem; }
pre { padding: .8rem 1rem; border-radius: 6px; background: #8882; overflow-x: auto; }";

impl Page {
    /// The page as HTML.
    ///
    /// # Errors
    /// When a table row does not have one cell per column.
    pub fn html(&self) -> Result<String, FigureError> {
        self.tables.iter().try_for_each(Table::check)?;
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    (PreEscaped(META))
                    title { (text(&self.title)) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    h1 { (text(&self.title)) }
                    @for paragraph in &self.paragraphs { p { (text(paragraph)) } }
                    @for table in &self.tables { (table.markup()) }
                    @for figure in &self.figures { (figure.markup()) }
                    @if !self.command.is_empty() {
                        h2 { "How to run this again" }
                        pre { code { (text(&self.command)) } }
                    }
                }
            }
        };
        Ok(page.into_string() + "\n")
    }

    /// Writes the page to a file atomically; missing directories are created.
    ///
    /// # Errors
    /// When a table row does not have one cell per column, or the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), FigureError> {
        write_file(path.as_ref(), self.html()?.as_bytes())
    }
}

impl Table {
    /// Checks that every row has one cell per column.
    fn check(&self) -> Result<(), FigureError> {
        let expected = self.head.len();
        match self.rows.iter().position(|row| row.len() != expected) {
            None => Ok(()),
            Some(index) => Err(FigureError::TableRow {
                table: self.caption.clone(),
                row: index + 1,
                found: self.rows[index].len(),
                expected,
            }),
        }
    }

    fn markup(&self) -> Markup {
        html! {
            div.wide {
                table {
                    caption { (text(&self.caption)) }
                    thead { tr { @for name in &self.head { th { (text(name)) } } } }
                    tbody {
                        @for row in &self.rows {
                            tr { @for cell in row { td { (text(cell)) } } }
                        }
                    }
                }
            }
        }
    }
}

impl Figure {
    fn markup(&self) -> Markup {
        html! {
            figure {
                (PreEscaped(self.picture.as_str()))
                figcaption { (text(&self.caption)) }
            }
        }
    }
}

/// Text without the characters that HTML does not allow; maud escapes the others.
fn text(text: &str) -> String {
    text.chars().map(allowed).collect()
}
