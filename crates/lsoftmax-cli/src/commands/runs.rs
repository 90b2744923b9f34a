//! `lsoftmax runs`.

use std::path::PathBuf;

use clap::Args;
use lsoftmax_lab::number_text::decimals_text;
use lsoftmax_lab::runs::{RunListing, list_runs};

use crate::argument_groups::OutputArguments;
use crate::failure::Failure;
use crate::help::EXIT_CODES;
use crate::output::printable;
use crate::text_table::text_table;

const EXAMPLES: &str = "\
Examples:
  lsoftmax runs                     the runs in runs/
  lsoftmax runs experiments/ --json";

/// List training runs with their state and result
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct RunsCommand {
    /// A directory with runs in it
    #[arg(value_name = "DIR", default_value = "runs")]
    directory: PathBuf,
    #[command(flatten)]
    output: OutputArguments,
}

impl RunsCommand {
    pub fn run(self) -> Result<String, Failure> {
        let Self { directory, output } = self;
        if !directory.is_dir() {
            return Err(Failure::bad_input(format!(
                "{}: there is no such directory; give one with runs in it, or train first",
                directory.display()
            )));
        }
        let listings = list_runs(&directory)?;
        output.render(&listings, |listings| {
            if listings.is_empty() {
                return format!(
                    "{}: there are no runs",
                    printable(&directory.display().to_string())
                );
            }
            let problems = listings.iter().filter_map(|listing| listing.problem.as_deref());
            let lines = [text_table(&table(listings))].into_iter().chain(problems.map(printable));
            lines.collect::<Vec<_>>().join("\n")
        })
    }
}

/// One row per run, below a row of headings.
pub fn table(listings: &[RunListing]) -> Vec<Vec<String>> {
    let head =
        ["run", "recipe", "head", "seed", "state", "steps", "loss", "held out, %", "test, %"];
    let mut rows = vec![head.map(String::from).to_vec()];
    let percent = |error: Option<f64>| error.map_or("–".into(), |error| format!("{error:.2}"));
    for listing in listings {
        let setup = listing.setup.as_ref();
        let of_setup = |text: Option<String>| text.unwrap_or_else(|| "–".into());
        let steps = match setup {
            Some(setup) if listing.step != setup.steps => {
                format!("{} of {}", listing.step, setup.steps)
            }
            _ => listing.step.to_string(),
        };
        rows.push(vec![
            printable(&listing.run.display().to_string()),
            printable(&of_setup(setup.map(|setup| setup.recipe.clone()))),
            of_setup(setup.map(|setup| setup.head.to_string())),
            of_setup(setup.map(|setup| setup.seed.to_string())),
            listing.state.name().into(),
            steps,
            listing.loss.map_or("–".into(), |loss| decimals_text(loss, 4)),
            percent(listing.validation_error),
            percent(listing.test_error),
        ]);
    }
    rows
}
