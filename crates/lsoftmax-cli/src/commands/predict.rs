//! `lsoftmax predict`.

use std::path::PathBuf;

use clap::Args;
use lsoftmax_lab::inference::{self, Prediction};

use crate::argument_groups::{DeviceArgument, OutputArguments};
use crate::failure::Failure;
use crate::help::EXIT_CODES;
use crate::output::printable;

const EXAMPLES: &str = "\
Examples:
  lsoftmax predict runs/mnist digit.png
  lsoftmax predict runs/photos *.jpg --json";

/// Classify images with the model of a run
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct PredictCommand {
    /// The run
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// JPEG, PNG or WebP files
    #[arg(value_name = "IMAGE", required = true)]
    images: Vec<PathBuf>,
    #[command(flatten)]
    device: DeviceArgument,
    #[command(flatten)]
    output: OutputArguments,
}

impl PredictCommand {
    pub fn run(self) -> Result<String, Failure> {
        let predictions = inference::predict(&self.run, &self.images, &self.device.device)?;
        self.output.render(&predictions, |predictions| {
            predictions.iter().map(line).collect::<Vec<_>>().join("\n")
        })
    }
}

fn line(Prediction { image, class, name, probability, angle }: &Prediction) -> String {
    let (image, name, number) = (printable(image), printable(name), class.to_string());
    let class = if name == number { number } else { format!("{name} ({number})") };
    format!("{image}: {class}, probability {probability:.4}, {angle:.1}° to the class")
}
