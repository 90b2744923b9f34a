//! The queue of runs: planning, recording, stopping and resuming.

mod training;

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

use lsoftmax_lab::head::HeadSettings;
use lsoftmax_lab::recipe::Recipe;
use lsoftmax_lab::records::{Record, RecordedResult, Records};
use lsoftmax_lab::reproduce::{
    self, Experiment, PlannedRun, Progress, QueueEvent, QueueOutcome, plan,
};
use lsoftmax_lab::train::{Event, Options};
use training::options;

/// Seconds on the built-in MNIST.
const TINY: &str = r#"
name = "tiny"
data = "mnist"
validation = 200
network = { input = [1, 28, 28], stages = [{ filters = 8, units = 1 }, { filters = 8, units = 1 }], features = { size = 2 } }
margin = 2
lambda = { schedule = "power", base = 100, gamma = 0.1, power = 2, min = 1 }
batch = 16
steps = 24
learning_rate = { schedule = "steps", rate = 0.05, factor = 0.1, at = [20] }
seed = 3
evaluate_every = 12
log_every = 7
checkpoint_every = 4
"#;

fn tiny() -> Recipe {
    Recipe::from_toml(TINY, "tiny").unwrap()
}

fn planned(recipe: Recipe) -> PlannedRun {
    let id = Record::id_of(&recipe, "");
    PlannedRun { label: id.clone(), id, recipe, progress: Progress::Missing, lfw: false }
}

