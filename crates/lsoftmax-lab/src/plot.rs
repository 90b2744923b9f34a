//! The curves of training runs on one page, from their logs.

use std::path::{Path, PathBuf};

use lsoftmax_data::shell_word;
use serde::Serialize;

use crate::figures::{Chart, Figure, FigureError, Page, Scale, Section, Series};
use crate::run::{METRICS, Metric, Metrics, RunError};

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
/// When a directory holds no run, its log is damaged, or the page cannot be written.
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
    for run in runs {
        let log = run.join(METRICS);
        if !log.is_file() {
            return Err(RunError::NoRun { path: run.clone(), missing: METRICS }.into());
        }
        let (mut loss, mut error, mut test_error) = (Vec::new(), Vec::new(), Vec::new());
        for metric in Metrics::read(&log)? {
            match metric {
                Metric::Training { step, means, .. } => loss.push((step, means.loss)),
                Metric::Validation { step, error: percent, .. } => error.push((step, percent)),
                Metric::Test { step, error: percent, .. } => test_error.push((step, percent)),
                Metric::Rollback(_) => {}
            }
        }
        let name = run.file_name().unwrap_or(run.as_os_str()).to_string_lossy().into_owned();
        losses.push(Series::by_step(name.clone(), loss));
        errors.push(Series::by_step(name.clone(), error));
        test_errors.push(Series::by_step(name, test_error));
    }
    let charts = [
        ("loss", "Training loss", losses),
        ("error", "Held-out error, %", errors),
        ("test-error", "Test error, %", test_errors),
    ];
    let mut section = Section::new("curves", "");
    for (id, title, mut series) in charts {
        series.retain(|series| !series.points.is_empty());
        if series.is_empty() {
            continue;
        }
        let chart = Chart {
            title: title.into(),
            x_title: "step".into(),
            scale: Scale::Linear,
            series,
            ..Chart::default()
        };
        let figure = Figure::new(format!("{title} by step"), chart.draw()?);
        section = section.figure(Figure { id: id.into(), ..figure });
    }
    Ok(section)
}
