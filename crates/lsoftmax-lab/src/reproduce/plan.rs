//! Which runs are missing, and in which order they are most needed.

use std::path::Path;

use super::{Experiment, Row};
use crate::recipe::Recipe;
use crate::records::Records;
use crate::run::RECIPE;

/// A run of an experiment.
#[derive(Clone, Debug)]
pub struct PlannedRun {
    /// Its name, which is that of its directory and of its record.
    pub id: String,
    /// What it is, for people.
    pub label: String,
    /// Its recipe.
    pub recipe: Recipe,
    /// How far it is.
    pub progress: Progress,
    /// Whether its result is the accuracy on LFW's pairs.
    pub lfw: bool,
}

/// How far a planned run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// It was interrupted and can be resumed.
    Interrupted,
    /// It has not been started.
    Missing,
    /// There is a record.
    Recorded,
}

/// The runs that experiments need, `seeds` of each row. Those to be made first come first: an interrupted
/// run, then rows without any record, then further seeds; recorded ones come last. The paper's loss comes
/// before the other losses of its tables.
///
/// `scale` is the length of the runs as a fraction of the recipes', by default that of each row or experiment.
/// `runs` is the directory with interrupted runs.
pub fn plan(
    experiments: &[&Experiment],
    scale: Option<f64>,
    seeds: u64,
    records: &Records,
    runs: &Path,
) -> Vec<PlannedRun> {
    let mut rows: Vec<(Row, Recipe)> = Vec::new();
    for experiment in experiments {
        for row in experiment.rows() {
            let scale = scale.or(row.scale).unwrap_or(experiment.scale);
            let recipe = row.recipe.scaled(length(&row.recipe, scale));
            // Figures share runs with tables.
            if !rows.iter().any(|(_, planned)| planned.is_same_experiment(&recipe)) {
                rows.push((row, recipe));
            }
        }
    }
    let known = Experiment::all_rows();
    let mut planned = Vec::new();
    for (position, (row, recipe)) in rows.into_iter().enumerate() {
        let recorded: Vec<u64> =
            records.of(&recipe).iter().map(|record| record.recipe.seed).collect();
        let named_by = known.iter().find(|known| known.matches(&recipe)).unwrap_or(&row);
        let mut evidence = recorded.len();
        for seed in 1..=seeds {
            let recipe = Recipe { seed, ..recipe.clone() };
            let id = named_by.id(&recipe);
            let progress = if recorded.contains(&seed) {
                Progress::Recorded
            } else if runs.join(&id).join(RECIPE).is_file() {
                Progress::Interrupted
            } else {
                Progress::Missing
            };
            let label =
                format!("{}, {}: {} steps, seed {seed}", row.group, row.label(), recipe.steps);
            let other_loss = !recipe.loss.uses_margin();
            let order = (progress, evidence, other_loss, position);
            planned.push((order, PlannedRun { id, label, recipe, progress, lfw: row.lfw }));
            evidence += usize::from(progress != Progress::Recorded);
        }
    }
    planned.sort_by_key(|(order, _)| *order);
    planned.into_iter().map(|(_, run)| run).collect()
}

/// The number of steps at a fraction of a recipe's length.
fn length(recipe: &Recipe, scale: f64) -> u64 {
    ((recipe.steps as f64 * scale).round() as u64).max(1)
}
