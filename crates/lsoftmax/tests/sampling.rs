//! Sampled classes: which are drawn, what is computed on them, and what a step changes.

use burn::module::Param;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{GradientsParams, SgdConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};
use lsoftmax::{
    ArcFaceConfig, LSoftmaxConfig, MarginHead, Precision, RowSgd, SampleRate, SampledHead,
};
use lsoftmax_testing::SplitMix;

const DEPTH: usize = 16;

fn device() -> Device {
    Device::flex().autodiff()
}

fn numbers(seed: u64, rows: usize) -> Tensor<2> {
    let values: Vec<f32> =
        SplitMix(seed).normals(rows * DEPTH).into_iter().map(|value| value as f32).collect();
    Tensor::from_data(TensorData::new(values, [rows, DEPTH]), &device())
}

fn labels(labels: &[i64]) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::new(labels.to_vec(), [labels.len()]), &device())
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

fn bits<const D: usize>(tensor: Tensor<D>) -> Vec<u32> {
    values(tensor).into_iter().map(f32::to_bits).collect()
}

fn classes<M: lsoftmax::AngularMargin>(sampled: &SampledHead<M>) -> Vec<i64> {
    sampled.classes.clone().into_data().iter::<i64>().collect()
}

fn head(classes: usize, rate: f64, precision: Precision) -> MarginHead {
    let config = LSoftmaxConfig::new(DEPTH, classes).with_margin(2).with_sample_rate(rate);
    let mut head = config.with_precision(precision).init(&device());
    head.weight = Param::from_tensor(numbers(1, classes));
    head
}

#[test]
fn a_sample_has_the_batch_s_classes_and_a_share_of_the_others() {
    let head = head(1000, 0.1, Precision::F32);
    for step in 0..20 {
        let sampled = head.sampled(labels(&[3, 999, 3, 500]), 7, step).unwrap();
        let drawn = classes(&sampled);
        assert_eq!(drawn.len(), 3 + 100);
        assert!(drawn.windows(2).all(|two| two[0] < two[1]), "{drawn:?}");
        assert!([3, 500, 999].iter().all(|class| drawn.contains(class)));
        let named: Vec<i64> = sampled.labels.into_data().iter::<i64>().collect();
        let named: Vec<i64> = named.into_iter().map(|row| drawn[row as usize]).collect();
        assert_eq!(named, [3, 999, 3, 500]);
        let rows = Tensor::from_data(TensorData::new(drawn.clone(), [103]), &Device::flex());
        let expected = head.weight.val().inner().select(0, rows);
        assert_eq!(bits(sampled.head.weight.val()), bits(expected));
    }
}

#[test]
fn a_sample_depends_on_seed_and_step_alone() {
    let head = head(500, 0.2, Precision::F32);
    let drawn = |seed, step| classes(&head.sampled(labels(&[1, 2]), seed, step).unwrap());
    assert_eq!(drawn(1, 5), drawn(1, 5));
    assert_ne!(drawn(1, 5), drawn(1, 6));
    assert_ne!(drawn(1, 5), drawn(2, 5));
    // Written down, because a run of an earlier version must be resumed with the same classes.
    let small = LSoftmaxConfig::new(2, 20).with_sample_rate(0.25).init(&device());
    assert_eq!(classes(&small.sampled(labels(&[4]), 2016, 3).unwrap()), PINNED);
}

const PINNED: [i64; 6] = [4, 5, 9, 11, 13, 19];

#[test]
fn every_other_class_is_drawn_equally_often() {
    let (all, draws) = (40, 4000);
    let head = head(all, 0.25, Precision::F32);
    let mut counts = vec![0u32; all];
    for step in 0..draws {
        for class in classes(&head.sampled(labels(&[0, 7]), 11, step).unwrap()) {
            counts[class as usize] += 1;
        }
    }
    // 10 of the 38 others (9.5, rounded).
    let probability = 10.0 / 38.0;
    let deviation = (draws as f64 * probability * (1.0 - probability)).sqrt();
    for (class, count) in counts.into_iter().enumerate() {
        if class == 0 || class == 7 {
            assert_eq!(u64::from(count), draws);
        } else {
            let off = (f64::from(count) - draws as f64 * probability) / deviation;
            assert!(off.abs() < 4.5, "class {class}: {count}, {off:.1} deviations");
        }
    }
}

