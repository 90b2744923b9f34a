//! A table of results, as text or Markdown.

use serde::Serialize;

/// A table of results.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ResultTable {
    /// The heading.
    pub title: String,
    /// The names of the columns.
    pub head: Vec<String>,
    /// The rows.
    pub rows: Vec<ResultRow>,
    /// Sentences below the table.
    pub notes: Vec<String>,
}

/// A row of a table, and the records behind it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ResultRow {
    /// One text per column.
    pub cells: Vec<String>,
    /// The column that lists the runs, and the seed and record of each.
    pub runs: Vec<(u64, String)>,
}

/// The column that lists the runs by seed.
pub(super) const SEEDS: &str = "seeds";

impl ResultTable {
    /// Columns aligned with spaces, for a terminal.
    pub fn to_text(&self) -> String {
        let head = std::iter::once(&self.head);
        let lines: Vec<&Vec<String>> = head.chain(self.rows.iter().map(|row| &row.cells)).collect();
        let width = |column: usize| {
            lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0)
        };
        let mut text = format!("{}\n", self.title);
        for cells in &lines {
            let padded = cells.iter().enumerate().map(|(column, cell)| {
                let space = " ".repeat(width(column) - cell.chars().count());
                if column == 0 { format!("{cell}{space}") } else { format!("{space}{cell}") }
            });
            text.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        self.notes.iter().for_each(|note| text.push_str(&format!("{note}\n")));
        text
    }

    /// A Markdown table; `records` is the path of the runs' records as seen from the document.
    pub fn to_markdown(&self, records: &str) -> String {
        let escape = |text: &str| text.replace('|', "\\|");
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut text = line(self.head.iter().map(|name| escape(name)).collect());
        let rules = (0..self.head.len()).map(|column| if column == 0 { "---" } else { "---:" });
        text.push_str(&format!("|{}|\n", rules.collect::<Vec<_>>().join("|")));
        for ResultRow { cells, runs } in &self.rows {
            let cell = |(name, text): (&String, &String)| {
                let links = runs.iter().map(|(seed, id)| format!("[{seed}]({records}/{id})"));
                let links = links.collect::<Vec<_>>().join(" ");
                if name == SEEDS && !runs.is_empty() { links } else { escape(text) }
            };
            text.push_str(&line(self.head.iter().zip(cells).map(cell).collect()));
        }
        if !self.notes.is_empty() {
            text.push_str(&format!("\n{}\n", self.notes.join(" ")));
        }
        text
    }
}
