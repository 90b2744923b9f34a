//! Reading and writing records.

use std::fs;
use std::path::{Path, PathBuf};

use lsoftmax_data::files::{UNFINISHED, remove_directory};
use lsoftmax_data::shell_word;
use serde::{Deserialize, Serialize};

use crate::faces::LfwResult;
use crate::objective::BatchMetrics;
use crate::recipe::{Recipe, RecipeError};
use crate::run::{
    ENVIRONMENT, Environment, METRICS, Metric, Metrics, RECIPE, RunError, SUMMARY, TEST, read_json,
    write_atomic,
};
use crate::test_details::TestDetails;
use crate::train::RunSummary;

/// The directory of the runs' records, in the directory of all records.
const RUNS: &str = "runs";
/// When and how training diverged.
const DIVERGED: &str = "diverged.json";
/// The accuracy on LFW's pairs, in a run and in its record.
pub const LFW: &str = "lfw.json";
/// The largest number of training lines in a record's log.
const MOST_LINES: usize = 150;

/// A finished run.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The name of its directory.
    pub id: String,
    /// The recipe as it was run.
    pub recipe: Recipe,
    /// The machine and the program version.
    pub environment: Environment,
    /// The log, thinned.
    pub log: Vec<Metric>,
    /// The result.
    pub result: RecordedResult,
    /// The accuracy on LFW, of a model of faces.
    pub lfw: Option<Box<LfwResult>>,
}

/// The result of a recorded run.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordedResult {
    /// All steps were taken.
    Done {
        /// The results.
        summary: Box<RunSummary>,
        /// What the test images look like to the model, if that was recorded.
        test: Option<Box<TestDetails>>,
    },
    /// Training diverged.
    Diverged(Diverged),
}

/// When and how training diverged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diverged {
    /// The number of steps done.
    pub step: u64,
    /// The program's sentence about it.
    pub reason: String,
}

/// Why records could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A file of a run or a record.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A recipe.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// A run that has not ended.
    #[error(
        "{} has not finished: {SUMMARY} is missing; finish it with `lsoftmax train --resume {}`", path.display(), shell_word(path)
    )]
    Unfinished {
        /// The run.
        path: PathBuf,
    },
    /// A record of that name exists.
    #[error("{} already exists; remove it, or give the run another name", path.display())]
    Exists {
        /// The record.
        path: PathBuf,
    },
    /// A run of the same experiment with the same seed is recorded: a seed would count twice.
    #[error(
        "{} already records this experiment with seed {seed}; remove it to record the run instead", path.display()
    )]
    Recorded {
        /// The record.
        path: PathBuf,
        /// Its seed.
        seed: u64,
    },
    /// Two records are of the same experiment and seed.
    #[error(
        "{} and {} record the same experiment with seed {seed}; remove one of them", paths[0].display(), paths[1].display()
    )]
    Twice {
        /// The records.
        paths: Box<[PathBuf; 2]>,
        /// Their seed.
        seed: u64,
    },
}

impl RecordError {
    /// Whether the input is at fault, rather than the system.
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Run(error) => error.is_bad_input(),
            Self::Recipe(_)
            | Self::Unfinished { .. }
            | Self::Exists { .. }
            | Self::Recorded { .. }
            | Self::Twice { .. } => true,
        }
    }
}

