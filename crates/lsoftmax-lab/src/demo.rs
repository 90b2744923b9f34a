//! A demonstration: trains the networks of Figure 2 of the paper and draws the figure.
//!
//! The paper's network with two features learns MNIST with m = 1, 2, 3 and 4. The larger the margin,
//! the narrower the classes and the wider the empty space between them.

use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lsoftmax::Margin;
use lsoftmax_data::MNIST;
use serde::Serialize;

use crate::bench::BenchError;
use crate::estimate::Estimator;
use crate::evaluate::{EvaluateError, ImageOutput, argmax, for_each_image_watched};
use crate::figures::{
    Cell, ClassAngles, Embedding, Figure, FigureError, Page, Panel, Picture, Section, Table,
    scatter,
};
use crate::head::HeadSettings;
use crate::inference::InferenceError;
use crate::model_file::TrainedModel;
use crate::recipe::Recipe;
use crate::run::{RECIPE, SUMMARY};
use crate::train::{Event, Options, RunOutcome, TrainError, resume, start};

/// The margins of the demonstration.
pub const MARGINS: [f64; 4] = [1.0, 2.0, 3.0, 4.0];

/// The result of the demonstration.
#[derive(Clone, Debug, Serialize)]
pub struct Demo {
    /// One row per margin.
    pub rows: Vec<DemoRow>,
    /// The HTML page with the table and the figure.
    pub report: PathBuf,
}

/// The result for one margin.
#[derive(Clone, Debug, Serialize)]
pub struct DemoRow {
    /// The margin m.
    pub margin: Margin,
    /// The test accuracy in percent.
    pub accuracy: f64,
    /// Angles between features and classes, on the test images.
    #[serde(flatten)]
    pub angles: ClassAngles,
}

/// Why the demonstration failed.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// Training failed.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// A trained model could not be used.
    #[error(transparent)]
    Inference(#[from] InferenceError),
    /// The speed of this machine could not be measured.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The figure or the page could not be written.
    #[error(transparent)]
    Figure(#[from] FigureError),
}

impl DemoError {
    /// Whether the input is at fault, rather than the system.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Train(error) => error.is_bad_input(),
            Self::Inference(error) => error.is_bad_input(),
            Self::Bench(_) => true,
            Self::Figure(error) => error.is_bad_input(),
        }
    }
}

/// The duration of the runs in `out` that are not done, estimated from a training step on this machine.
///
/// # Errors
/// When the recipe is invalid or the kernel path is unavailable.
pub fn duration(out: &Path) -> Result<Duration, DemoError> {
    let recipe = Recipe::quick("mnist-2d").map_err(TrainError::from)?;
    let is_done = |margin: &f64| out.join(format!("m{margin}")).join(SUMMARY).is_file();
    let missing = MARGINS.iter().filter(|margin| !is_done(margin)).count();
    Ok(Estimator::default().duration(&recipe)? * missing as u32)
}

