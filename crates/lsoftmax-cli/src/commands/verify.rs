//! `lsoftmax verify`.

use std::path::{Path, PathBuf};

use clap::Args;
use lsoftmax_faces::{Protocol, Roc, Verification};
use lsoftmax_lab::faces::{self, FaceError, Verified};
use serde::Serialize;

use crate::argument_groups::OutputArguments;
use crate::failure::Failure;
use crate::help::EXIT_CODES;
use crate::value_parsers::one_of;

const EXAMPLES: &str = "\
Examples:
  lsoftmax verify --embeddings e.npy --pairs pairs.csv --protocol insightface --json
  lsoftmax verify --embeddings e.npy --pairs pairs.csv --protocol sphereface,best-threshold --roc roc.svg

pairs.csv has a header and the columns left,right,same,fold: row numbers from 0, 0 or 1, folds from 0.
Protocols:
  sphereface      minus the mean of the training folds; cosine; 20,001 thresholds, the mean of the best
  insightface     length 1; squared distance; thresholds 0, 0.01 … 3.99, the first of the best
  best-threshold  cosine; the best threshold of all pairs, which has seen the answers
docs/faces.md says what each of them measures.";

/// Verify pairs of faces: accuracy over folds, thresholds, ROC
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct VerifyCommand {
    /// Embeddings, one row per image
    #[arg(long, value_name = "FILE.npy")]
    embeddings: PathBuf,
    /// The pairs
    #[arg(long, value_name = "FILE")]
    pairs: PathBuf,
    /// The protocol, or several
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "sphereface", value_parser = one_of(Protocol::ALL))]
    protocol: Vec<Protocol>,
    /// Draw the ROC curves, as .svg or .png
    #[arg(long, value_name = "FILE")]
    roc: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArguments,
}

/// A verification as it is printed.
#[derive(Debug, Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    result: &'a Verification,
    /// The thresholds of the folds.
    thresholds: Vec<f64>,
}

impl VerifyCommand {
    pub fn run(self) -> Result<String, Failure> {
        let verified = faces::verify_embeddings(&self.embeddings, &self.pairs, &self.protocol)?;
        if let Some(path) = &self.roc {
            draw(&verified, path)?;
        }
        let print = |result| Printed {
            result,
            thresholds: result.folds.iter().map(|fold| fold.threshold).collect(),
        };
        let printed: Vec<Printed<'_>> = verified.results.iter().map(print).collect();
        match &printed[..] {
            [one] => self.output.render(one, |one| text(one.result)),
            several => self.output.render(several, |several| {
                several.iter().map(|one| text(one.result)).collect::<Vec<_>>().join("\n\n")
            }),
        }
    }
}

fn draw(verified: &Verified, path: &Path) -> Result<(), Failure> {
    let same: Vec<bool> = verified.pairs.iter().map(|pair| pair.same).collect();
    let curve = |result: &Verification| {
        Roc::of(&result.scores, &same).map(|roc| (result.protocol.name().to_owned(), roc))
    };
    let curves: Vec<_> = verified.results.iter().filter_map(curve).collect();
    if curves.is_empty() {
        return Err(Failure::bad_input(
            "--roc: all pairs are of one kind, so there is no curve; add pairs of the other kind",
        ));
    }
    let picture = faces::roc_figure("Verification of pairs", &curves).map_err(FaceError::from)?;
    let written = match path.extension().and_then(|extension| extension.to_str()) {
        Some("png") => picture.write_png(path, 2.0),
        _ => picture.write(path),
    };
    Ok(written.map_err(FaceError::from)?)
}

fn text(result: &Verification) -> String {
    let Verification {
        protocol, pairs, accuracy, standard_error, folds, auc, eer, tar_at_far, ..
    } = result;
    let error = standard_error.map_or(String::new(), |error| format!(" ± {:.2}", 100.0 * error));
    let kind = if protocol.is_distance() { "squared distances" } else { "cosines" };
    let thresholds: Vec<String> =
        folds.iter().map(|fold| format!("{:.4}", fold.threshold)).collect();
    let mut lines = vec![
        format!(
            "accuracy    {:.2}{error} %  ({}, {pairs} pairs in {} folds)",
            100.0 * accuracy,
            protocol.name(),
            folds.len()
        ),
        format!("thresholds  {}  ({kind})", thresholds.join(" ")),
    ];
    if let (Some(auc), Some(eer), Some(tar)) = (auc, eer, tar_at_far) {
        lines.push(format!(
            "AUC {auc:.4}, EER {:.2} %; true accepts {:.2} % at FAR 0.1, {:.2} % at 0.01, {:.2} % at 0.001",
            100.0 * eer,
            100.0 * tar.one_in_10,
            100.0 * tar.one_in_100,
            100.0 * tar.one_in_1000
        ));
    } else {
        lines.push("all pairs are of one kind: no AUC, EER or true accept rates".into());
    }
    lines.join("\n")
}
