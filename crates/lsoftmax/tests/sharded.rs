//! A head whose classes are divided over ranks: against the composed operation in f64, for every head, and the same
//! bits for every number of ranks, which are threads here.

mod support;

use std::sync::Arc;

use burn::module::Param;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use lsoftmax::{
    AdditiveMargin, AngularMargin, CosineMargin, Execution, HeadError, Margin, MarginHead,
    Normalisation, Precision, SampleRate, ShardedHead,
};
use lsoftmax_comm::{Communicator, in_threads};
use lsoftmax_kernels::Engine;
use lsoftmax_testing::{SplitMix, assert_close_to_scale};
use support::family::{AnyMargin, with_margin};

/// Everything that a loss depends on but the head.
#[derive(Clone)]
struct Batch {
    features: Vec<f32>,
    weights: Vec<f32>,
    bias: Option<Vec<f32>>,
    labels: Vec<i64>,
    depth: usize,
    lambda: f64,
    learned_scale: bool,
}

impl Batch {
    fn random(seed: u64, [samples, depth, classes]: [usize; 3]) -> Self {
        let mut numbers = SplitMix(seed);
        let mut normals = |count: usize, scale: f64| -> Vec<f32> {
            (0..count).map(|_| (scale * numbers.normal()) as f32).collect()
        };
        let scale = 2.0 / (depth as f64).sqrt();
        let (features, weights) = (normals(samples * depth, 1.0), normals(classes * depth, scale));
        let labels = (0..samples).map(|_| numbers.below(classes) as i64).collect();
        Self { features, weights, bias: None, labels, depth, lambda: 0.0, learned_scale: false }
    }

    fn classes(&self) -> usize {
        self.weights.len() / self.depth
    }

    fn rows(&self, numbers: &[f32], dtype: DType) -> Tensor<2> {
        let data = TensorData::new(numbers.to_vec(), [numbers.len() / self.depth, self.depth]);
        Tensor::from_data(data, (&Device::flex().autodiff(), dtype))
    }

    fn labels(&self) -> Tensor<1, Int> {
        let data = TensorData::new(self.labels.clone(), [self.labels.len()]);
        Tensor::from_data(data, &Device::flex().autodiff())
    }

