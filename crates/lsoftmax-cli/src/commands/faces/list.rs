//! `lsoftmax faces list`.

use std::path::PathBuf;

use clap::Args;
use lsoftmax_faces::NameMatch;
use lsoftmax_faces::list::{ListReport, ListSettings, list};

use super::watched;
use crate::argument_groups::OutputArguments;
use crate::failure::Failure;
use crate::help::WATCHED_EXIT_CODES;
use crate::value_parsers::{size, whole_number};

const EXAMPLES: &str = "\
Examples:
  lsoftmax faces list aligned/ --evaluation lfw-aligned/ --out faces
  lsoftmax faces list aligned/ --evaluation lfw-aligned/ --out faces --sources --held-out 30
  lsoftmax train lfw --data faces                       what the list is for

OUT/train and OUT/test have the images of the people to train on, OUT/held-out those of other people, to choose thresholds on:
hard links, or copies where the file system has none. OUT/list.tsv says of every image where it is, or why it was left out.";

/// List faces for training: without the people of the evaluation, without duplicates
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{WATCHED_EXIT_CODES}"))]
pub struct ListCommand {
    /// The aligned faces, one directory per person
    #[arg(value_name = "FOLDER")]
    faces: PathBuf,
    /// The faces of the evaluation, one directory per person; none of these people is trained on
    #[arg(long, value_name = "FOLDER")]
    evaluation: Option<PathBuf>,
    /// Write the list here
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Set people with fewer images aside
    #[arg(long, value_name = "N", default_value_t = ListSettings::default().fewest_images, value_parser = size)]
    fewest_images: usize,
    /// Images whose perceptual hashes differ in at most this many of 256 bits are the same photograph
    #[arg(long, value_name = "BITS", default_value_t = ListSettings::default().near, value_parser = clap::value_parser!(u32).range(0..=64))]
    near: u32,
    /// Names begin with their source and an underscore; the same name in two sources is one person
    #[arg(long)]
    sources: bool,
    /// Hold this many people out of training
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = size)]
    held_out: usize,
    /// Test images of every person in training
    #[arg(long, value_name = "N", default_value_t = ListSettings::default().test_images, value_parser = size)]
    test_images: usize,
    /// The seed of the division
    #[arg(long, default_value_t = 1, value_parser = whole_number)]
    seed: u64,
    #[command(flatten)]
    output: OutputArguments,
}

impl ListCommand {
    pub fn run(self) -> Result<String, Failure> {
        let Self { fewest_images, near, sources, held_out, test_images, seed, .. } = self;
        let settings = ListSettings { fewest_images, near, sources, held_out, test_images, seed };
        let report = watched("read", |watch| {
            list(&self.faces, self.evaluation.as_deref(), &self.out, &settings, watch)
        })?;
        self.output.render(&report, |report| text(report, &self.out.display().to_string()))
    }
}

fn text(report: &ListReport, out: &str) -> String {
    let count = |place: &str| report.images.get(place).copied().unwrap_or(0);
    let mut lines = vec![format!(
        "{out}: {} people with {} training and {} test images; {} people held out with {} images",
        report.people,
        count("train"),
        count("test"),
        report.held_out_people,
        count("held-out")
    )];
    if !report.excluded.is_empty() {
        let name = |kind: NameMatch| {
            let of_kind = report.excluded.iter().filter(move |found| found.names == kind);
            of_kind
                .map(|found| format!("{} ({})", found.person, found.evaluation))
                .collect::<Vec<_>>()
        };
        let (same, similar) = (name(NameMatch::Same), name(NameMatch::Similar));
        lines.push(format!(
            "{} people of the evaluation excluded, {} images: {}",
            report.excluded.len(),
            count("evaluation-person"),
            same.join(", ")
        ));
        if !similar.is_empty() {
            lines.push(format!(
                "{} of them by a similar name: {}",
                similar.len(),
                similar.join(", ")
            ));
        }
    }
    lines.push(format!(
        "left out: {} photographs of the evaluation, {} duplicates, {} under two names, {} images of {} people with too few",
        count("evaluation-image"),
        count("duplicate"),
        count("conflict"),
        count("too-few"),
        report.too_few.len()
    ));
    if !report.merged.is_empty() {
        let names: Vec<String> = report.merged.iter().map(|(_, all)| all.join(" = ")).collect();
        lines.push(format!(
            "{} people were in several directories: {}",
            names.len(),
            names.join(", ")
        ));
    }
    let twice = report.evaluation_duplicates.len();
    if twice > 0 {
        lines.push(format!(
            "{twice} pairs of images of the evaluation are the same photograph; they stay"
        ));
    }
    lines.join("\n")
}
