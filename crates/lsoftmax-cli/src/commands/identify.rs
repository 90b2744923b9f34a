//! `lsoftmax identify`.

use std::path::PathBuf;

use clap::Args;
use lsoftmax_lab::faces::{self, FaceSource, IdentifyReport, IdentifySettings, Probe};
use lsoftmax_lab::inference::InferenceError;
use lsoftmax_lab::model_file::TrainedModel;

use crate::argument_groups::{DeviceArgument, OutputArguments};
use crate::failure::Failure;
use crate::help::EXIT_CODES;
use crate::output::printable;
use crate::value_parsers::{number, output_file};

const EXAMPLES: &str = "\
Examples:
  lsoftmax identify --model runs/faces --gallery people/ --probes photo.png
  lsoftmax identify --model runs/faces --gallery people/ --held-out faces/held-out --save people.safetensors
  lsoftmax identify --model runs/faces --gallery people.safetensors --probes new/ --json
  lsoftmax identify --gallery e.npy --names names.txt --probes p.npy --probe-names truth.txt

A folder of people has one directory of aligned faces per person. An .npy file has one row per face; a file of names has
one name per line. Where the truth is known, the fractions of probes whose person is nearest, or among the nearest five, are printed.";

/// Identify faces: the nearest people of a gallery, or nobody in it
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct IdentifyCommand {
    /// The run whose model makes features of images
    #[arg(long, value_name = "RUN")]
    model: Option<PathBuf>,
    /// The known people: a folder of people, an .npy file, or a saved gallery (.safetensors)
    #[arg(long, value_name = "PATH")]
    gallery: PathBuf,
    /// The names of the rows of an .npy gallery
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,
    /// The faces to identify: a folder, an image or an .npy file
    #[arg(long, value_name = "PATH", required_unless_present = "save")]
    probes: Option<PathBuf>,
    /// The names of the rows of .npy probes
    #[arg(long, value_name = "FILE", requires = "probes")]
    probe_names: Option<PathBuf>,
    /// People who are not in the gallery, to choose the threshold of "unknown" on
    #[arg(long, value_name = "PATH", conflicts_with = "threshold")]
    held_out: Option<PathBuf>,
    /// The names of the rows of an .npy file of held-out people
    #[arg(long, value_name = "FILE", requires = "held_out")]
    held_out_names: Option<PathBuf>,
    /// The fraction of held-out faces that may be taken for somebody
    #[arg(long, value_name = "RATE", default_value = "0.01", value_parser = number)]
    rate: f64,
    /// Faces at a larger angle than this, in degrees, are unknown
    #[arg(long, value_name = "DEGREES", value_parser = number, allow_negative_numbers = true)]
    threshold: Option<f64>,
    /// Name this many people
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    top: u16,
    /// Save the gallery, with its threshold, as one safetensors file
    #[arg(long, value_name = "FILE", value_parser = output_file())]
    save: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgument,
    #[command(flatten)]
    output: OutputArguments,
}

impl IdentifyCommand {
    pub fn run(self) -> Result<String, Failure> {
        if !(0.0..=1.0).contains(&self.rate) {
            return Err(Failure::bad_input(format!(
                "--rate: must be from 0 to 1, but is {}",
                self.rate
            )));
        }
        if self.threshold.is_some_and(|angle| !(0.0..=180.0).contains(&angle)) {
            return Err(Failure::bad_input("--threshold: must be an angle from 0 to 180 degrees"));
        }
        let source = |path, names| FaceSource { path, names };
        let model = self.model.map(|run| TrainedModel::read(&run, &self.device.device));
        let model = model.transpose().map_err(InferenceError::from)?;
        let settings = IdentifySettings {
            top: usize::from(self.top),
            threshold: self.threshold,
            held_out: self.held_out.map(|path| source(path, self.held_out_names)),
            rate: self.rate,
            save: self.save,
        };
        let gallery = source(self.gallery, self.names);
        let probes = self.probes.map(|path| source(path, self.probe_names));
        let report = faces::identify(model.as_ref(), &gallery, probes.as_ref(), &settings)?;
        self.output.render(&report, text)
    }
}

fn text(report: &IdentifyReport) -> String {
    let IdentifyReport { gallery_faces, gallery_people, threshold, probes, .. } = report;
    let mut lines: Vec<String> = probes.iter().map(line).collect();
    let beyond =
        threshold.map_or("none is unknown".into(), |angle| format!("unknown beyond {angle:.1}°"));
    lines.push(format!("gallery: {gallery_faces} faces of {gallery_people} people; {beyond}"));
    let percent = |part: f64| format!("{:.2} %", 100.0 * part);
    if let Some((first, five)) = report.rank_1.zip(report.rank_5) {
        lines.push(format!("rank 1: {}, rank 5: {}", percent(first), percent(five)));
    }
    if let Some(part) = report.known_rejected {
        lines.push(format!("people of the gallery called unknown: {}", percent(part)));
    }
    if let Some(part) = report.strangers_rejected {
        lines.push(format!("others called unknown: {}", percent(part)));
    }
    lines.join("\n")
}

fn line(Probe { probe, found, .. }: &Probe) -> String {
    let people = found
        .nearest
        .iter()
        .map(|nearest| format!("{} {:.1}°", printable(&nearest.name), nearest.angle));
    let people = people.collect::<Vec<_>>().join(", ");
    let unknown = if found.unknown { "unknown; nearest " } else { "" };
    format!("{}: {unknown}{people}", printable(probe))
}
