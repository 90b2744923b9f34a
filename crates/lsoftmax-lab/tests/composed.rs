//! A complete run on Burn's own operations, as on a GPU, compared with one on the kernels: only the
//! kernels require the CPU.

use std::path::Path;

use lsoftmax_data::DataDir;
use lsoftmax_lab::recipe::Recipe;
use lsoftmax_lab::run::{Metric, Metrics};
use lsoftmax_lab::train::{Options, RunOutcome, RunSummary, start};

/// MNIST, with a network small enough for Burn's own convolutions.
const RECIPE: &str = r#"
name = "small"
data = "mnist"
validation = 200
margin = 2
lambda = { schedule = "power", base = 100, gamma = 0.02, power = 2, min = 0 }
batch = 32
accumulate = 2
clip_norm = 5
steps = 40
learning_rate = { schedule = "steps", rate = 0.02, factor = 0.1, at = [30] }
seed = 3
precision = "f32"
evaluate_every = 20
log_every = 5
checkpoint_every = 20

[network]
input = [1, 28, 28]
stages = [{ filters = 4, units = 1, stride = 2 }, { filters = 8, units = 1 }]
features = { size = 8 }
"#;

fn run(out: &Path, composed: bool) -> RunSummary {
    let recipe = Recipe::from_toml(RECIPE, "small.toml").unwrap();
    let data = DataDir::find(Some(out.join("no data"))).unwrap();
    let options = Options { composed, ..Options::new(data) };
    match start(recipe, out, &options, &mut |_| {}).unwrap() {
        RunOutcome::Done(summary) => *summary,
        ended => panic!("{ended:?}"),
    }
}

fn losses(run: &Path) -> Vec<f64> {
    let metrics = Metrics::read(&run.join("metrics.jsonl")).unwrap();
    let loss = |metric: Metric| match metric {
        Metric::Training { means, .. } => Some(means.loss),
        _ => None,
    };
    metrics.into_iter().filter_map(loss).collect()
}

#[test]
fn a_run_on_burns_operations_gives_the_results_of_one_on_the_kernels() {
    let directory = tempfile::tempdir().unwrap();
    let (fused_out, composed_out) =
        (directory.path().join("fused"), directory.path().join("composed"));
    let (fused, composed) = (run(&fused_out, false), run(&composed_out, true));

    let (first, second) = (losses(&fused_out), losses(&composed_out));
    assert_eq!(first.len(), 8);
    assert!(first[7] < 0.8 * first[0], "it learns: {first:?}");
    for (step, (fused, composed)) in first.iter().zip(&second).enumerate() {
        let apart = (fused - composed).abs() / fused;
        assert!(apart < 2e-3, "line {step}: {fused} is not {composed} ({apart:e})");
    }
    let (fused, composed) = (fused.test.unwrap(), composed.test.unwrap());
    assert!((fused.error - composed.error).abs() < 0.5, "{fused:?} is not {composed:?}");
    assert!((fused.angle - composed.angle).abs() < 0.5, "{fused:?} is not {composed:?}");
}
