//! A run that is stopped while it reads or evaluates images resumes to the bits of an undisturbed one.

mod training;

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use burn::tensor::Device;
use lsoftmax_comm::{Alone, Communicator};
use lsoftmax_data::Split;
use lsoftmax_lab::analysis::{Analysis, AnalysisOptions, AnalysisPhase};
use lsoftmax_lab::recipe::{Keep, Lambda, Recipe};
use lsoftmax_lab::run::{METRICS, Metric, Metrics};
use lsoftmax_lab::train::{self, Event, NewLength, Options, Phase, RunOutcome, RunSummary};
use training::options;

/// Several batches of held-out images; its plateau depends on every evaluation.
const TINY: &str = r#"
name = "tiny"
data = "mnist"
validation = 600
network = { input = [1, 28, 28], stages = [{ filters = 4, units = 1 }, { filters = 4, units = 1 }], features = { size = 4 } }
margin = 2
lambda = "auto"
batch = 16
steps = 20
learning_rate = { schedule = "plateau", rate = 0.3, factor = 0.5, patience = 1, drops = 9 }
seed = 3
evaluate_every = 5
test_curve = true
log_every = 3
checkpoint_every = 7
"#;

fn tiny() -> Recipe {
    Recipe::from_toml(TINY, "tiny").unwrap()
}

/// What is the same in every run: the model, the results of the test images and the log without speeds.
fn results(run: &Path) -> (Vec<u8>, String, Vec<Metric>) {
    let mut log = Metrics::read(&run.join(METRICS)).unwrap();
    for metric in &mut log {
        if let Metric::Training { images_per_second, .. } = metric {
            *images_per_second = 0.0;
        }
    }
    let test = fs::read_to_string(run.join("test.json")).unwrap();
    (fs::read(run.join("model.safetensors")).unwrap(), test, log)
}

/// The progress of evaluations: how often each began, by phase.
type Begun = BTreeMap<&'static str, usize>;

fn train(run: &Path, options: &Options, observe: &mut dyn FnMut(Event<'_>)) -> RunOutcome {
    if run.join("recipe.toml").exists() {
        train::resume(run, options, observe).unwrap()
    } else {
        train::start(tiny(), run, options, observe).unwrap()
    }
}

#[test]
fn a_run_stopped_in_any_evaluation_ends_with_the_bits_of_an_undisturbed_one() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path());
    let undisturbed = directory.path().join("undisturbed");
    let mut begun = Begun::new();
    train(&undisturbed, &options, &mut |event| {
        if let Event::Progress { phase, done: 0, total } = event {
            let (name, images) = match phase {
                Phase::Reading => ("reading", 0),
                Phase::Validation => ("validation", 600),
                Phase::Test => ("test", 10_000),
            };
            assert_eq!(total, images);
            *begun.entry(name).or_default() += 1;
        }
    });
    // At steps 5, 10, 15 and 20; the test images once more at the end, the held-out ones not again.
    assert_eq!(begun, Begun::from([("validation", 4), ("test", 5)]));

    // Stopped in the middle of every evaluation in turn.
    let run = directory.path().join("run");
    let mut stops = Vec::new();
    loop {
        options.stop.store(false, Ordering::Relaxed);
        let mut step = 0;
        let ended = train(&run, &options, &mut |event| match event {
            Event::Started { step: from, .. } => step = from,
            Event::Stepped { step: taken } => step = taken,
            Event::Progress { phase, done: 256, .. } if !stops.contains(&(step, phase)) => {
                stops.push((step, phase));
                options.stop.store(true, Ordering::Relaxed);
            }
            _ => {}
        });
        match ended {
            RunOutcome::Interrupted { step: at } => assert_eq!(at, step),
            RunOutcome::Done(_) => break,
            RunOutcome::NotBegun => panic!("it had begun"),
        }
    }
    let evaluations = [5, 10, 15, 20].map(|step| [(step, Phase::Validation), (step, Phase::Test)]);
    assert_eq!(stops, evaluations.concat());
    assert!(results(&run) == results(&undisturbed), "the runs differ");
}

