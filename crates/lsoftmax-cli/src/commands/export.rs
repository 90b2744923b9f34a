//! `lsoftmax export`.

use std::path::{Path, PathBuf};

use clap::Args;
use lsoftmax_lab::inference::{self, InferenceError};
use serde::Serialize;

use crate::argument_groups::OutputArguments;
use crate::failure::Failure;
use crate::help::EXIT_CODES;
use crate::value_parsers::one_of;

const EXAMPLES: &str = "\
Examples:
  lsoftmax export runs/mnist --out mnist.safetensors

docs/guide.md has the lines of Python that load it into PyTorch.";

/// Write the weights of the model of a run, for other programs
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct ExportCommand {
    /// The run
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// The file format
    #[arg(long, default_value = "safetensors", value_parser = one_of([("safetensors", inference::export as Writer)]))]
    format: Writer,
    /// Write the weights here
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    output: OutputArguments,
}

/// Writes the model of a run to a file in some format and returns the size in bytes.
type Writer = fn(&Path, &Path) -> Result<usize, InferenceError>;

#[derive(Serialize)]
struct Exported {
    bytes: usize,
    out: String,
}

impl ExportCommand {
    pub fn run(self) -> Result<String, Failure> {
        if let Some(ending) = self.out.extension().filter(|ending| *ending != "safetensors") {
            return Err(Failure::bad_input(format!(
                "{}: weights are not written as .{}; give a file that ends in .safetensors",
                self.out.display(),
                ending.display()
            )));
        }
        let write = self.format;
        let bytes = write(&self.run, &self.out)?;
        let exported = Exported { bytes, out: self.out.display().to_string() };
        self.output
            .render(&exported, |Exported { bytes, out }| format!("{out}: {bytes} bytes of weights"))
    }
}
