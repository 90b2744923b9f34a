//! `lsoftmax eval`.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clap::Args;
use lsoftmax_data::files::resolved;
use lsoftmax_data::{DataDir, DataSource, Split, shell_word};
use lsoftmax_lab::analysis::{
    Analysis, AnalysisOptions, AnalysisPhase, ClassScores, Classification, ConfusedPair,
    EvaluationReport, Retrieval, TopK, WatchAnalysis,
};
use lsoftmax_lab::figures::Picture;
use lsoftmax_lab::inference::InferenceError;
use lsoftmax_mpi::Session;

use crate::argument_groups::{DataDirArgument, DeviceArgument, OutputArguments};
use crate::failure::Failure;
use crate::help::WATCHED_EXIT_CODES;
use crate::output::{printable, write_picture};
use crate::progress::ImageProgress;
use crate::signals::stop_flag;
use crate::text_table::text_table;
use crate::value_parsers::{output_file, picture_file, size_of_at_least_1, split};

const EXAMPLES: &str = "\
Examples:
  lsoftmax eval runs/mnist                              on the test images of its own data
  lsoftmax eval runs/mnist --details                    scores by class, and the confusion matrix
  lsoftmax eval runs/mnist --page mnist.html            the same with pictures, neighbours and curves
  lsoftmax eval runs/mnist --wrong wrong.png            the most wrong images side by side
  lsoftmax eval runs/mnist --data my-digits/ --json     on your own images, in directories 0 to 9";

/// The default of `--top-k`.
const TOP_K: usize = 5;
/// The default of `--wrong-count`.
const WRONG_COUNT: usize = 24;

/// Evaluate the model of a run
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{WATCHED_EXIT_CODES}"))]
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
    /// Print the scores of every class, and the confusion matrix
    #[arg(long)]
    details: bool,
    /// How often the label is among the K largest logits
    #[arg(long, value_name = "K", default_value_t = TOP_K, value_parser = size_of_at_least_1, allow_negative_numbers = true)]
    top_k: usize,
    /// Search the nearest neighbours of every image: recall@1, recall@5 and mean average precision of the
    /// features; --page does so, too
    #[arg(long)]
    retrieval: bool,
    /// Write a page with all scores, pictures and the curves of the training
    #[arg(long, value_name = "FILE", value_parser = output_file())]
    page: Option<PathBuf>,
    /// Draw the confusion matrix, as .svg or .png
    #[arg(long, value_name = "FILE", value_parser = picture_file())]
    confusion: Option<PathBuf>,
    /// Draw the most wrong images side by side, as .svg or .png
    #[arg(long, value_name = "FILE", value_parser = picture_file())]
    wrong: Option<PathBuf>,
    /// How many of the most wrong images are listed and drawn
    #[arg(long, value_name = "N", default_value_t = WRONG_COUNT, value_parser = size_of_at_least_1, allow_negative_numbers = true)]
    wrong_count: usize,
    #[command(flatten)]
    data_dir: DataDirArgument,
    #[command(flatten)]
    device: DeviceArgument,
    #[command(flatten)]
    output: OutputArguments,
}

impl EvalCommand {
    pub fn run(self, session: &Session) -> Result<String, Failure> {
        let files: Vec<PathBuf> = [&self.page, &self.confusion, &self.wrong]
            .into_iter()
            .flatten()
            .map(|path| resolved(path))
            .collect();
        if let Some(twice) = files.iter().enumerate().find(|(at, path)| files[..*at].contains(path))
        {
            return Err(Failure::bad_input(format!(
                "{} would be written twice; give --page, --confusion and --wrong different files",
                twice.1.display()
            )));
        }
        let data_dir = self.data_dir.clone().find()?;
        let options = AnalysisOptions {
            top_k: self.top_k,
            retrieval: self.retrieval || self.page.is_some(),
            most_wrong: self.wrong_count,
        };
        let (data, device) = (self.data.as_ref(), &self.device.device);
        let (ranks, split) = (session.comm(), self.split);
        let analysis = watched(ranks.size(), |watch| {
            Analysis::of_run(&self.run, data, split, &data_dir, device, ranks, options, watch)
        })?;
        if !ranks.is_first() {
            return Ok(String::new());
        }
        let mut written = Vec::new();
        if let Some(path) = &self.page {
            analysis.page(&self.run, self.command(path, &data_dir))?.write(path)?;
            written.push(path.display().to_string());
        }
        for (path, picture, none) in [
            (&self.confusion, Analysis::confusion_picture as Drawing, "too many classes to draw"),
            (&self.wrong, Analysis::contact_sheet, "no image is wrong"),
        ] {
            let Some(path) = path else { continue };
            match picture(&analysis)? {
                Some(picture) => {
                    write_picture(&picture, path)?;
                    written.push(printable(&path.display().to_string()));
                }
                None => written.push(format!("{} was not written: {none}", path.display())),
            }
        }
        self.output.render(&analysis.report, |report| {
            let mut lines = vec![summary(report)];
            if self.details {
                lines.push(details(&report.classification));
            }
            lines.extend(written);
            lines.join("\n")
        })
    }