impl Record {
    /// Reads a record, or a finished run as one; `id` is the name of its directory.
    ///
    /// # Errors
    /// When a file is missing or invalid.
    pub fn read(path: &Path) -> Result<Self, RecordError> {
        let has = |name: &str| path.join(name).is_file();
        if !has(RECIPE) {
            return Err(RunError::NoRun { path: path.to_owned(), missing: RECIPE }.into());
        }
        let id = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into());
        let result = if has(SUMMARY) {
            let test = if has(TEST) { Some(read_json(&path.join(TEST))?) } else { None };
            RecordedResult::Done { summary: Box::new(read_json(&path.join(SUMMARY))?), test }
        } else if has(DIVERGED) {
            RecordedResult::Diverged(read_json(&path.join(DIVERGED))?)
        } else {
            return Err(RecordError::Unfinished { path: path.to_owned() });
        };
        Ok(Self {
            id,
            recipe: Recipe::from_file(&path.join(RECIPE))?,
            environment: read_json(&path.join(ENVIRONMENT))?,
            log: Metrics::read(&path.join(METRICS))?,
            result,
            lfw: if has(LFW) { Some(read_json(&path.join(LFW))?) } else { None },
        })
    }

    /// The results, unless training diverged.
    pub fn summary(&self) -> Option<&RunSummary> {
        match &self.result {
            RecordedResult::Done { summary, .. } => Some(summary),
            RecordedResult::Diverged(_) => None,
        }
    }

    /// Whether the run was the one that its recipe describes: it never returned to a checkpoint with a larger λ, and was not extended,
    /// which stretches schedules or uses the test images again.
    pub fn follows_recipe(&self) -> bool {
        self.summary()
            .is_none_or(|summary| summary.rollbacks == 0 && summary.extended_from.is_empty())
    }

    /// Whether it is a run of this experiment; see [`Recipe::is_same_experiment`].
    pub fn is_of(&self, recipe: &Recipe) -> bool {
        self.follows_recipe() && self.recipe.is_same_experiment(recipe)
    }

    /// Whether both are the same run: of one experiment, with the same seed.
    fn repeats(&self, other: &Self) -> bool {
        let seed_and_steps = |record: &Self| (record.recipe.seed, record.recipe.steps);
        seed_and_steps(self) == seed_and_steps(other)
            && self.follows_recipe()
            && other.is_of(&self.recipe)
    }

    /// What the test images look like to the model, if that was recorded.
    pub fn test(&self) -> Option<&TestDetails> {
        match &self.result {
            RecordedResult::Done { test, .. } => test.as_deref(),
            RecordedResult::Diverged(_) => None,
        }
    }

    /// The test error in percent.
    pub fn test_error(&self) -> Option<f64> {
        self.summary().and_then(|summary| summary.test).map(|test| test.error)
    }

    /// The mean angle between a test image's features and its class, in degrees.
    pub fn angle_to_own_class(&self) -> Option<f64> {
        self.summary().and_then(|summary| summary.test).map(|test| test.angle)
    }

    /// The mean angle between a class of test images and the nearest other; see
    /// [`TestDetails::angle_between_classes`].
    pub fn angle_between_classes(&self) -> Option<f64> {
        self.test().and_then(TestDetails::angle_between_classes)
    }

    /// The error on the held-out images in percent.
    pub fn validation_error(&self) -> Option<f64> {
        self.summary().and_then(|summary| summary.validation).map(|found| found.error)
    }

    /// The training accuracy in the last line of the log, in percent.
    pub fn training_accuracy(&self) -> Option<f64> {
        self.log.iter().rev().find_map(|metric| match metric {
            Metric::Training { means, .. } => Some(100.0 * means.accuracy),
            _ => None,
        })
    }

    /// The name of a run with this recipe: recipe, head, steps and seed, and what tells its λ apart.
    pub fn id_of(recipe: &Recipe, variant: &str) -> String {
        let Recipe { name, head, steps, seed, .. } = recipe;
        let head = match recipe.loss.uses_margin() {
            true => format!("-{}", head.file_name()),
            false => String::new(),
        };
        let variant = if variant.is_empty() { String::new() } else { format!("-{variant}") };
        format!("{name}{head}{variant}-{steps}-s{seed}")
    }

    fn write(&self, path: &Path) -> Result<(), RunError> {
        let write = |name: &str, text: String| write_atomic(&path.join(name), &[text.as_bytes()]);
        let json =
            |value: serde_json::Result<String>| value.expect("plain values become JSON") + "\n";
        let log = self.log.iter().map(|line| json(serde_json::to_string(line)));
        write(RECIPE, self.recipe.to_toml())?;
        write(ENVIRONMENT, json(serde_json::to_string_pretty(&self.environment)))?;
        write(METRICS, log.collect())?;
        if let Some(lfw) = &self.lfw {
            write(LFW, json(serde_json::to_string_pretty(lfw)))?;
        }
        match &self.result {
            RecordedResult::Done { summary, test } => {
                write(SUMMARY, json(serde_json::to_string_pretty(summary)))?;
                test.as_ref().map_or(Ok(()), |test| write(TEST, json(serde_json::to_string(test))))
            }
            RecordedResult::Diverged(diverged) => {
                write(DIVERGED, json(serde_json::to_string_pretty(diverged)))
            }
        }
    }
}