/// Makes the runs; calls `observe` with every event.
fn make(
    directory: &Path,
    runs: &[PlannedRun],
    mut observe: impl FnMut(&Options, &QueueEvent<'_>),
) -> (QueueOutcome, Records) {
    let mut records = Records::read(&directory.join("records")).unwrap();
    let options = options(directory);
    let outcome =
        reproduce::run(runs, &mut records, &directory.join("runs"), &options, None, &mut |event| {
            observe(&options, &event)
        });
    let read = Records::read(&directory.join("records")).unwrap();
    assert_eq!(read.all(), records.all(), "what is in memory is what is on disk");
    (outcome.unwrap(), records)
}

/// Makes the runs; also returns why some could not be made.
fn make_with_failures(directory: &Path, runs: &[PlannedRun]) -> (QueueOutcome, Vec<String>) {
    let mut reasons = Vec::new();
    let (outcome, _) = make(directory, runs, |_, event| {
        if let QueueEvent::Failed { reason, .. } = event {
            reasons.push(reason.clone());
        }
    });
    (outcome, reasons)
}

#[test]
fn every_run_is_recorded_with_what_the_figures_need_and_without_weights() {
    let directory = tempfile::tempdir().unwrap();
    let runs = [1, 2].map(|seed| planned(Recipe { seed, ..tiny() }));
    let (outcome, records) = make(directory.path(), &runs, |_, _| {});
    assert_eq!(outcome, QueueOutcome { recorded: 2, failed: 0, interrupted: false });
    let record = &records.of(&tiny())[0];
    assert_eq!((record.recipe.seed, record.id.as_str()), (1, "tiny-m2-24-s1"));
    let test = record.test().unwrap();
    assert_eq!(test.wrong.len(), record.summary().unwrap().test.unwrap().wrong);
    assert_eq!((test.cosines.len(), test.cosines[9].len()), (10, 10));
    assert_eq!(test.plane.as_ref().unwrap().weights.len(), 10);
    let mut files: Vec<_> = fs::read_dir(records.path_of("tiny-m2-24-s1"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let expected =
        ["environment.json", "metrics.jsonl", "recipe.toml", "summary.json", "test.json"];
    assert_eq!(files, expected);
}

#[test]
fn a_queue_that_was_stopped_resumes_to_the_same_record() {
    let runs = [planned(tiny())];
    let undisturbed = tempfile::tempdir().unwrap();
    let (_, expected) = make(undisturbed.path(), &runs, |_, _| {});

    let directory = tempfile::tempdir().unwrap();
    let (outcome, records) = make(directory.path(), &runs, |options, event| {
        if let QueueEvent::Training(Event::Stepped { step: 9 }) = event {
            options.stop.store(true, Ordering::Relaxed);
        }
    });
    assert!(outcome.interrupted && records.all().is_empty());
    let mut resumed = None;
    let (outcome, records) = make(directory.path(), &runs, |_, event| {
        if let QueueEvent::Training(Event::Started { step, .. }) = event {
            resumed = Some(*step);
        }
    });
    assert_eq!((outcome.recorded, resumed), (1, Some(9)));
    let (found, expected) = (&records.all()[0], &expected.all()[0]);
    assert!(found.test() == expected.test(), "the test images look different");
    assert_eq!(found.test_error(), expected.test_error());
    assert_eq!(found.validation_error(), expected.validation_error());
}

#[test]
fn a_run_that_diverges_is_a_record_and_the_queue_continues() {
    let directory = tempfile::tempdir().unwrap();
    let mut diverging = tiny();
    diverging.learning_rate = diverging.learning_rate.with_rate(1e30);
    diverging.name = "diverging".into();
    let runs = [planned(diverging), planned(tiny())];
    let (outcome, records) = make(directory.path(), &runs, |_, _| {});
    assert_eq!(outcome, QueueOutcome { recorded: 2, failed: 0, interrupted: false });
    let record = &records.all()[0];
    assert_eq!(record.test_error(), None);
    let RecordedResult::Diverged(diverged) = &record.result else { panic!("{record:?}") };
    assert!(diverged.reason.contains("diverged"), "{diverged:?}");
}

#[test]
fn a_missing_data_set_fails_only_its_own_runs() {
    let directory = tempfile::tempdir().unwrap();
    let cifar10 = Recipe::built_in("cifar10").unwrap();
    let runs = [planned(cifar10), planned(tiny())];
    let (outcome, reasons) = make_with_failures(directory.path(), &runs);
    assert_eq!(outcome, QueueOutcome { recorded: 1, failed: 1, interrupted: false });
    assert!(reasons[0].contains("cifar10"), "{reasons:?}");
}

#[test]
fn a_directory_of_another_run_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let run = planned(tiny());
    let path = directory.path().join("runs").join(&run.id);
    fs::create_dir_all(&path).unwrap();
    let other = Recipe { batch: 8, ..tiny() }.to_toml();
    fs::write(path.join("recipe.toml"), &other).unwrap();
    let (outcome, _) = make(directory.path(), &[run], |_, _| {});
    assert_eq!((outcome.recorded, outcome.failed), (0, 1));
    assert_eq!(fs::read_to_string(path.join("recipe.toml")).unwrap(), other);
}

/// A record of a run that was never made.
fn pretend(records: &Path, recipe: &Recipe, id: &str) {
    let path = records.join("runs").join(id);
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("recipe.toml"), recipe.to_toml()).unwrap();
    fs::write(path.join("metrics.jsonl"), "").unwrap();
    let environment = r#"{"cpu":"x","architecture":"x","system":"x","path":"x","threads":1,"version":"0","commit":"0"}"#;
    fs::write(path.join("environment.json"), environment).unwrap();
    fs::write(path.join("diverged.json"), r#"{"step": 1, "reason": "a test"}"#).unwrap();
}

#[test]
fn a_run_that_was_recorded_since_the_plan_is_not_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let runs = [3, 4].map(|seed| planned(Recipe { seed, ..tiny() }));
    pretend(&directory.path().join("records"), &tiny(), "by-another-process");
    let mut started = Vec::new();
    let (outcome, _) = make(directory.path(), &runs, |_, event| {
        if let QueueEvent::Started { run, .. } = event {
            started.push(run.recipe.seed);
        }
    });
    assert_eq!(outcome, QueueOutcome { recorded: 1, failed: 0, interrupted: false });
    assert_eq!(started, [4]);
}

#[test]
fn a_record_of_another_experiment_with_the_name_of_a_run_fails_only_that_run() {
    let directory = tempfile::tempdir().unwrap();
    let runs = [3, 4].map(|seed| planned(Recipe { seed, ..tiny() }));
    let other = Recipe { batch: 8, ..tiny() };
    pretend(&directory.path().join("records"), &other, &runs[0].id);
    let (outcome, reasons) = make_with_failures(directory.path(), &runs);
    assert_eq!(outcome, QueueOutcome { recorded: 1, failed: 1, interrupted: false });
    assert!(reasons[0].contains("already exists"), "{reasons:?}");
    assert!(!directory.path().join("runs").join(&runs[0].id).exists(), "it was not trained");
}

#[test]
fn a_verification_on_damaged_data_fails_only_its_own_run() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    fs::create_dir_all(data.join("lfw-aligned")).unwrap();
    fs::create_dir_all(data.join("lfw")).unwrap();
    fs::write(data.join("lfw/pairs.txt"), "these are no pairs").unwrap();
    let faces = PlannedRun { lfw: true, ..planned(tiny()) };
    let runs = [faces, planned(Recipe { seed: 4, ..tiny() })];
    let (outcome, reasons) = make_with_failures(directory.path(), &runs);
    assert_eq!(outcome, QueueOutcome { recorded: 1, failed: 1, interrupted: false });
    assert!(reasons[0].contains("pairs.txt"), "{reasons:?}");
}

#[test]
fn a_seed_of_an_experiment_is_recorded_once() {
    let directory = tempfile::tempdir().unwrap();
    let (runs, place) = ([planned(tiny())], directory.path().join("records"));
    let (_, mut records) = make(directory.path(), &runs, |_, _| {});
    let run = directory.path().join("runs").join(&runs[0].id);
    let error = records.add(&run, "again").unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("with seed 3; remove"), "{error}");
    assert_eq!(records.all().len(), 1);
    pretend(&place, &Recipe { name: "other".into(), ..tiny() }, "copied");
    let error = Records::read(&place).unwrap_err();
    assert!(error.is_bad_input() && error.to_string().contains("copied"), "{error}");
}

