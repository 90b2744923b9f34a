//! `lsoftmax embed`.

use std::path::PathBuf;

use clap::Args;
use lsoftmax_data::{DataSource, Split};
use lsoftmax_lab::features::Flip;
use lsoftmax_lab::inference::{self, EmbedOutputs, EmbedReport};
use lsoftmax_mpi::Session;

use crate::argument_groups::{DataDirArgument, DeviceArgument, OutputArguments};
use crate::failure::Failure;
use crate::help::EXIT_CODES;
use crate::output::printable;
use crate::value_parsers::{one_of, output_file, split};

const EXAMPLES: &str = "\
Examples:
  lsoftmax embed runs/mnist mnist --out features.npy    the test images of a data set
  lsoftmax embed runs/mnist mnist --out features.npy --logits logits.npy
  lsoftmax embed runs/photos album/ --out features.npy --normalise
  lsoftmax embed runs/faces aligned/ --out features.npy --flip concat";

/// Write the features of images, by the model of a run, to a .npy file
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct EmbedCommand {
    /// The run
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// A data set, an image file, or a directory of image files
    #[arg(value_name = "INPUT")]
    input: DataSource,
    /// Write the features here, and the names and labels of the images to the same name with .json
    #[arg(long, value_name = "FILE", value_parser = output_file())]
    out: PathBuf,
    /// Write the logits W·x here, one row per image; --normalise does not change them
    #[arg(long, value_name = "FILE", value_parser = output_file())]
    logits: Option<PathBuf>,
    /// Scale each feature vector to a length of 1
    #[arg(long)]
    normalise: bool,
    /// Add the features of the mirror image, or put them behind: sum or concat
    #[arg(long, value_name = "HOW", value_parser = one_of(Flip::ALL))]
    flip: Option<Flip>,
    /// The images of a data set to embed
    #[arg(long, default_value = "test", value_parser = split())]
    split: Split,
    #[command(flatten)]
    data_dir: DataDirArgument,
    #[command(flatten)]
    device: DeviceArgument,
    #[command(flatten)]
    output: OutputArguments,
}

impl EmbedCommand {
    pub fn run(self, session: &Session) -> Result<String, Failure> {
        let Self { run, input, out, logits, normalise, flip, split, data_dir, device, output } =
            self;
        let data = data_dir.find()?;
        let outputs = EmbedOutputs { features: &out, logits: logits.as_deref(), normalise, flip };
        let (device, ranks) = (&device.device, session.comm());
        let embedded = inference::embed(&run, &input, split, &data, &outputs, device, ranks)?;
        output.render(&embedded, text)
    }
}

fn text(EmbedReport { out, logits, images, features, classes, rows, .. }: &EmbedReport) -> String {
    let [out, rows] = [out, rows].map(|path| printable(path));
    let mut text = format!("{out}: {images} images x {features} features");
    if let Some(logits) = logits {
        let logits = printable(logits);
        text.push_str(&format!("\n{logits}: {images} images x {classes} logits"));
    }
    text.push_str(&format!("\n{rows}: names and labels of the rows"));
    text
}
