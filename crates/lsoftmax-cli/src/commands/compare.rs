//! `lsoftmax compare`.

use std::path::PathBuf;

use clap::Args;
use lsoftmax_data::shell_word;
use lsoftmax_lab::run::{RECIPE, RunError};
use lsoftmax_lab::runs::{RunListing, comparison_page};

use super::runs::table;
use crate::argument_groups::OutputArguments;
use crate::failure::Failure;
use crate::help::EXIT_CODES;
use crate::text_table::text_table;
use crate::value_parsers::output_file;

const EXAMPLES: &str = "\
Examples:
  lsoftmax compare runs/mnist-m1-s1 runs/mnist-m4-s1
  lsoftmax compare runs/* --page runs.html              with the curves of all";

/// Put the results of runs side by side, and their curves on a page
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct CompareCommand {
    /// The runs, finished or not
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// Write a page with the table and the curves
    #[arg(long, value_name = "FILE", value_parser = output_file())]
    page: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArguments,
}

impl CompareCommand {
    pub fn run(self) -> Result<String, Failure> {
        let Self { runs, page, output } = self;
        if let Some(path) = runs.iter().find(|run| !run.join(RECIPE).is_file()) {
            return Err(RunError::NoRun { path: path.clone(), missing: RECIPE }.into());
        }
        let listings: Vec<RunListing> = runs.iter().map(|run| RunListing::of(run)).collect();
        if let Some(problem) = listings.iter().find_map(|listing| listing.problem.clone()) {
            return Err(Failure::bad_input(problem));
        }
        let rows = table(&listings);
        if let Some(path) = &page {
            let names: Vec<String> = runs.iter().map(|run| shell_word(run)).collect();
            let command =
                format!("lsoftmax compare {} --page {}", names.join(" "), shell_word(path));
            comparison_page(&listings, &rows, command)?.write(path)?;
        }
        output.render(&listings, |_| {
            let written = page.map(|path| format!("\n{}", path.display())).unwrap_or_default();
            format!("{}{written}", text_table(&rows))
        })
    }
}
