//! One page with all that came out.

use std::fmt::Write;
use std::path::Path;

use super::svg::escape;
use super::{Picture, ReportError};
use crate::arrays::write_whole;

/// A page of HTML that needs nothing else: no scripts, no network, no other files.
///
/// ```
/// use lsoftmax_lab::figures::{Report, Table};
/// let table = Table {
///     caption: "Test error".into(),
///     head: vec!["m".into(), "error".into()],
///     rows: vec![vec!["2".into(), "0.32 %".into()]],
/// };
/// let report = Report {
///     title: "MNIST".into(),
///     paragraphs: vec!["Ten runs of each margin.".into()],
///     tables: vec![table],
///     figures: vec![],
///     command: "lsoftmax reproduce table2".into(),
/// };
/// let directory = tempfile::tempdir()?;
/// report.write(directory.path().join("report.html"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The heading.
    pub title: String,
    /// Text below the heading.
    pub paragraphs: Vec<String>,
    /// Tables, below the text.
    pub tables: Vec<Table>,
    /// Pictures, below the tables.
    pub figures: Vec<Figure>,
    /// What to type to get this page again.
    pub command: String,
}

/// Cells in rows, as text.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// What stands above.
    pub caption: String,
    /// The names of the columns.
    pub head: Vec<String>,
    /// The rows. The first column is aligned to the left, the others to the right.
    pub rows: Vec<Vec<String>>,
}

/// A picture and what it shows.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What stands below.
    pub caption: String,
    /// The picture.
    pub picture: Picture,
}

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

impl Report {
    /// The page.
    ///
    /// # Errors
    /// When a row has not one cell a column.
    pub fn html(&self) -> Result<String, ReportError> {
        let title = escape(&self.title);
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <title>{title}</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        );
        for paragraph in &self.paragraphs {
            page += &format!("<p>{}</p>\n", escape(paragraph));
        }
        for table in &self.tables {
            page += &table.html()?;
        }
        for Figure { caption, picture } in &self.figures {
            page += "<figure>\n";
            page += picture.as_str();
            page += &format!("<figcaption>{}</figcaption>\n</figure>\n", escape(caption));
        }
        if !self.command.is_empty() {
            page += &format!(
                "<h2>How to run this again</h2>\n<pre><code>{}</code></pre>\n",
                escape(&self.command)
            );
        }
        page += "</body>\n</html>\n";
        Ok(page)
    }

    /// Writes the page to a file, whole or not at all.
    ///
    /// # Errors
    /// When a row has not one cell a column, or the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), ReportError> {
        Ok(write_whole(path.as_ref(), self.html()?.as_bytes())?)
    }
}

impl Table {
    fn html(&self) -> Result<String, ReportError> {
        let mut html = format!(
            "<div class=\"wide\">\n<table>\n<caption>{}</caption>\n<thead><tr>{}</tr></thead>\n<tbody>\n",
            escape(&self.caption),
            cells("th", &self.head)
        );
        for (index, row) in self.rows.iter().enumerate() {
            if row.len() != self.head.len() {
                return Err(ReportError::Row {
                    table: self.caption.clone(),
                    row: index + 1,
                    found: row.len(),
                    expected: self.head.len(),
                });
            }
            html += &format!("<tr>{}</tr>\n", cells("td", row));
        }
        html += "</tbody>\n</table>\n</div>\n";
        Ok(html)
    }
}

fn cells(tag: &str, texts: &[String]) -> String {
    texts.iter().fold(String::new(), |mut cells, text| {
        let _ = write!(cells, "<{tag}>{}</{tag}>", escape(text));
        cells
    })
}
