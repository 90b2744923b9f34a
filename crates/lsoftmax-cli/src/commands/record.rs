//! `lsoftmax record`.

use std::path::PathBuf;

use clap::Args;
use lsoftmax_lab::recipe::Recipe;
use lsoftmax_lab::records::Records;
use lsoftmax_lab::reproduce::Experiment;
use lsoftmax_lab::run::RECIPE;

use crate::argument_groups::{OutputArguments, RecordsArgument};
use crate::failure::Failure;
use crate::help::EXIT_CODES;

const EXAMPLES: &str = "\
Examples:
  lsoftmax record runs/mnist-m4-s1
  lsoftmax record runs/mine --name mnist-m4-dropout-s1";

/// Add finished runs to the records, for `lsoftmax report`
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct RecordCommand {
    /// The runs
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// The name of the record, for one run [default: recipe, margin, steps and seed]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    records: RecordsArgument,
    #[command(flatten)]
    output: OutputArguments,
}

impl RecordCommand {
    pub fn run(self) -> Result<String, Failure> {
        if self.name.is_some() && self.runs.len() > 1 {
            return Err(Failure::bad_input("--name is for one run; leave it out, or give one run"));
        }
        if let Some(name) = self.name.as_ref().filter(|name| !is_record_name(name)) {
            return Err(Failure::bad_input(format!(
                "--name must be of letters, digits, `-`, `_` and `.`, and not begin with `.`, but is {name:?}"
            )));
        }
        let mut records = Records::read(&self.records.records)?;
        let mut added = Vec::new();
        for run in &self.runs {
            let recipe = Recipe::from_file(&run.join(RECIPE))?;
            let id = self.name.clone().unwrap_or_else(|| Experiment::id_of(&recipe));
            records.add(run, &id)?;
            added.push(records.path_of(&id));
        }
        self.output.render(&added, |added| {
            let lines = added.iter().map(|path| format!("recorded {}", path.display()));
            lines.collect::<Vec<_>>().join("\n")
        })
    }
}

/// Whether it can be the name of a directory and part of a link, and is not hidden.
fn is_record_name(name: &str) -> bool {
    let known = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(known)
}