    /// The command that makes the page again.
    fn command(&self, page: &Path, data_dir: &DataDir) -> String {
        let mut command = format!("lsoftmax eval {}", shell_word(&self.run));
        if let Some(data) = &self.data {
            command.push_str(&format!(" --data {}", shell_word(Path::new(&data.to_string()))));
        }
        if self.split == Split::Train {
            command.push_str(" --split train");
        }
        for (option, value, default) in
            [("--top-k", self.top_k, TOP_K), ("--wrong-count", self.wrong_count, WRONG_COUNT)]
        {
            if value != default {
                command.push_str(&format!(" {option} {value}"));
            }
        }
        format!("{command}{} --page {}", data_dir.option(), shell_word(page))
    }
}

/// Analyses with progress bars, until a signal stops it. Several ranks are stopped by what has started them: one that
/// stops by itself would leave the others waiting.
fn watched(
    ranks: usize,
    analyse: impl FnOnce(&mut WatchAnalysis<'_>) -> Result<Analysis, InferenceError>,
) -> Result<Analysis, Failure> {
    let stop = if ranks == 1 { stop_flag()? } else { Arc::default() };
    let (reading, evaluating) = (ImageProgress::new("read"), ImageProgress::new("evaluated"));
    let found = analyse(&mut |phase, done, total| {
        match phase {
            AnalysisPhase::Reading => reading.show(done, total),
            AnalysisPhase::Evaluating => {
                reading.finish();
                evaluating.show(done, total);
            }
        }
        match stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    reading.finish();
    evaluating.finish();
    found.map_err(|error| match error.is_interrupted() {
        true => Failure::interrupted("stopped before the end; nothing was written"),
        false => error.into(),
    })
}

/// Draws something of an analysis, if there is something to draw.
type Drawing = fn(&Analysis) -> Result<Option<Picture>, lsoftmax_lab::figures::FigureError>;

fn summary(report: &EvaluationReport) -> String {
    let EvaluationReport { data, split, evaluation, classification, retrieval, .. } = report;
    let mut lines = vec![format!(
        "{}, {split}: {:.2} % wrong ({} of {} images), cross-entropy {:.4}, {:.1}° to the class on average",
        printable(&data.to_string()),
        evaluation.error,
        evaluation.wrong,
        evaluation.images,
        evaluation.loss,
        evaluation.angle
    )];
    let Classification { top, precision, recall, f1, confused, .. } = classification;
    let top = top.iter().map(|TopK { k, accuracy }| format!("top {k}: {}", percent(*accuracy)));
    lines.push(format!(
        "{}; mean of classes: precision {}, recall {}, F1 {}",
        top.collect::<Vec<_>>().join(", "),
        percent(*precision),
        percent(*recall),
        percent(*f1)
    ));
    if !confused.is_empty() {
        let pair = |ConfusedPair { label, predicted, images }: &ConfusedPair| {
            format!("{} as {} ({images})", printable(label), printable(predicted))
        };
        let pairs: Vec<String> = confused.iter().take(5).map(pair).collect();
        lines.push(format!("most confused: {}", pairs.join(", ")));
    }
    if let Some(Retrieval { recall_at_1, recall_at_5, mean_average_precision, .. }) = retrieval {
        lines.push(format!(
            "nearest neighbours: recall@1 {}, recall@5 {}, mean average precision {}",
            percent(*recall_at_1),
            percent(*recall_at_5),
            percent(*mean_average_precision)
        ));
    }
    lines.join("\n")
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// A wider matrix would not fit a terminal.
const MOST_COLUMNS: usize = 25;

/// The scores of every class, and the confusion matrix or, for many classes, the most confused pairs.
fn details(Classification { per_class, confusion, confused, .. }: &Classification) -> String {
    let mut rows = vec![
        ["class", "images", "predicted", "precision", "recall", "F1"].map(String::from).to_vec(),
    ];
    for ClassScores { name, images, predicted, precision, recall, f1 } in per_class {
        let scores = [precision, recall, f1].map(|score| percent(*score));
        let counts = [printable(name), images.to_string(), predicted.to_string()];
        rows.push([counts, scores].concat());
    }
    let mut parts = vec![text_table(&rows)];
    if (1..=MOST_COLUMNS).contains(&confusion.len()) {
        let names: Vec<String> = per_class.iter().map(|scores| printable(&scores.name)).collect();
        let mut rows = vec![[vec!["label \\ predicted".to_owned()], names.clone()].concat()];
        for (name, counts) in names.iter().zip(confusion) {
            let counts =
                counts.iter().map(|count| if *count == 0 { "·".into() } else { count.to_string() });
            rows.push([name.clone()].into_iter().chain(counts).collect());
        }
        parts.push(text_table(&rows));
    } else if !confused.is_empty() {
        let mut rows = vec![["label", "predicted", "images"].map(String::from).to_vec()];
        rows.extend(confused.iter().map(|ConfusedPair { label, predicted, images }| {
            vec![printable(label), printable(predicted), images.to_string()]
        }));
        parts.push(text_table(&rows));
    }
    format!("\n{}\n", parts.join("\n\n"))
}
