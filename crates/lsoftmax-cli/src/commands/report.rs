//! `lsoftmax report`.

use std::path::PathBuf;

use clap::Args;
use lsoftmax_lab::records::Records;
use lsoftmax_lab::report::{self, Outdated, Written};
use serde::Serialize;

use crate::argument_groups::{OutputArguments, RecordsArgument};
use crate::failure::Failure;
use crate::help::EXIT_CODES;
use crate::output::tell;

const EXAMPLES: &str = "\
Examples:
  lsoftmax report                                       report/index.html, and the figures as SVG and PNG
  lsoftmax report --check                               are the documents those of the records?";

/// Make tables and figures from the records of finished runs
///
/// Writes a self-contained page and the figures, and updates the tables between the markers
/// `<!-- report:NAME -->` and `<!-- /report:NAME -->` in README.md and docs/*.md, and the figures that
/// docs/ has under the same names.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct ReportCommand {
    /// Write the page and the figures to this directory
    #[arg(long, value_name = "DIR", default_value = "report")]
    out: PathBuf,
    /// The directory of README.md and docs/
    #[arg(long, value_name = "DIR", default_value = ".")]
    documents: PathBuf,
    /// Change nothing; exit code 1 and the difference if a document's table or figure is not what the
    /// records say
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    records: RecordsArgument,
    #[command(flatten)]
    output: OutputArguments,
}

/// The result of a check that found no difference, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Checked {
    /// The number of records.
    records: usize,
}

impl ReportCommand {
    pub fn run(self) -> Result<String, Failure> {
        for (option, path) in
            [("--records", &self.records.records), ("--documents", &self.documents)]
        {
            if !path.is_dir() {
                return Err(Failure::bad_input(format!(
                    "there is no directory {}; name another with {option}",
                    path.display()
                )));
            }
        }
        let records = Records::read(&self.records.records)?;
        if self.check {
            let outdated = report::outdated(&self.documents, &records)?;
            let Some(first) = outdated.first() else {
                let checked = Checked { records: records.all().len() };
                return self.output.render(&checked, |checked| {
                    format!("tables and figures are those of {}", count_text(checked.records))
                });
            };
            for Outdated { path, difference, .. } in &outdated {
                tell(&format!("{}\n{difference}", path.display()));
            }
            return Err(Failure::failed(format!(
                "{} differs from the records; update it with `lsoftmax report`",
                first.path.display()
            )));
        }
        let written = report::write(&records, &self.documents, &self.out)?;
        self.output.render(&written, |Written { page, figures, documents }| {
            let mut lines = vec![format!(
                "{}: {}, {figures} figures",
                page.display(),
                count_text(records.all().len())
            )];
            lines.extend(documents.iter().map(|path| format!("updated {}", path.display())));
            lines.join("\n")
        })
    }
}

/// A number of records in words.
fn count_text(records: usize) -> String {
    if records == 1 { "1 record".into() } else { format!("{records} records") }
}
