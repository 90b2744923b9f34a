//! `lsoftmax faces align`.

use std::path::PathBuf;

use clap::Args;
use lsoftmax_faces::align::{AlignReport, Crop, align};
use lsoftmax_faces::{Landmarks, Template};

use super::watched;
use crate::argument_groups::OutputArguments;
use crate::failure::Failure;
use crate::help::WATCHED_EXIT_CODES;
use crate::output::tell;
use crate::value_parsers::{image_size, one_of};

const EXAMPLES: &str = "\
Examples:
  lsoftmax faces align photos/ --landmarks photos/landmarks.tsv --out aligned/
  lsoftmax faces align photos/ --landmarks points.csv --out small/ --template insightface --size 56x56

The landmarks are a table with a header, separated by tabs or commas: the path of an image relative to its folder, then x and y of
left eye, right eye, nose, left and right corner of the mouth, as seen. Whole coordinates are pixel centres: (0, 0) is the middle of
the upper left pixel. A similarity transform moves them as close as it can to the template. What lies outside of a photograph is black.";

/// Align photographs of faces by five landmarks each
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{WATCHED_EXIT_CODES}"))]
pub struct AlignCommand {
    /// The folder of photographs, which may have subfolders
    #[arg(value_name = "FOLDER")]
    images: PathBuf,
    /// The table of landmarks
    #[arg(long, value_name = "FILE")]
    landmarks: PathBuf,
    /// Write the aligned faces here, as PNG files of the same names
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Where the landmarks go: sphereface (a crop of 96x112) or insightface (112x112, wider)
    #[arg(long, default_value = "sphereface", value_parser = one_of(Template::ALL))]
    template: Template,
    /// The size of the crop, width x height [default: the template's]
    #[arg(long, value_name = "WxH", value_parser = image_size)]
    size: Option<(u32, u32)>,
    /// Align images that seem to be aligned already
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    output: OutputArguments,
}

impl AlignCommand {
    pub fn run(self) -> Result<String, Failure> {
        let (width, height) = self.size.unwrap_or(self.template.size());
        let crop = Crop { template: self.template, width, height };
        let landmarks = Landmarks::read(&self.landmarks)?;
        let report = watched("aligned", |watch| {
            align(&self.images, &landmarks, &self.out, crop, self.force, watch)
        })?;
        self.output.render(&report, |report| text(report, &self.out.display().to_string()))
    }
}

/// The number of paths that are listed.
const LISTED: usize = 10;

fn text(report: &AlignReport, out: &str) -> String {
    let Crop { width, height, .. } = report.crop;
    let missing = [
        ("images have no landmarks and were left out", &report.without_landmarks),
        ("images have landmarks in one place and were left out", &report.useless_landmarks),
        ("landmarks have no image", &report.without_image),
    ];
    for (what, paths) in missing.iter().filter(|(_, paths)| !paths.is_empty()) {
        let named: Vec<String> =
            paths.iter().take(LISTED).map(|path| path.display().to_string()).collect();
        let more = if paths.len() > LISTED { ", …" } else { "" };
        tell(&format!("{} {what}: {}{more}", paths.len(), named.join(", ")));
    }
    let left_out = report.without_landmarks.len() + report.useless_landmarks.len();
    format!(
        "{out}: {} faces of {width} x {height} pixels; {left_out} images left out",
        report.aligned
    )
}