#[test]
fn a_rate_of_1_is_the_whole_head_to_the_bit() {
    for precision in [Precision::F32, Precision::Bf16] {
        let head = head(300, 1.0, precision);
        let (x, y) = (numbers(2, 24).require_grad(), [5, 17, 280, 5, 0, 299].repeat(4));
        let whole = head.forward(x.clone(), labels(&y), 0.5).unwrap();
        let sampled = head.sampled(labels(&y), 3, 4).unwrap();
        let part = sampled.head.forward(x.clone(), sampled.labels.clone(), 0.5).unwrap();
        assert_eq!(bits(whole.losses.clone()), bits(part.losses.clone()));
        let (of_whole, of_part) = (whole.loss.backward(), part.loss.backward());
        assert_eq!(bits(x.grad(&of_whole).unwrap()), bits(x.grad(&of_part).unwrap()));
        let weight = head.weight.val().grad(&of_whole).unwrap();
        assert_eq!(bits(weight), bits(sampled.head.weight.val().grad(&of_part).unwrap()));
    }
}

/// All subsets of `count` of these.
fn subsets(of: &[i64], count: usize) -> Vec<Vec<i64>> {
    if count == 0 {
        return vec![vec![]];
    }
    let with = |(first, class): (usize, &i64)| {
        let rest = subsets(&of[first + 1..], count - 1);
        rest.into_iter().map(|rest| [vec![*class], rest].concat()).collect::<Vec<_>>()
    };
    of.iter().enumerate().flat_map(with).collect()
}

/// The stated problem is the mean, over all subsets of the other classes, of the loss of a head that has only
/// these classes and those of the batch.
#[test]
fn the_mean_gradient_over_many_draws_is_that_of_the_mean_problem() {
    let (all, y) = (9, [0i64, 4]);
    let head = head(all, 3.0 / 7.0, Precision::F32);
    let x = numbers(5, 2);
    let gradient = |part: &MarginHead, y: Tensor<1, Int>, rows: &[i64]| {
        let loss = part.forward(x.clone(), y, 0.0).unwrap().loss;
        let found = values(part.weight.val().grad(&loss.backward()).unwrap());
        let mut scattered = vec![0.0f64; all * DEPTH];
        for (row, values) in rows.iter().zip(found.chunks_exact(DEPTH)) {
            for (sum, value) in scattered[*row as usize * DEPTH..].iter_mut().zip(values) {
                *sum = f64::from(*value);
            }
        }
        scattered
    };
    let others: Vec<i64> = (0..all as i64).filter(|class| !y.contains(class)).collect();
    let problems = subsets(&others, 3);
    assert_eq!(problems.len(), 35);
    let mut exact = vec![0.0; all * DEPTH];
    let mut squares = vec![0.0; all * DEPTH];
    for problem in &problems {
        let mut rows = [y.to_vec(), problem.clone()].concat();
        rows.sort_unstable();
        let index = Tensor::from_data(TensorData::new(rows.clone(), [5]), &Device::flex());
        let weight = Tensor::from_inner(head.weight.val().inner().select(0, index));
        let mut part = head.clone();
        part.weight = Param::from_tensor(weight);
        let named = y.map(|label| rows.iter().position(|row| *row == label).unwrap() as i64);
        for (index, value) in gradient(&part, labels(&named), &rows).into_iter().enumerate() {
            exact[index] += value / 35.0;
            squares[index] += value * value / 35.0;
        }
    }
    let draws = 3000;
    let mut mean = vec![0.0; all * DEPTH];
    for step in 0..draws {
        let sampled = head.sampled(labels(&y), 1, step).unwrap();
        let rows = classes(&sampled);
        assert_eq!(rows.len(), 5);
        for (index, value) in gradient(&sampled.head, sampled.labels, &rows).into_iter().enumerate()
        {
            mean[index] += value / draws as f64;
        }
    }
    for (index, (mean, exact)) in mean.iter().zip(&exact).enumerate() {
        let error = ((squares[index] - exact * exact).max(0.0) / draws as f64).sqrt();
        assert!((mean - exact).abs() < 4.5 * error + 1e-6, "{index}: {mean}, {exact} ± {error}");
    }
}

