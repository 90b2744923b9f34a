//! Training the missing runs one after the other, and recording each as soon as it ends.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{PlannedRun, Progress};
use crate::faces::{FaceError, LfwData, LfwResult};
use crate::recipe::Recipe;
use crate::records::{Diverged, LFW, Record, RecordError, Records};
use crate::run::{RECIPE, write_atomic};
use crate::train::{Event, Options, RunOutcome, TrainError, resume, start};

/// An event of the queue.
#[derive(Debug)]
pub enum QueueEvent<'a> {
    /// A run starts or resumes.
    Started {
        /// Its number in the queue, from 1.
        number: usize,
        /// The number of runs in the queue.
        runs: usize,
        /// The run.
        run: &'a PlannedRun,
    },
    /// The run's own events.
    Training(Event<'a>),
    /// The run ended and was recorded.
    Recorded {
        /// The run.
        run: &'a PlannedRun,
        /// Its test error in percent, unless it diverged.
        test_error: Option<f64>,
        /// Its accuracy on LFW's pairs, if that is its result.
        lfw: Option<&'a LfwResult>,
    },
    /// The run could not be made; the queue continues with the next.
    Failed {
        /// The run.
        run: &'a PlannedRun,
        /// Why.
        reason: String,
    },
}

/// How the queue ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueOutcome {
    /// The number of runs that were recorded.
    pub recorded: usize,
    /// The number of runs that could not be made.
    pub failed: usize,
    /// Whether it stopped before its end: by a signal, or because its time was over.
    pub interrupted: bool,
}

/// Why the queue or its tables could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// A run.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// A record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The verification of pairs of faces.
    #[error(transparent)]
    Faces(#[from] FaceError),
}

impl ReproduceError {
    /// Whether the input is at fault, rather than the system.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Train(error) => error.is_bad_input(),
            Self::Record(error) => error.is_bad_input(),
            Self::Faces(error) => error.is_bad_input(),
        }
    }
}

/// Makes the runs of a plan that have no record, each in its directory in `runs`, until `deadline`.
///
/// # Errors
/// When the records are invalid or cannot be written, or the machine fails. A run that cannot be made or recorded because of
/// its data, its recipe or another record is reported as an event, and the queue continues.
pub fn run(
    plan: &[PlannedRun],
    records: &mut Records,
    runs: &Path,
    options: &Options,
    deadline: Option<Instant>,
    observe: &mut dyn FnMut(QueueEvent<'_>),
) -> Result<QueueOutcome, ReproduceError> {
    let missing: Vec<&PlannedRun> =
        plan.iter().filter(|run| run.progress != Progress::Recorded).collect();
    let late = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    let mut outcome = QueueOutcome::default();
    for (index, run) in missing.iter().enumerate() {
        if late() || options.stop.load(Ordering::Relaxed) {
            outcome.interrupted = true;
            break;
        }
        // Another process may have made the run since the plan.
        records.refresh()?;
        if records.of(&run.recipe).iter().any(|record| record.recipe.seed == run.recipe.seed) {
            continue;
        }
        if let Some(reason) = obstacle(run, records, options) {
            outcome.failed += 1;
            observe(QueueEvent::Failed { run, reason });
            continue;
        }
        observe(QueueEvent::Started { number: index + 1, runs: missing.len(), run });
        let made = make(run, records, &runs.join(&run.id), options, &mut |event| {
            if matches!(event, Event::Stepped { .. }) && late() {
                options.stop.store(true, Ordering::Relaxed);
            }
            observe(QueueEvent::Training(event));
        });
        match made {
            Ok(Some(record)) => {
                outcome.recorded += 1;
                let (test_error, lfw) = (record.test_error(), record.lfw.as_deref());
                observe(QueueEvent::Recorded { run, test_error, lfw });
            }
            Ok(None) => {
                outcome.interrupted = true;
                break;
            }
            Err(error) if error.is_bad_input() => {
                outcome.failed += 1;
                observe(QueueEvent::Failed { run, reason: error.to_string() });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(outcome)
}

/// Why a run is not even started, if so.
fn obstacle(run: &PlannedRun, records: &Records, options: &Options) -> Option<String> {
    let path = records.path_of(&run.id);
    if path.exists() {
        return Some(RecordError::Exists { path }.to_string());
    }
    run.lfw.then(|| LfwData::new(&options.data)).as_ref().and_then(LfwData::missing)
}

/// Trains a run to its end and records it; `None` if it was interrupted.
fn make<'a>(
    run: &PlannedRun,
    records: &'a mut Records,
    directory: &Path,
    options: &Options,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<Option<&'a Record>, ReproduceError> {
    let mut done = 0;
    let ended = train(run, directory, options, &mut |event| {
        if let Event::Started { step, .. } | Event::Stepped { step } = event {
            done = step;
        }
        observe(event);
    });
    let record = match ended {
        Ok(RunOutcome::Interrupted { .. } | RunOutcome::NotBegun) => return Ok(None),
        Ok(RunOutcome::Done(_)) => {
            if run.lfw {
                let result = LfwData::new(&options.data).verify(directory, &options.device)?;
                let text = serde_json::to_string_pretty(&result).expect("plain values become JSON");
                write_atomic(&directory.join(LFW), &[text.as_bytes()])
                    .map_err(RecordError::from)?;
            }
            records.add(directory, &run.id)?
        }
        Err(error @ (TrainError::Divergence(_) | TrainError::RollbacksExhausted { .. })) => {
            let diverged = Diverged { step: done, reason: error.to_string() };
            records.add_diverged(directory, &run.id, diverged)?
        }
        Err(error) => return Err(error.into()),
    };
    Ok(Some(record))
}

/// Starts a run, or resumes it if it was interrupted.
fn train(
    run: &PlannedRun,
    directory: &Path,
    options: &Options,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<RunOutcome, TrainError> {
    let file = directory.join(RECIPE);
    if !file.is_file() {
        return start(run.recipe.clone(), directory, options, observe);
    }
    let begun = Recipe::from_file(&file)?;
    if begun.seed != run.recipe.seed || !begun.is_same_experiment(&run.recipe) {
        return Err(TrainError::Resume(format!(
            "{} was started with another recipe; remove that directory to start over",
            directory.display()
        )));
    }
    resume(directory, options, observe)
}