    fn head<M: AngularMargin>(
        &self,
        margin: &M,
        normalisation: Normalisation,
        execution: Execution,
        dtype: DType,
    ) -> MarginHead<M> {
        let device = Device::flex().autodiff();
        let weight = Param::from_tensor(self.rows(&self.weights, dtype));
        let bias = self.bias.as_ref().map(|bias| {
            let data = TensorData::new(bias.clone(), [bias.len()]);
            Param::from_tensor(Tensor::from_data(data, (&device, dtype)))
        });
        let head = MarginHead::from_weights(weight, bias, margin.clone(), execution)
            .with_normalisation(normalisation);
        if self.learned_scale { head.with_learned_scale() } else { head }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Found {
    losses: Vec<f64>,
    report: serde_json::Value,
    features: Vec<f64>,
    weights: Vec<f64>,
    bias: Vec<f64>,
    scale: Vec<f64>,
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

fn json<M: serde::Serialize>(report: lsoftmax::Report<M>) -> serde_json::Value {
    serde_json::to_value(report).unwrap()
}

/// By the composed operation in f64; in f32, the type of a learned scale, if it has one.
fn expected<M>(batch: &Batch, margin: &M, normalisation: Normalisation) -> Found
where
    M: AngularMargin + serde::Serialize,
{
    let dtype = if batch.learned_scale { DType::F32 } else { DType::F64 };
    let head = batch.head(margin, normalisation, Execution::Composed, dtype);
    let features = batch.rows(&batch.features, dtype).require_grad();
    let output = head.forward(features.clone(), batch.labels(), batch.lambda).unwrap();
    let gradients = output.loss.clone().backward();
    let vector = |param: &Option<Param<Tensor<1>>>| {
        let gradient = param.as_ref().and_then(|param| param.val().grad(&gradients));
        gradient.map_or(Vec::new(), values)
    };
    Found {
        losses: values(output.losses.clone()),
        report: json(output.report().unwrap()),
        features: values(features.grad(&gradients).unwrap()),
        weights: values(head.weight.val().grad(&gradients).unwrap()),
        bias: vector(&head.bias),
        scale: vector(&head.log_scale),
    }
}

/// On so many ranks: the result of all, which must agree on what they share.
fn sharded<M>(
    batch: &Batch,
    margin: &M,
    normalisation: Normalisation,
    precision: Precision,
    ranks: usize,
) -> Found
where
    M: AngularMargin + serde::Serialize + Sync,
{
    let of_ranks = in_threads(ranks, |comm| {
        let whole = batch.head(margin, normalisation, Execution::new(precision), DType::F32);
        let head = ShardedHead::of_head(&whole, comm).unwrap();
        drop(whole);
        let features = batch.rows(&batch.features, DType::F32).require_grad();
        let output = head.forward(features.clone(), batch.labels(), batch.lambda).unwrap();
        let losses = output.losses().iter().copied().map(f64::from).collect();
        let report = json(output.report());
        let (mut weights, mut bias) = (Vec::new(), Vec::new());
        let loss = output.backward(1.0, |_, gradient| {
            assert!(gradient.rows.is_none());
            weights.extend(values(gradient.weight));
            bias.extend(gradient.bias.map_or(Vec::new(), values));
        });
        let gradients = loss.backward();
        let scale = head.log_scale.as_ref().and_then(|log| log.val().grad(&gradients));
        let features = values(features.grad(&gradients).unwrap());
        let scale = scale.map_or(Vec::new(), values);
        Found { losses, report, features, weights, bias, scale }
    });
    let mut all = of_ranks[0].clone();
    for other in &of_ranks[1..] {
        let shared =
            |found: &Found| (found.losses.clone(), found.features.clone(), found.scale.clone());
        assert_eq!(shared(&all), shared(other));
        assert_eq!(all.report, other.report);
        all.weights.extend(&other.weights);
        all.bias.extend(&other.bias);
    }
    all
}

#[track_caller]
fn assert_close(what: &str, found: &Found, expected: &Found) {
    let parts = [
        ("losses", &found.losses, &expected.losses),
        ("features", &found.features, &expected.features),
        ("weights", &found.weights, &expected.weights),
        ("bias", &found.bias, &expected.bias),
        ("scale", &found.scale, &expected.scale),
    ];
    for (part, found, expected) in parts {
        assert_close_to_scale(&format!("{what}: {part}"), found, expected, 3e-5, 1e-6);
    }
    for (key, value) in expected.report.as_object().unwrap() {
        let numbers = |value: &serde_json::Value| match value {
            serde_json::Value::Object(fields) => {
                fields.values().filter_map(|v| v.as_f64()).collect()
            }
            value => vec![value.as_f64().unwrap_or(0.0)],
        };
        let (found, expected) = (numbers(&found.report[key]), numbers(value));
        assert_close_to_scale(&format!("{what}: report.{key}"), &found, &expected, 1e-4, 1e-6);
    }
}

fn heads() -> Vec<(&'static str, AnyMargin, Normalisation)> {
    let both = Normalisation::Both { scale: 12.0 };
    let margin = |m: f64| AnyMargin::Multiplied(Margin::new(m).unwrap());
    vec![
        ("softmax", margin(1.0), Normalisation::None),
        ("L-Softmax", margin(4.0), Normalisation::None),
        ("A-Softmax", margin(3.0), Normalisation::Weights),
        ("NormSoftmax", margin(1.0), both),
        ("CosFace", AnyMargin::Subtracted(CosineMargin::new(0.35).unwrap()), both),
        ("ArcFace", AnyMargin::Added(AdditiveMargin::new(0.5).unwrap()), both),
    ]
}

#[test]
fn every_head_agrees_with_the_composed_one_and_has_the_same_bits_on_any_number_of_ranks() {
    // Fewer classes than eight, shards of one or two classes, of many, of several blocks.
    for (seed, sizes) in [(1, [6, 5, 5]), (2, [9, 7, 11]), (3, [20, 16, 37]), (4, [33, 24, 700])] {
        for (name, margin, normalisation) in heads() {
            let mut batch = Batch::random(seed, sizes);
            let classes = batch.classes();
            batch.lambda = if seed % 2 == 0 { 0.7 } else { 0.0 };
            batch.learned_scale = seed == 2;
            let mut numbers = SplitMix(seed);
            let bias = numbers.normals(classes).into_iter().map(|bias| bias as f32).collect();
            batch.bias = (seed != 3).then_some(bias);
            let anywhere = batch.labels.clone();
            for labels in [anywhere, vec![0; sizes[0]], vec![classes as i64 - 1; sizes[0]]] {
                batch.labels = labels;
                with_margin!(&margin, |margin| {
                    let run = |ranks| sharded(&batch, margin, normalisation, Precision::F32, ranks);
                    let alone = run(1);
                    let what = format!("{name}, {classes} classes");
                    assert_close(&what, &alone, &expected(&batch, margin, normalisation));
                    for ranks in 2..=4 {
                        assert!(run(ranks) == alone, "{what}, {ranks} ranks");
                    }
                });
            }
        }
    }
}

#[test]
fn large_shards_and_every_precision_have_the_same_bits_on_any_number_of_ranks() {
    // Enough work for several threads, blocks and runs of blocks in each of the 16 shards.
    let mut batch = Batch::random(9, [100, 48, 5001]);
    batch.lambda = 0.3;
    for precision in [Precision::F32, Precision::Bf16, Precision::Bf16Weights] {
        let margin = Margin::new(2).unwrap();
        let run = |ranks| sharded(&batch, &margin, Normalisation::Weights, precision, ranks);
        let alone = run(1);
        for ranks in [2, 3, 4, 7] {
            assert!(run(ranks) == alone, "{precision}, {ranks} ranks");
        }
        if precision == Precision::F32 {
            let expected = expected(&batch, &margin, Normalisation::Weights);
            assert_close("5001 classes", &alone, &expected);
        }
    }
}

#[test]
fn without_a_margin_predictions_and_ties_are_those_of_all_classes() {
    // All weights equal: the first class wins, and no other.
    let mut batch = Batch::random(3, [12, 4, 40]);
    batch.weights = [1.0f32, -2.0, 0.5, 3.0].repeat(40);
    batch.labels = (0..12).collect();
    for ranks in 1..=3 {
        let found = in_threads(ranks, |comm| {
            let execution = Execution::new(Precision::F32);
            let whole = batch.head(&Margin::ONE, Normalisation::None, execution, DType::F32);
            let head = ShardedHead::of_head(&whole, comm).unwrap().for_evaluation().unwrap();
            let features = batch.rows(&batch.features, DType::F32).inner();
            let output = head.forward(features, batch.labels().inner(), 0.0).unwrap();
            output.correct().collect::<Vec<_>>()
        });
        let expected: Vec<bool> = (0..12).map(|label| label == 0).collect();
        assert!(found.iter().all(|found| *found == expected), "{found:?}");
    }
}

/// What is computed is the stated problem on the drawn classes alone.
#[test]
fn sampled_classes_are_a_head_of_these_classes_on_any_number_of_ranks() {
    let mut batch = Batch::random(5, [14, 12, 900]);
    batch.lambda = 1.0;
    let (margin, normalisation) = (Margin::new(3).unwrap(), Normalisation::Weights);
    let run = |ranks: usize| {
        let of_ranks = in_threads(ranks, |comm| {
            let execution = Execution::new(Precision::F32);
            let whole = batch.head(&margin, normalisation, execution, DType::F32);
            let head = ShardedHead::of_head(&whole, comm).unwrap();
            let head = head.with_sample_rate(SampleRate::new(0.2).unwrap());
            let (layout, first) = (head.layout(), head.mine().start);
            let features = batch.rows(&batch.features, DType::F32).require_grad();
            let x = features.clone();
            let output = head.forward_sampled(x, batch.labels(), batch.lambda, 7, 3).unwrap();
            let losses: Vec<f64> = output.losses().iter().copied().map(f64::from).collect();
            let (mut classes, mut weights) = (Vec::new(), Vec::new());
            let loss = output.backward(1.0, |shard, gradient| {
                let start = layout.classes(first + shard).start;
                let rows = values_of(gradient.rows.unwrap());
                classes.extend(rows.into_iter().map(|row| start + row));
                weights.extend(values(gradient.weight));
            });
            let features = values(features.grad(&loss.backward()).unwrap());
            (losses, features, classes, weights)
        });
        let (losses, features, ..) = of_ranks[0].clone();
        let classes: Vec<usize> = of_ranks.iter().flat_map(|one| one.2.clone()).collect();
        let weights: Vec<f64> = of_ranks.iter().flat_map(|one| one.3.clone()).collect();
        (losses, features, classes, weights)
    };
    let alone = run(1);
    for ranks in 2..=4 {
        assert!(run(ranks) == alone, "{ranks} ranks");
    }
    let (losses, features, classes, weights) = alone;
    let named: std::collections::BTreeSet<_> = batch.labels.iter().collect();
    let others = (classes.len() - named.len()) as f64 / (900.0 - named.len() as f64);
    assert!((others - 0.2).abs() < 0.01 && classes.is_sorted(), "{others}");
    let row = |class: &usize| batch.weights[class * 12..][..12].to_vec();
    let position = |label: &i64| classes.binary_search(&(*label as usize)).unwrap() as i64;
    let drawn = Batch {
        weights: classes.iter().flat_map(row).collect(),
        labels: batch.labels.iter().map(position).collect(),
        ..batch.clone()
    };
    let expected = expected(&drawn, &margin, normalisation);
    let parts =
        [(losses, expected.losses), (features, expected.features), (weights, expected.weights)];
    for (found, expected) in parts {
        assert_close_to_scale("drawn classes", &found, &expected, 3e-5, 1e-6);
    }
}

fn values_of(rows: Tensor<1, Int>) -> Vec<usize> {
    rows.into_data().iter::<i64>().map(|row| row as usize).collect()
}

#[test]
fn initial_weights_are_a_function_of_seed_and_class() {
    let run = |ranks| {
        let of_ranks = in_threads(ranks, |comm: Arc<dyn Communicator>| {
            let engine = Engine::new(Precision::F32).unwrap();
            let head = ShardedHead::new(3, 8, 1000, Margin::ONE, engine, comm).unwrap();
            let shards = head.shards.into_iter();
            shards.flat_map(|shard| values(shard.weight.val())).collect::<Vec<_>>()
        });
        of_ranks.concat()
    };
    let alone = run(1);
    assert_eq!(alone.len(), 8000);
    assert!(run(3) == alone && run(4) == alone);
}

#[test]
fn what_is_not_finite_is_named_on_every_rank() {
    let batch = Batch::random(1, [5, 6, 50]);
    let error = |batch: &Batch| {
        let errors = in_threads(3, |comm| {
            let execution = Execution::new(Precision::F32);
            let whole = batch.head(&Margin::ONE, Normalisation::None, execution, DType::F32);
            let head = ShardedHead::of_head(&whole, comm).unwrap();
            head.forward(batch.rows(&batch.features, DType::F32), batch.labels(), 0.0).unwrap_err()
        });
        assert!(errors.iter().all(|one| one.to_string() == errors[0].to_string()), "{errors:?}");
        errors[0].clone()
    };
    let mut bad = batch.clone();
    bad.weights[6 * 44 + 2] = f32::INFINITY;
    assert!(matches!(error(&bad), HeadError::Weight { class: 44, index: 2, .. }));
    let mut bad = batch.clone();
    bad.features[6 * 3 + 1] = f32::NAN;
    assert!(matches!(error(&bad), HeadError::Feature { sample: 3, index: 1, .. }));
    let mut bad = batch.clone();
    bad.bias =
        Some((0..50).map(|class| if class == 20 { f32::NEG_INFINITY } else { 0.0 }).collect());
    assert!(matches!(error(&bad), HeadError::Bias { class: 20, .. }));
    let mut bad = batch.clone();
    bad.labels[4] = 50;
    assert!(error(&bad).to_string().contains("the label of sample 4 is 50"));
}

#[test]
fn more_ranks_than_shards_are_refused_with_a_sentence() {
    let errors = in_threads(4, |comm: Arc<dyn Communicator>| {
        let engine = Engine::new(Precision::F32).unwrap();
        ShardedHead::new(3, 8, 3, Margin::ONE, engine, comm).unwrap_err().to_string()
    });
    let expected = "3 classes are divided into 3 shards, too few for 4 ranks; use at most 3 ranks, or do not divide the classes";
    assert!(errors.iter().all(|error| error == expected), "{errors:?}");
}