/// Trains one network per margin in `out`, evaluates them and draws the figure. Margins that were
/// trained there before are not trained again.
///
/// Returns `None` if it was interrupted.
///
/// # Errors
/// When the directory cannot be written to.
pub fn run(
    out: &Path,
    options: &Options,
    observe: &mut dyn FnMut(Margin, Event<'_>),
) -> Result<Option<Demo>, DemoError> {
    let mut evaluated = Vec::new();
    for margin in MARGINS {
        let margin = Margin::new(margin).expect("an integer is a margin");
        let run = out.join(format!("m{margin}"));
        let mut observe = |event: Event<'_>| observe(margin, event);
        let ended = if run.join(RECIPE).is_file() {
            resume(&run, options, &mut observe)?
        } else {
            let recipe = Recipe::quick("mnist-2d").map_err(TrainError::from)?;
            let recipe = recipe.with_head(HeadSettings::l_softmax(margin));
            start(recipe, &run, options, &mut observe)?
        };
        if let RunOutcome::Interrupted { .. } | RunOutcome::NotBegun = ended {
            return Ok(None);
        }
        match TestFeatures::of(&run, options) {
            Err(InferenceError::Evaluate(EvaluateError::Interrupted)) => return Ok(None),
            features => evaluated.push((margin, features?)),
        }
    }
    let mut rows = Vec::new();
    let mut panels = Vec::new();
    for (margin, test) in &evaluated {
        let embedding = Embedding::new(&test.features, &test.labels, &test.weights, 2)?;
        let angles = ClassAngles::of(&embedding)?;
        let accuracy = 100.0 * test.correct as f64 / test.labels.len() as f64;
        let title = format!("m = {margin}, {accuracy:.1} % test accuracy");
        rows.push(DemoRow { margin: *margin, accuracy, angles });
        panels.push(Panel { title, embedding });
    }
    let classes: Vec<String> = (0..10).map(|digit| digit.to_string()).collect();
    let picture = scatter(&panels, &classes)?;
    let demo = Demo { rows, report: out.join("report.html") };
    picture.write(out.join("figure2.svg"))?;
    demo.page(picture).write(&demo.report)?;
    Ok(Some(demo))
}

/// The outputs of a model for the test images.
struct TestFeatures {
    features: Vec<f32>,
    labels: Vec<u32>,
    weights: Vec<f32>,
    correct: usize,
}

impl TestFeatures {
    fn of(run: &Path, options: &Options) -> Result<Self, InferenceError> {
        let TrainedModel { model, description } = TrainedModel::read(run, &options.device)?;
        let digits = MNIST.read(&options.data)?;
        let images = Arc::new(digits.test.expect("MNIST has test images"));
        let (mut features, mut correct) = (Vec::new(), 0);
        let visit = |outcome: &ImageOutput| {
            features.extend_from_slice(&outcome.features);
            correct += usize::from(argmax(&outcome.logits) == outcome.label as usize);
        };
        let mut watch = |_| match options.stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        for_each_image_watched(&model, &images, &description.mean, visit, &mut watch)?;
        let weights = model.head.weight.val().into_data().iter::<f32>().collect();
        Ok(Self { features, labels: images.labels().to_vec(), weights, correct })
    }
}

const HEAD: [&str; 5] =
    ["m", "test accuracy", "angle to own class", "spread of a class", "angular margin"];

impl DemoRow {
    fn cells(&self) -> [String; 5] {
        let ClassAngles { own, spread, margin, .. } = self.angles;
        [
            self.margin.to_string(),
            format!("{:.2} %", self.accuracy),
            format!("{own:.1}°"),
            format!("{spread:.1}°"),
            format!("{margin:.1}°").replace('-', "−"),
        ]
    }
}

impl Demo {
    fn page(&self, picture: Picture) -> Page {
        let table = Table {
            caption: "On the 10,000 test images".into(),
            head: HEAD.map(String::from).to_vec(),
            rows: self.rows.iter().map(|row| row.cells().map(Cell::from).to_vec()).collect(),
            ..Table::default()
        };
        let caption = "Features of 2,000 test images for each margin (Figure 2 of the paper)";
        let figure = Figure { files: vec!["figure2.svg".into()], ..Figure::new(caption, picture) };
        Page {
            title: "Large-margin softmax on MNIST".into(),
            introduction: vec![
                "The paper's network with two features, trained on MNIST with margins of 1 (softmax) to 4. \
                 Every dot is a test image, every colour a digit, every line the weights of a class."
                    .into(),
                "Angular margin: how much nearer a feature is, in angle, to its own class than to the next."
                    .into(),
            ],
            sections: vec![Section::new("results", "").table(table).figure(figure)],
            command: "lsoftmax".into(),
        }
    }
}

impl fmt::Display for Demo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<[String; 5]> = self.rows.iter().map(DemoRow::cells).collect();
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0).max(HEAD[column].chars().count())
        };
        let line = |cells: &[String]| {
            let cells = cells.iter().enumerate();
            cells.map(|(i, cell)| format!("{cell:>width$}", width = width(i))).collect::<Vec<_>>()
        };
        writeln!(f, "{}", line(&HEAD.map(String::from)).join("  "))?;
        for row in &rows {
            writeln!(f, "{}", line(row).join("  "))?;
        }
        write!(
            f,
            "\n{} has the pictures.\nNext: `lsoftmax train mnist --quick`, `lsoftmax train --list`, `lsoftmax --help`.",
            self.report.display()
        )
    }
}
