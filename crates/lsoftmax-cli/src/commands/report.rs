//! `lsoftmax report`.

use std::path::PathBuf;

use clap::Args;
use lsoftmax_lab::records::Records;
use lsoftmax_lab::report::{self, Outdated, Written};

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

impl ReportCommand {
    pub fn run(self) -> Result<String, Failure> {
        let records = Records::read(&self.records.records)?;
        if self.check {
            let outdated = report::outdated(&self.documents, &records)?;
            let Some(first) = outdated.first() else {
                return Ok(format!(
                    "tables and figures are those of {} records",
                    records.all().len()
                ));
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
                "{}: {} records, {figures} figures",
                page.display(),
                records.all().len()
            )];
            lines.extend(documents.iter().map(|path| format!("updated {}", path.display())));
            lines.join("\n")
        })
    }
}