#[test]
fn what_a_killed_attempt_left_is_not_part_of_a_record() {
    let directory = tempfile::tempdir().unwrap();
    let (runs, place) = ([planned(tiny())], directory.path().join("records"));
    let left = place.join("runs").join(format!(".unfinished-{}", runs[0].id));
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("lfw.json"), "{").unwrap();
    let (outcome, records) = make(directory.path(), &runs, |_, _| {});
    assert_eq!((outcome.recorded, left.exists()), (1, false));
    assert!(!records.path_of(&runs[0].id).join("lfw.json").exists());
}

#[test]
fn a_run_has_the_same_name_whichever_experiment_asks_for_it() {
    let none = Records::read(Path::new("/nonexistent")).unwrap();
    let planned = |experiments: &[&Experiment], scale| {
        plan(experiments, scale, 1, &none, Path::new("/nonexistent"))
    };
    for scale in [None, Some(1.0 / 18.0)] {
        let all = planned(&Experiment::ALL.iter().collect::<Vec<_>>(), scale);
        for run in Experiment::ALL.iter().flat_map(|experiment| planned(&[experiment], scale)) {
            let same = |other: &&PlannedRun| other.recipe.is_same_experiment(&run.recipe);
            assert_eq!(all.iter().find(same).map(|other| &other.id), Some(&run.id));
            assert_eq!(Experiment::id_of(&run.recipe), run.id);
        }
    }
}

#[test]
fn a_plan_has_rows_without_records_first_then_more_seeds_then_what_is_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let (records, runs) = (directory.path().join("records"), directory.path().join("runs"));
    let table2 = Experiment::named("table2").unwrap();
    let softmax = Recipe {
        head: HeadSettings::l_softmax(lsoftmax::Margin::ONE),
        ..Recipe::built_in("mnist").unwrap().scaled(3000)
    };
    pretend(&records, &softmax, "anything");
    let read = Records::read(&records).unwrap();
    let found = plan(&[table2], None, 2, &read, &runs);
    let ids: Vec<&str> = found.iter().map(|run| run.id.as_str()).collect();
    let expected = [
        "mnist-m2-3000-s1",
        "mnist-m3-3000-s1",
        "mnist-m4-3000-s1",
        "mnist-hinge-3000-s1",
        "mnist-m1-3000-s2",
        "mnist-m2-3000-s2",
        "mnist-m3-3000-s2",
        "mnist-m4-3000-s2",
        "mnist-hinge-3000-s2",
        "mnist-m1-3000-s1",
    ];
    assert_eq!(ids, expected);
    assert_eq!(found[9].progress, Progress::Recorded);

    // An interrupted run comes before everything else.
    fs::create_dir_all(runs.join("mnist-m3-3000-s2")).unwrap();
    fs::write(runs.join("mnist-m3-3000-s2/recipe.toml"), "").unwrap();
    let found = plan(&[table2], None, 2, &read, &runs);
    assert_eq!(
        (found[0].id.as_str(), found[0].progress),
        ("mnist-m3-3000-s2", Progress::Interrupted)
    );
}

#[test]
fn experiments_share_runs_and_every_planned_recipe_is_valid() {
    let none = Records::read(Path::new("/nonexistent")).unwrap();
    let all: Vec<&Experiment> = Experiment::ALL.iter().collect();
    let found = plan(&all, Some(1.0 / 18.0), 1, &none, Path::new("/nonexistent"));
    for (index, run) in found.iter().enumerate() {
        run.recipe.check().unwrap();
        for other in &found[..index] {
            assert_ne!(run.id, other.id);
            assert!(!run.recipe.is_same_experiment(&other.recipe), "{} {}", run.id, other.id);
        }
    }
    let table3 = Experiment::named("table3").unwrap();
    let fig5 = Experiment::named("fig5").unwrap();
    let both = plan(&[table3, fig5], Some(0.1), 1, &none, Path::new("/nonexistent"));
    // Figure 5 adds only the two runs on CIFAR100.
    assert_eq!(both.len(), 10 + 2);
}

#[test]
fn experiments_that_share_runs_plan_them_at_the_same_length() {
    let none = Records::read(Path::new("/nonexistent")).unwrap();
    let planned = |names: &[&str], scale| {
        let experiments: Vec<_> =
            names.iter().map(|name| Experiment::named(name).unwrap()).collect();
        plan(&experiments, scale, 1, &none, Path::new("/nonexistent"))
    };
    let tables = planned(&["table3", "table4"], None).len();
    assert_eq!(planned(&["table3", "table4", "fig5"], None).len(), tables);
    // Softmax and m = 4 on CIFAR10 as they are, and under four changes of the recipe.
    let of_cifar10 = |runs: &[PlannedRun], steps| {
        runs.iter()
            .filter(|run| run.id.starts_with("cifar10-m") && run.recipe.steps == steps)
            .count()
    };
    assert_eq!(of_cifar10(&planned(&["distance"], None), 3_000), 10);
    assert_eq!(of_cifar10(&planned(&["distance"], Some(1.0 / 3.0)), 6_000), 10);
}