/// "Stop here": the run is evaluated at its new last step, as one of that length from the start is.
#[test]
fn a_run_that_is_ended_where_it_stopped_has_the_result_of_one_of_that_length() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(directory.path());
    let (run, direct) = (directory.path().join("run"), directory.path().join("direct"));
    let lambda = Lambda::constant(5.0).unwrap();
    let recipe = Recipe { keep: Keep::Best, lambda, ..tiny() };
    let ended = train::start(recipe.with_steps(13), &direct, &options, &mut |_| {});
    let RunOutcome::Done(expected) = ended.unwrap() else { panic!("it was not stopped") };
    let ended = train::start(recipe, &run, &options, &mut |event| {
        if let Event::Stepped { step: 13 } = event {
            options.stop.store(true, Ordering::Relaxed);
        }
    });
    assert!(matches!(ended, Ok(RunOutcome::Interrupted { step: 13 })));
    options.stop.store(false, Ordering::Relaxed);
    options.new_length = Some(NewLength { steps: 13, keep_schedules: true });
    let ended = train::resume(&run, &options, &mut |_| {}).unwrap();
    let RunOutcome::Done(found) = ended else { panic!("{ended:?}") };
    assert_eq!(RunSummary { seconds: expected.seconds, ..*found }, *expected);
}

/// The test images of a recipe without their curve are evaluated once, at the end.
#[test]
fn a_run_stopped_in_its_last_evaluation_can_be_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let (run, options) = (directory.path().join("run"), options(directory.path()));
    let recipe = Recipe { test_curve: false, ..tiny() };
    let ended = train::start(recipe, &run, &options, &mut |event| {
        if let Event::Progress { phase: Phase::Test, done: 512, .. } = event {
            options.stop.store(true, Ordering::Relaxed);
        }
    });
    assert!(matches!(ended, Ok(RunOutcome::Interrupted { step: 20 })));
    assert!(!run.join("summary.json").exists() && !run.join("model.json").exists());
    options.stop.store(false, Ordering::Relaxed);
    let mut steps = 0;
    let ended = train(&run, &options, &mut |event| {
        steps += usize::from(matches!(event, Event::Stepped { .. }));
    });
    assert!(matches!(ended, RunOutcome::Done(_)) && steps == 0);
    assert!(run.join("summary.json").exists());
}

#[test]
fn a_run_stopped_while_its_images_are_read_has_not_begun() {
    let directory = tempfile::tempdir().unwrap();
    let (run, options) = (directory.path().join("run"), options(directory.path()));
    let folder = directory.path().join("images");
    for class in ["dark", "light"] {
        fs::create_dir_all(folder.join(class)).unwrap();
        image::GrayImage::new(8, 8).save(folder.join(class).join("a.png")).unwrap();
    }
    let recipe = tiny().with_data(folder.to_str().unwrap().into());
    let ended = train::start(recipe, &run, &options, &mut |event| {
        assert!(matches!(event, Event::Progress { phase: Phase::Reading, done: 0, total: 2 }));
        options.stop.store(true, Ordering::Relaxed);
    });
    assert!(matches!(ended, Ok(RunOutcome::NotBegun)));
    assert!(!run.exists());
}

#[test]
fn an_analysis_says_how_far_it_is_and_can_be_stopped_at_any_batch() {
    let directory = tempfile::tempdir().unwrap();
    let options = options(directory.path());
    let run = directory.path().join("run");
    train(&run, &options, &mut |_| {});
    let analyse = |watch: &mut dyn FnMut(AnalysisPhase, usize, usize) -> ControlFlow<()>| {
        let (split, device) = (Split::Test, Device::flex());
        let alone: Arc<dyn Communicator> = Arc::new(Alone);
        Analysis::of_run(
            &run,
            None,
            split,
            &options.data,
            &device,
            &alone,
            AnalysisOptions::default(),
            watch,
        )
    };
    let mut seen = Vec::new();
    let whole = analyse(&mut |phase, done, total| {
        assert_eq!((phase, total), (AnalysisPhase::Evaluating, 10_000));
        seen.push(done);
        ControlFlow::Continue(())
    });
    assert_eq!(whole.unwrap().report.evaluation.images, 10_000);
    assert!(seen.len() > 3 && seen[0] == 0 && seen.is_sorted(), "{seen:?}");
    for last in [0, seen[2], seen[seen.len() - 1]] {
        let stopped = analyse(&mut |_, done, _| match done == last {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        assert!(stopped.unwrap_err().is_interrupted(), "{last}");
    }
}
