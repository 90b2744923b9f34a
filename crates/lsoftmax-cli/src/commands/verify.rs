//! `lsoftmax verify`.

use std::path::{Path, PathBuf};

use clap::Args;
use lsoftmax_faces::{Protocol, Roc, Verification};
use lsoftmax_lab::faces::{self, FaceError, PairsOfImages, Verified};
use lsoftmax_mpi::Session;
use serde::Serialize;

use crate::argument_groups::{DeviceArgument, OutputArguments};
use crate::failure::Failure;
use crate::help::EXIT_CODES;
use crate::output::write_picture;
use crate::value_parsers::{one_of, picture_file, size};

const EXAMPLES: &str = "\
Examples:
  lsoftmax verify runs/faces --images lfw-aligned --pairs lfw/pairs.txt --protocol paper,sphereface --roc roc.png
  lsoftmax verify --embeddings e.npy --pairs pairs.csv --protocol insightface --json
  lsoftmax verify --embeddings e.npy --pairs pairs.csv --protocol sphereface,best-threshold --roc roc.svg

pairs.csv has a header and the columns left,right,same,fold: row numbers from 0, 0 or 1, folds from 0.

Protocols:
  sphereface      minus the mean of the training folds; cosine; 20,001 thresholds, the mean of the best
  insightface     length 1; squared distance; thresholds 0, 0.01 … 3.99, the first of the best
  best-threshold  cosine; the best threshold of all pairs, which has seen the answers
  paper           principal components of the training folds; cosine; the threshold as sphereface

With a model, the features of an image and its mirror image are concatenated for sphereface and added for insightface and
best-threshold; paper takes those of the image alone.
docs/faces.md says what each of them measures.";

/// Verify pairs of faces: accuracy over folds, thresholds, ROC
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct VerifyCommand {
    /// The run whose model makes features of the images
    #[arg(value_name = "RUN", required_unless_present = "embeddings", requires = "images")]
    run: Option<PathBuf>,
    /// The folder of aligned images, one directory per person
    #[arg(long, value_name = "FOLDER", requires = "run")]
    images: Option<PathBuf>,
    /// Embeddings, one row per image, instead of a model and images
    #[arg(long, value_name = "FILE.npy", conflicts_with_all = ["run", "images", "contact_sheet"])]
    embeddings: Option<PathBuf>,
    /// The pairs: LFW's pairs.txt for images, a table for embeddings
    #[arg(long, value_name = "FILE")]
    pairs: PathBuf,
    /// The protocol, or several
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "sphereface", value_parser = one_of(Protocol::ALL))]
    protocol: Vec<Protocol>,
    /// The number of principal components of the protocol `paper` [default: 128, or all if there are fewer]
    #[arg(long, value_name = "N", value_parser = size)]
    pca: Option<usize>,
    /// Draw the ROC curves, as .svg or .png
    #[arg(long, value_name = "FILE", value_parser = picture_file())]
    roc: Option<PathBuf>,
    /// Draw the pairs that the first protocol got most wrong, as .svg or .png
    #[arg(long, value_name = "FILE", value_parser = picture_file())]
    contact_sheet: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgument,
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
    pub fn run(self, session: &Session) -> Result<String, Failure> {
        let protocols = &self.protocol;
        let verified = match (&self.embeddings, &self.run, &self.images) {
            (None, Some(run), Some(images)) => {
                let source = PairsOfImages { images, pairs: &self.pairs };
                let (device, ranks) = (&self.device.device, session.comm());
                faces::verify_images(run, source, protocols, self.pca, device, ranks)?
            }
            (Some(embeddings), ..) => {
                faces::verify_embeddings(embeddings, &self.pairs, protocols, self.pca)?
            }
            _ => return Err(Failure::bad_input("give a run and --images, or --embeddings")),
        };
        if !session.comm().is_first() {
            return Ok(String::new());
        }
        if let Some(path) = &self.roc {
            draw(&verified, path)?;
        }
        if let Some(path) = &self.contact_sheet {
            let worst = verified.picture_of_worst(&verified.results[0])?;
            write_picture(&worst, path).map_err(FaceError::from)?;
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
    Ok(write_picture(&picture, path).map_err(FaceError::from)?)
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
    if let Some(pca) = &result.pca {
        let [least, most] = [f64::min, f64::max]
            .map(|choose| pca.explained_variance.iter().copied().reduce(choose).unwrap_or(1.0));
        lines.push(format!(
            "PCA         {} components with {:.1} to {:.1} % of the variance",
            pca.dimension,
            100.0 * least,
            100.0 * most
        ));
    }
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