/// All records of a directory.
#[derive(Clone, Debug)]
pub struct Records {
    directory: PathBuf,
    all: Vec<Record>,
}

impl Records {
    /// Reads the records in `directory`, which may not exist yet.
    ///
    /// # Errors
    /// When a record is invalid, or two are of the same experiment and seed.
    pub fn read(directory: &Path) -> Result<Self, RecordError> {
        let runs = directory.join(RUNS);
        let mut all = Vec::new();
        let entries = match fs::read_dir(&runs) {
            Ok(entries) => Some(entries),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(RunError::io(&runs, "read")(error).into()),
        };
        for entry in entries.into_iter().flatten() {
            let path = entry.map_err(RunError::io(&runs, "read"))?.path();
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            if path.is_dir() && !name.starts_with(UNFINISHED.as_bytes()) {
                all.push(Record::read(&path)?);
            }
        }
        all.sort_by(|a, b| a.id.cmp(&b.id));
        let records = Self { directory: directory.to_owned(), all };
        for (index, record) in records.all.iter().enumerate() {
            if let Some(other) = records.all[..index].iter().find(|other| other.repeats(record)) {
                let paths = [other, record].map(|record| records.path_of(&record.id));
                return Err(RecordError::Twice {
                    paths: Box::new(paths),
                    seed: record.recipe.seed,
                });
            }
        }
        Ok(records)
    }

    /// Reads them again: another process may have added some.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn refresh(&mut self) -> Result<(), RecordError> {
        *self = Self::read(&self.directory)?;
        Ok(())
    }

    /// The records, ordered by id.
    pub fn all(&self) -> &[Record] {
        &self.all
    }

    /// The directory of a record.
    pub fn path_of(&self, id: &str) -> PathBuf {
        self.directory.join(RUNS).join(id)
    }

    /// The records of the same experiment with any seed, ordered by seed.
    pub fn of(&self, recipe: &Recipe) -> Vec<&Record> {
        let mut found: Vec<_> = self.all.iter().filter(|record| record.is_of(recipe)).collect();
        found.sort_by_key(|record| record.recipe.seed);
        found
    }

    /// Adds the finished run in a directory, with its log thinned.
    ///
    /// # Errors
    /// When the run has not finished, a record of that name, or of the same experiment and seed, exists, or it cannot be written.
    pub fn add(&mut self, run: &Path, id: &str) -> Result<&Record, RecordError> {
        self.insert(Record { id: id.to_owned(), ..Record::read(run)? })
    }

    /// Adds a run that diverged.
    ///
    /// # Errors
    /// When a record of that name, or of the same experiment and seed, exists, or it cannot be written.
    pub fn add_diverged(
        &mut self,
        run: &Path,
        id: &str,
        diverged: Diverged,
    ) -> Result<&Record, RecordError> {
        self.insert(Record {
            id: id.to_owned(),
            recipe: Recipe::from_file(&run.join(RECIPE))?,
            environment: read_json(&run.join(ENVIRONMENT))?,
            log: Metrics::read(&run.join(METRICS))?,
            result: RecordedResult::Diverged(diverged),
            lfw: None,
        })
    }

    /// Writes a record to a temporary directory, then renames it: a record exists completely or not at all.
    fn insert(&mut self, mut record: Record) -> Result<&Record, RecordError> {
        record.log = thinned(record.log);
        // Where a folder of images was is of no use to others.
        record.recipe.data = record.recipe.data.without_directories();
        if let RecordedResult::Done { summary, .. } = &mut record.result {
            summary.data = summary.data.clone().without_directories();
        }
        let path = self.path_of(&record.id);
        if path.exists() {
            return Err(RecordError::Exists { path });
        }
        if let Some(same) = self.all.iter().find(|other| other.repeats(&record)) {
            let (path, seed) = (self.path_of(&same.id), record.recipe.seed);
            return Err(RecordError::Recorded { path, seed });
        }
        let unfinished = self.path_of(&format!("{UNFINISHED}{}", record.id));
        // Of an attempt that was killed.
        remove_directory(&unfinished).map_err(RunError::io(&unfinished, "removed"))?;
        fs::create_dir_all(&unfinished).map_err(RunError::io(&unfinished, "created"))?;
        record.write(&unfinished)?;
        fs::rename(&unfinished, &path).map_err(RunError::io(&path, "written"))?;
        let at = self.all.partition_point(|other| other.id < record.id);
        self.all.insert(at, record);
        Ok(&self.all[at])
    }
}

