//! `lsoftmax export`.

use std::path::PathBuf;

use clap::Args;
use lsoftmax_lab::inference;
use lsoftmax_lab::onnx::OnnxOutput;
use serde::Serialize;

use crate::argument_groups::OutputArguments;
use crate::failure::Failure;
use crate::help::EXIT_CODES;
use crate::value_parsers::{one_of, output_file};

const EXAMPLES: &str = "\
Examples:
  lsoftmax export runs/mnist --out mnist.safetensors            the weights alone
  lsoftmax export runs/mnist --out mnist.onnx                   pixels to logits, for ONNX Runtime
  lsoftmax export runs/faces --out faces.onnx --embeddings      pixels to features

docs/guide.md has the lines of Python that load them.";

/// Write the model of a run for other programs: its weights as safetensors, or all of it as ONNX
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct ExportCommand {
    /// The run
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// The file format [default: by the ending of the file]
    #[arg(long, value_parser = one_of([("safetensors", Format::Safetensors), ("onnx", Format::Onnx)]))]
    format: Option<Format>,
    /// Write the model here, to a file that ends in .safetensors or .onnx
    #[arg(long, value_name = "FILE", value_parser = output_file())]
    out: PathBuf,
    /// The network without the head, for ONNX: images to features
    #[arg(long)]
    embeddings: bool,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Safetensors,
    Onnx,
}

#[derive(Serialize)]
struct Exported {
    bytes: usize,
    out: String,
}

impl ExportCommand {
    pub fn run(self) -> Result<String, Failure> {
        let format = self.format()?;
        let bytes = match (format, self.embeddings) {
            (Format::Onnx, false) => {
                inference::export_onnx(&self.run, OnnxOutput::Logits, &self.out)?
            }
            (Format::Onnx, true) => {
                inference::export_onnx(&self.run, OnnxOutput::Features, &self.out)?
            }
            (Format::Safetensors, false) => inference::export(&self.run, &self.out)?,
            (Format::Safetensors, true) => {
                return Err(Failure::bad_input(
                    "--embeddings is for .onnx; a .safetensors file has all weights, leave it out",
                ));
            }
        };
        let what = match (format, self.embeddings) {
            (Format::Safetensors, _) => "of weights",
            (Format::Onnx, false) => "of ONNX, images to logits",
            (Format::Onnx, true) => "of ONNX, images to features",
        };
        let exported = Exported { bytes, out: self.out.display().to_string() };
        self.output
            .render(&exported, |Exported { bytes, out }| format!("{out}: {bytes} bytes {what}"))
    }

    /// The format asked for, which the file's ending must not contradict.
    fn format(&self) -> Result<Format, Failure> {
        let ending = self.out.extension();
        let by_ending = match ending {
            None => Some(Format::Safetensors),
            Some(ending) if ending == "safetensors" => Some(Format::Safetensors),
            Some(ending) if ending == "onnx" => Some(Format::Onnx),
            Some(_) => None,
        };
        match (self.format, by_ending) {
            (Some(format), None) => Ok(format),
            (Some(format), Some(by_ending)) if format == by_ending || ending.is_none() => {
                Ok(format)
            }
            (None, Some(by_ending)) => Ok(by_ending),
            _ => Err(Failure::bad_input(format!(
                "{}: the ending does not say the format; give a file that ends in .safetensors or .onnx, or --format",
                self.out.display()
            ))),
        }
    }
}
