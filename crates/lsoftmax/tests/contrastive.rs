//! The contrastive loss of a batch against its definition, pair by pair.

use burn::tensor::{Device, Int, Tensor, TensorData};
use lsoftmax::ContrastiveLossConfig;
use lsoftmax_testing::{SplitMix, assert_close};

const DEPTH: usize = 5;

/// By the definition, in f64: features of length 1, the two kinds of pairs averaged separately.
fn definition(features: &[f64], labels: &[i64], margin: f64) -> f64 {
    let unit = |i: usize| {
        let row = &features[i * DEPTH..][..DEPTH];
        let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        row.iter().map(|x| if norm > 0.0 { x / norm } else { 0.0 }).collect::<Vec<_>>()
    };
    let (mut sums, mut counts) = ([0.0; 2], [0.0; 2]);
    for i in 0..labels.len() {
        for j in i + 1..labels.len() {
            let square: f64 = unit(i).iter().zip(unit(j)).map(|(a, b)| (a - b).powi(2)).sum();
            let same = usize::from(labels[i] == labels[j]);
            let apart = (margin - square.sqrt()).max(0.0);
            sums[same] += 0.5 * if same == 1 { square } else { apart * apart };
            counts[same] += 1.0;
        }
    }
    (0..2).map(|kind| 0.5 * sums[kind] / f64::max(counts[kind], 1.0)).sum()
}

fn tensors(features: &[f64], labels: &[i64], device: &Device) -> (Tensor<2>, Tensor<1, Int>) {
    let values: Vec<f32> = features.iter().map(|value| *value as f32).collect();
    let features = TensorData::new(values, [labels.len(), DEPTH]);
    let labels = TensorData::new(labels.to_vec(), [labels.len()]);
    (Tensor::from_data(features, device), Tensor::from_data(labels, device))
}

#[test]
fn a_batch_is_all_its_pairs_with_value_and_gradient() {
    let labels = [0, 1, 0, 2, 1, 0];
    let device = Device::flex().autodiff();
    for margin in [0.5, 1.0, 1.8] {
        let features = SplitMix(3).normals(labels.len() * DEPTH);
        let (x, y) = tensors(&features, &labels, &device);
        let x = x.require_grad();
        let loss = ContrastiveLossConfig::new().with_margin(margin).init();
        let loss = loss.forward_batch(x.clone(), y);
        let found = loss.clone().into_scalar::<f32>();
        let expected = definition(&features, &labels, margin);
        assert!((f64::from(found) - expected).abs() < 1e-5, "{found} is not {expected}");

        let gradient = x.grad(&loss.backward()).unwrap().into_data();
        let gradient: Vec<f32> = gradient.iter::<f32>().collect();
        let differences: Vec<f64> = (0..features.len())
            .map(|i| {
                let at = |by: f64| {
                    let mut moved = features.clone();
                    moved[i] += by;
                    definition(&moved, &labels, margin)
                };
                (at(1e-5) - at(-1e-5)) / 2e-5
            })
            .collect();
        assert_close("gradient", &gradient, &differences, 1e-4);
    }
}

#[test]
fn a_batch_without_a_pair_of_one_kind_or_with_a_zero_feature_is_finite() {
    let device = Device::flex().autodiff();
    let loss = ContrastiveLossConfig::new().init();
    let mut zero = SplitMix(5).normals(3 * DEPTH);
    zero[..DEPTH].fill(0.0);
    let cases = [
        (vec![0, 1, 2], SplitMix(4).normals(3 * DEPTH)),
        (vec![1, 1, 1], zero.clone()),
        (vec![0, 0, 1], zero),
    ];
    for (labels, features) in cases {
        let (x, y) = tensors(&features, &labels, &device);
        let x = x.require_grad();
        let found = loss.forward_batch(x.clone(), y);
        let value = f64::from(found.clone().into_scalar::<f32>());
        let expected = definition(&features, &labels, 1.0);
        assert!((value - expected).abs() < 1e-5, "{value} is not {expected}");
        let gradient = x.grad(&found.backward()).unwrap().into_data();
        assert!(gradient.iter::<f32>().all(f32::is_finite));
    }
}
