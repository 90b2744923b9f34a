//! `lsoftmax eval`.

use std::path::PathBuf;

use clap::Args;
use lsoftmax_data::{DataSource, Split};
use lsoftmax_lab::inference::{self, EvaluationReport};

use crate::argument_groups::{DataDirArgument, DeviceArgument, OutputArguments};
use crate::failure::Failure;
use crate::help::EXIT_CODES;
use crate::value_parsers::split;

const EXAMPLES: &str = "\
Examples:
  lsoftmax eval runs/mnist                              on the test images of its own data
  lsoftmax eval runs/mnist --data my-digits/ --json     on your own images, in directories 0 to 9";

/// Evaluate the model of a run
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct EvalCommand {
    /// The run
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Other data than the run's: a data set, or a folder with one directory of images per class
    #[arg(long, value_name = "DATA")]
    data: Option<DataSource>,
    /// The images to evaluate on
    #[arg(long, default_value = "test", value_parser = split())]
    split: Split,
    #[command(flatten)]
    data_dir: DataDirArgument,
    #[command(flatten)]
    device: DeviceArgument,
    #[command(flatten)]
    output: OutputArguments,
}

impl EvalCommand {
    pub fn run(self) -> Result<String, Failure> {
        let data_dir = self.data_dir.find()?;
        let (data, device) = (self.data.as_ref(), &self.device.device);
        let evaluated = inference::evaluate_run(&self.run, data, self.split, &data_dir, device)?;
        self.output.render(&evaluated, text)
    }
}

fn text(EvaluationReport { data, split, evaluation }: &EvaluationReport) -> String {
    format!(
        "{data}, {split}: {:.2} % wrong ({} of {} images), cross-entropy {:.4}, {:.1}° to the class on average",
        evaluation.error, evaluation.wrong, evaluation.images, evaluation.loss, evaluation.angle
    )
}
