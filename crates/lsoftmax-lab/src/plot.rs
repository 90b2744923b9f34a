//! The curves of training runs on one page, from their logs.

use std::path::{Path, PathBuf};

use lsoftmax_data::shell_word;
use serde::Serialize;

use crate::figures::{Chart, Figure, FigureError, Page, Scale, Section, Series, chart_row};
use crate::run::{METRICS, Metric, Metrics, RECIPE, RunError};

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// A run's log.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The charts or the page.
    #[error(transparent)]
    Figure(#[from] FigureError),
}

impl PlotError {
    /// Whether other arguments would help; otherwise the machine failed.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Run(error) => error.is_bad_input(),
            Self::Figure(error) => error.is_bad_input(),
        }
    }
}

/// A page that was written.
#[derive(Clone, Debug, Serialize)]
pub struct Plotted {
    /// The page.
    pub out: String,
    /// The number of runs on it.
    pub runs: usize,
}

/// Writes a page with the training loss, the held-out error and, where the log has it, the test error of
/// runs by step.
///
/// # Errors
/// When a directory contains no run, its log is damaged, or the page cannot be written.
pub fn plot(runs: &[PathBuf], out: &Path) -> Result<Plotted, PlotError> {
    let names: Vec<_> = runs.iter().map(|run| shell_word(run)).collect();
    let page = Page {
        title: "Training runs".into(),
        introduction: Vec::new(),
        sections: vec![curves(runs)?],
        command: format!("lsoftmax plot {} --out {}", names.join(" "), shell_word(out)),
    };
    page.write(out)?;
    Ok(Plotted { out: out.display().to_string(), runs: runs.len() })
}

/// The curves of runs by step, as a section of a page.
pub(crate) fn curves(runs: &[PathBuf]) -> Result<Section, PlotError> {
    let (mut losses, mut errors, mut test_errors) = (Vec::new(), Vec::new(), Vec::new());
    for (run, name) in runs.iter().zip(names(runs)) {
        if !run.join(RECIPE).is_file() {
            return Err(RunError::NoRun { path: run.clone(), missing: RECIPE }.into());
        }
        // A run may have lost its log.
        let log = run.join(METRICS);
        let log = if log.is_file() { Metrics::read(&log)? } else { Vec::new() };
        let (mut loss, mut error, mut test_error) = (Vec::new(), Vec::new(), Vec::new());
        for metric in log {
            match metric {
                Metric::Training { step, means, .. } => loss.push((step, means.loss)),
                Metric::Validation { step, error: percent, .. } => error.push((step, percent)),
                Metric::Test { step, error: percent, .. } => test_error.push((step, percent)),
                Metric::Rollback(_) => {}
            }
        }
        losses.push(Series::by_step(name.clone(), loss));
        errors.push(Series::by_step(name.clone(), error));
        test_errors.push(Series::by_step(name, test_error));
    }
    let chart = |(title, mut series): (&str, Vec<Series>)| {
        series.retain(|series| !series.points.is_empty());
        let (title, x_title, scale) = (title.into(), "step".into(), Scale::Linear);
        Chart { title, x_title, scale, series, ..Chart::default() }
    };
    let charts =
        [("Training loss", losses), ("Held-out error, %", errors), ("Test error, %", test_errors)];
    let charts: Vec<Chart> =
        charts.into_iter().map(chart).filter(|chart| !chart.series.is_empty()).collect();
    let section = Section::new("curves", "");
    if charts.is_empty() {
        return Ok(section.paragraph("There is no log."));
    }
    // In one picture, so that a run has the same colour in all of them.
    Ok(section.figure(Figure::new("By step", chart_row(&charts)?)))
}

/// What runs are called: by the last part of the path, or by all of it if several have the same.
fn names(runs: &[PathBuf]) -> Vec<String> {
    let last = |run: &PathBuf| run.file_name().unwrap_or(run.as_os_str()).to_owned();
    let name = |run: &PathBuf| match runs.iter().filter(|other| last(other) == last(run)).count() {
        1 => last(run).to_string_lossy().into_owned(),
        _ => run.display().to_string(),
    };
    runs.iter().map(name).collect()
}
