//! Tables in text files: a header, then one row per line, separated by tabs or commas.

use std::path::{Path, PathBuf};

use crate::FacesError;

/// A table whose columns are found by name.
#[derive(Debug)]
pub(crate) struct Table {
    path: PathBuf,
    header: Vec<String>,
    /// The line number and the fields of every row.
    rows: Vec<(usize, Vec<String>)>,
}

impl Table {
    /// Reads a file. The separator is the tab if the header has one, else the comma. Empty lines are skipped.
    pub fn read(path: &Path) -> Result<Self, FacesError> {
        let text = std::fs::read_to_string(path).map_err(FacesError::read(path))?;
        Self::parse(path, &text)
    }

    pub fn parse(path: &Path, text: &str) -> Result<Self, FacesError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let (_, header) = lines.next().ok_or_else(|| {
            FacesError::file(path, "the file is empty; its first line must name the columns")
        })?;
        let separator = if header.contains('\t') { '\t' } else { ',' };
        let fields = |line: &str| -> Vec<String> {
            line.split(separator).map(|field| field.trim().to_owned()).collect()
        };
        let header = fields(header);
        let mut rows = Vec::new();
        for (index, line) in lines {
            let row = fields(line);
            if row.len() != header.len() {
                let problem = format!(
                    "it has {} fields, but the first line names {} columns; correct the line",
                    row.len(),
                    header.len()
                );
                return Err(FacesError::line(path, index + 1, problem));
            }
            rows.push((index + 1, row));
        }
        Ok(Self { path: path.to_owned(), header, rows })
    }

    /// The index of a column.
    pub fn column(&self, name: &str) -> Result<usize, FacesError> {
        let found = self.header.iter().position(|column| column.eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            let problem =
                format!("there is no column `{name}`, only {}; name it so", self.header.join(", "));
            FacesError::line(&self.path, 1, problem)
        })
    }

    /// The number of columns.
    pub fn width(&self) -> usize {
        self.header.len()
    }

    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|(line, fields)| Row { path: &self.path, line: *line, fields })
    }
}

/// A row of a [`Table`].
pub(crate) struct Row<'a> {
    path: &'a Path,
    line: usize,
    fields: &'a [String],
}

impl<'a> Row<'a> {
    pub fn text(&self, column: usize) -> &'a str {
        &self.fields[column]
    }

    /// A field as a number, or an error that says what it must be.
    pub fn parse<T: std::str::FromStr>(&self, column: usize, what: &str) -> Result<T, FacesError> {
        let text = self.text(column);
        text.parse().map_err(|_| self.error(format!("{what}, but is `{text}`")))
    }

    pub fn error(&self, problem: impl Into<String>) -> FacesError {
        FacesError::line(self.path, self.line, problem)
    }
}