/// The log with at most [`MOST_LINES`] training lines, each the mean of consecutive ones.
fn thinned(log: Vec<Metric>) -> Vec<Metric> {
    let lines = log.iter().filter(|line| matches!(line, Metric::Training { .. })).count();
    let every = lines.div_ceil(MOST_LINES).max(1);
    let mut thinned = Vec::new();
    let mut pending: Vec<(BatchMetrics, f64)> = Vec::new();
    let mut left = lines;
    for metric in log {
        let Metric::Training { step, means, lambda, learning_rate, images_per_second } = metric
        else {
            thinned.push(metric);
            continue;
        };
        pending.push((means, images_per_second));
        left -= 1;
        if pending.len() < every && left > 0 {
            continue;
        }
        let share = 1.0 / pending.len() as f64;
        let (means, speed) = pending
            .drain(..)
            .fold((BatchMetrics::default(), 0.0), |(sum, total), (means, speed)| {
                (sum.plus(means, share), total + share * speed)
            });
        thinned.push(Metric::Training {
            step,
            means,
            lambda,
            learning_rate,
            images_per_second: speed,
        });
    }
    thinned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: u64, loss: f64) -> Metric {
        Metric::Training {
            step,
            means: BatchMetrics { loss, ..BatchMetrics::default() },
            lambda: Some(step as f64),
            learning_rate: 0.1,
            images_per_second: 100.0,
        }
    }

    #[test]
    fn a_thinned_log_has_few_lines_the_same_mean_and_its_last_step() {
        for lines in [0, 1, 149, 150, 151, 1000, 1007] {
            let log: Vec<Metric> = (1..=lines).map(|step| line(step, step as f64)).collect();
            let short = thinned(log.clone());
            assert!(short.len() <= MOST_LINES, "{lines}: {}", short.len());
            let last = |log: &[Metric]| match log.last() {
                Some(Metric::Training { step, lambda, .. }) => Some((*step, *lambda)),
                _ => None,
            };
            assert_eq!(last(&short), last(&log));
            if lines <= MOST_LINES as u64 {
                assert_eq!(short, log);
            }
        }
        let two: Vec<Metric> = (1..=300).map(|step| line(step, (step % 2) as f64)).collect();
        for metric in thinned(two) {
            let Metric::Training { means, .. } = metric else { panic!("{metric:?}") };
            assert_eq!(means.loss, 0.5);
        }
    }

    #[test]
    fn evaluations_stay_in_a_thinned_log() {
        let mut log: Vec<Metric> = (1..=600).map(|step| line(step, 1.0)).collect();
        log.insert(301, Metric::Validation { step: 301, loss: 0.5, error: 3.0 });
        let short = thinned(log);
        assert!(short.contains(&Metric::Validation { step: 301, loss: 0.5, error: 3.0 }));
    }
}