#[test]
fn a_step_changes_only_the_sampled_rows_and_their_momentum() {
    let head = head(200, 0.1, Precision::F32);
    let mut optimiser = RowSgd::new(0.9, 5e-4);
    let mut weight = head.weight.clone();
    let mut velocity = vec![0.0f32; 200 * DEPTH];
    for step in 0..3 {
        let sampled = head.sampled(labels(&[1, 2, 3]), 5, step).unwrap();
        let rows = classes(&sampled);
        let before = values(weight.val());
        let gradient = numbers(50 + step, rows.len()).inner();
        let id = weight.id;
        weight = optimiser.step(0.1, weight, sampled.classes, gradient.clone());
        assert_eq!(weight.id, id);
        assert!(weight.val().is_require_grad());
        let after = values(weight.val());
        let moved = values(optimiser.velocity().unwrap().clone());
        let gradient = values(gradient);
        for row in 0..200 {
            let sampled = rows.iter().position(|sampled| *sampled == row as i64);
            for column in 0..DEPTH {
                let at = row * DEPTH + column;
                if let Some(place) = sampled {
                    // The definition, in the order of PyTorch's operations.
                    let decayed = before[at] * 5e-4 + gradient[place * DEPTH + column];
                    velocity[at] = decayed + velocity[at] * 0.9;
                    assert_eq!(after[at], before[at] - velocity[at] * 0.1);
                } else {
                    assert_eq!(after[at].to_bits(), before[at].to_bits());
                }
                assert_eq!(moved[at].to_bits(), velocity[at].to_bits());
            }
        }
    }
}

#[test]
fn steps_on_all_rows_are_burn_s_sgd_to_the_bit() {
    let mut head = head(50, 1.0, Precision::F32);
    let mut rows = head.clone();
    let momentum = MomentumConfig::new().with_momentum(0.9).with_dampening(0.0);
    let decay = burn::optim::decay::WeightDecayConfig::new(5e-4);
    let config = SgdConfig::new().with_momentum(Some(momentum)).with_weight_decay(Some(decay));
    let mut optimiser = config.init();
    let mut row_optimiser = RowSgd::new(0.9, 5e-4);
    let x = numbers(8, 6);
    for step in 0..5 {
        let y = labels(&[1, 2, 3, 30, 40, 49]);
        let loss = head.forward(x.clone(), y.clone(), 1.0).unwrap().loss;
        let gradients = GradientsParams::from_grads(loss.backward(), &head);
        head = optimiser.step(0.1, head, gradients);

        let sampled = rows.sampled(y, 1, step).unwrap();
        let loss = sampled.head.forward(x.clone(), sampled.labels, 1.0).unwrap().loss;
        let gradient = sampled.head.weight.val().grad(&loss.backward()).unwrap();
        rows.weight = row_optimiser.step(0.1, rows.weight, sampled.classes, gradient);
        assert_eq!(bits(head.weight.val()), bits(rows.weight.val()), "step {step}");
    }
}

#[test]
fn a_learned_scale_and_a_margin_are_those_of_the_whole_head() {
    let config = ArcFaceConfig::new(DEPTH, 100).with_scale(8.0).with_learned_scale(true);
    let head = config.with_sample_rate(0.5).init(&device());
    let sampled = head.sampled(labels(&[1]), 0, 0).unwrap();
    assert_eq!(sampled.head.margin, head.margin);
    assert_eq!(sampled.head.scale(), head.scale());
    let loss = sampled.head.forward(numbers(1, 1), sampled.labels, 0.0).unwrap().loss;
    // The scale is the same parameter: its gradient arrives at the whole head.
    let log_scale = head.log_scale.as_ref().unwrap().val();
    assert!(log_scale.grad(&loss.backward()).is_some());
}

#[test]
fn labels_out_of_range_and_impossible_rates_are_refused() {
    assert!(head(10, 0.5, Precision::F32).sampled(labels(&[10]), 0, 0).is_err());
    for rate in [0.0, -0.5, 1.5, f64::NAN, f64::INFINITY] {
        let told = SampleRate::new(rate).unwrap_err().to_string();
        assert!(told.contains("above 0 and at most 1"), "{told}");
    }
    assert_eq!(SampleRate::default(), SampleRate::ALL);
}

#[test]
fn few_classes_leave_at_least_one_other() {
    let drawn = |classes_of_head: usize, rate: f64, of_batch: &[i64]| {
        let head = LSoftmaxConfig::new(2, classes_of_head).with_sample_rate(rate).init(&device());
        classes(&head.sampled(labels(of_batch), 0, 0).unwrap()).len()
    };
    assert_eq!(drawn(3, 0.01, &[0]), 2);
    assert_eq!(drawn(3, 0.01, &[0, 1, 2]), 3);
    assert_eq!(drawn(1, 0.5, &[0]), 1);
}
