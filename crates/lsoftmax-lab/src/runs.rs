//! The runs in a directory: what each is, how far it is, and its result.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use lsoftmax_data::DataSource;
use serde::Serialize;

use crate::figures::{Cell, Page, Section, Table};
use crate::head::HeadSettings;
use crate::plot::{PlotError, curves};
use crate::recipe::Recipe;
use crate::run::{
    LOCK, METRICS, Metric, Metrics, RECIPE, RunError, SUMMARY, newest_step, read_json,
};
use crate::train::RunSummary;

/// Runs are found in directories at most this deep.
const DEPTH: usize = 4;

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// All steps were taken; there is a model.
    Done,
    /// A process is training it.
    Running,
    /// It was stopped or killed, or has diverged, and can be resumed.
    Stopped,
    /// Its recipe, summary or log cannot be read.
    Damaged,
}

impl RunState {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Damaged => "damaged",
        }
    }
}

/// A run at a glance.
#[derive(Clone, Debug, Serialize)]
pub struct RunListing {
    /// Its directory.
    pub run: PathBuf,
    /// How far it is.
    pub state: RunState,
    /// What cannot be read, if it is damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What it trains.
    #[serde(flatten)]
    pub setup: Option<RunSetup>,
    /// The number of steps that it has taken: while it is running those in its log, else those that are kept,
    /// after which it would resume.
    pub step: u64,
    /// The last error on the held-out images, in percent.
    pub validation_error: Option<f64>,
    /// The smallest error on the held-out images so far, in percent.
    pub best_validation_error: Option<f64>,
    /// The error on the test images in percent, when it is done.
    pub test_error: Option<f64>,
    /// The last training loss.
    pub loss: Option<f64>,
    /// The training time in seconds, when it is done.
    pub seconds: Option<f64>,
}

/// What a run trains, by its recipe.
#[derive(Clone, Debug, Serialize)]
pub struct RunSetup {
    /// The name of the recipe.
    pub recipe: String,
    /// The data.
    pub data: DataSource,
    /// The head.
    pub head: HeadSettings,
    /// The seed.
    pub seed: u64,
    /// The number of steps to take.
    pub steps: u64,
}

/// The runs in a directory and those below it, by name; or the run itself, if the directory is one.
///
/// # Errors
/// When the directory cannot be read.
pub fn list_runs(directory: &Path) -> Result<Vec<RunListing>, RunError> {
    let mut found = Vec::new();
    find(directory, DEPTH, &mut found)?;
    Ok(found.iter().map(|run| RunListing::of(run)).collect())
}

/// Adds the directories of runs at or below a directory.
fn find(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), RunError> {
    if directory.join(RECIPE).is_file() {
        found.push(directory.to_owned());
        return Ok(());
    }
    let entries = fs::read_dir(directory).map_err(RunError::io(directory, "read"))?;
    let mut directories: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    directories.sort();
    for inner in directories.iter().filter(|_| depth > 0) {
        // What cannot be read below is not a run of ours.
        let _ = find(inner, depth - 1, found);
    }
    Ok(())
}

impl RunListing {
    /// Reads what the files of a run say.
    pub fn of(run: &Path) -> Self {
        let mut listing = Self {
            run: run.to_owned(),
            state: if is_locked(run) { RunState::Running } else { RunState::Stopped },
            problem: None,
            setup: None,
            step: 0,
            validation_error: None,
            best_validation_error: None,
            test_error: None,
            loss: None,
            seconds: None,
        };
        if let Err(problem) = listing.read() {
            (listing.state, listing.problem) = (RunState::Damaged, Some(problem));
        }
        listing
    }

    fn read(&mut self) -> Result<(), String> {
        let recipe =
            Recipe::from_file(&self.run.join(RECIPE)).map_err(|error| error.to_string())?;
        let Recipe { name, data, head, seed, steps, .. } = recipe;
        self.setup = Some(RunSetup { recipe: name, data, head, seed, steps });
        let log = self.run.join(METRICS);
        if log.is_file() {
            let metrics = Metrics::read(&log).map_err(|error| error.to_string())?;
            metrics.iter().for_each(|metric| self.add(metric));
        }
        if self.state == RunState::Stopped {
            self.step = newest_step(&self.run).map_err(|error| error.to_string())?;
        }
        let summary = self.run.join(SUMMARY);
        if summary.is_file() {
            let summary: RunSummary = read_json(&summary).map_err(|error| error.to_string())?;
            self.state = RunState::Done;
            self.step = summary.steps;
            self.seconds = Some(summary.seconds);
            self.test_error = summary.test.map(|test| test.error);
            self.validation_error = summary.validation.map(|found| found.error);
        }
        Ok(())
    }

    /// Takes a line of the log into account.
    fn add(&mut self, metric: &Metric) {
        match metric {
            Metric::Training { step, means, .. } => {
                (self.step, self.loss) = (*step, Some(means.loss));
            }
            Metric::Validation { step, error, .. } => {
                (self.step, self.validation_error) = (*step, Some(*error));
                let best = self.best_validation_error.unwrap_or(f64::INFINITY);
                self.best_validation_error = Some(best.min(*error));
            }
            Metric::Rollback(rollback) => self.step = rollback.to,
            Metric::Test { .. } => {}
        }
    }
}

/// Whether a process is training the run.
fn is_locked(run: &Path) -> bool {
    let lock = File::open(run.join(LOCK));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// A page with a table of runs and their curves.
///
/// # Errors
/// When there is no run, its log is damaged, or a picture cannot be drawn.
pub fn comparison_page(
    listings: &[RunListing],
    table: &[Vec<String>],
    command: String,
) -> Result<Page, PlotError> {
    let (head, rows) =
        table.split_first().map_or((&[][..], &[][..]), |(head, rows)| (&head[..], rows));
    let results = Table {
        head: head.to_vec(),
        rows: rows.iter().map(|row| row.iter().cloned().map(Cell::from).collect()).collect(),
        ..Table::default()
    };
    let runs: Vec<PathBuf> = listings.iter().map(|listing| listing.run.clone()).collect();
    Ok(Page {
        title: "Runs side by side".into(),
        introduction: Vec::new(),
        sections: vec![
            Section::new("results", "Results").table(results),
            Section { heading: "Curves".into(), ..curves(&runs)? },
        ],
        command,
    })
}
