//! `lsoftmax plot`.

use std::path::PathBuf;

use clap::Args;
use lsoftmax_lab::plot::{Plotted, plot};

use crate::argument_groups::OutputArguments;
use crate::failure::Failure;
use crate::help::EXIT_CODES;
use crate::value_parsers::output_file;

const EXAMPLES: &str = "\
Examples:
  lsoftmax plot runs/mnist-m1-s1 runs/mnist-m4-s1 --out curves.html";

/// Plot the training loss and held-out error of runs, finished or not, on an HTML page
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct PlotCommand {
    /// The runs
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// Write the page here
    #[arg(long, value_name = "FILE", value_parser = output_file())]
    out: PathBuf,
    #[command(flatten)]
    output: OutputArguments,
}

impl PlotCommand {
    pub fn run(self) -> Result<String, Failure> {
        let plotted = plot(&self.runs, &self.out)?;
        self.output.render(&plotted, |Plotted { out, runs }| {
            let plural = if *runs == 1 { "" } else { "s" };
            format!("{out}: {runs} run{plural}")
        })
    }
}
