//! `lsoftmax predict`.

use std::path::PathBuf;

use clap::Args;
use lsoftmax_data::DataError;
use lsoftmax_lab::inference::{self, Prediction, Predictions};

use crate::argument_groups::{DeviceArgument, OutputArguments};
use crate::failure::Failure;
use crate::help::EXIT_CODES;
use crate::output::{print_result, printable};

const EXAMPLES: &str = "\
Examples:
  lsoftmax predict runs/mnist digit.png
  lsoftmax predict runs/photos album/ *.jpg --json      all images in a directory, and some others
  curl -s https://example.org/cat.jpg | lsoftmax predict runs/photos -

Images that cannot be read are left out; a last line on stderr names them, and the exit code is 2.";

/// Classify images with the model of a run
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct PredictCommand {
    /// The run
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// JPEG, PNG or WebP files, directories of them, or - for an image from the standard input
    #[arg(value_name = "IMAGE", required = true)]
    images: Vec<PathBuf>,
    #[command(flatten)]
    device: DeviceArgument,
    #[command(flatten)]
    output: OutputArguments,
}

impl PredictCommand {
    pub fn run(self) -> Result<String, Failure> {
        let Predictions { images, unreadable } =
            inference::predict(&self.run, &self.images, &self.device.device)?;
        let total = images.len() + unreadable.len();
        let text = self
            .output
            .render(&images, |images| images.iter().map(line).collect::<Vec<_>>().join("\n"))?;
        match DataError::of_files(unreadable, total) {
            None => Ok(text),
            Some(error) => {
                // As JSON it is a list, if only an empty one.
                if !text.is_empty() {
                    print_result(&text)?;
                }
                Err(error.into())
            }
        }
    }
}

fn line(Prediction { image, class, name, probability, angle }: &Prediction) -> String {
    let (image, name, number) = (printable(image), printable(name), class.to_string());
    let class = if name == number { number } else { format!("{name} ({number})") };
    format!("{image}: {class}, probability {probability:.4}, {angle:.1}° to the class")
}
