//! Weights kept in bf16: the same bits as weights rounded in every pass, however the weights change.

use burn::module::{Module, Param};
use burn::nn::LinearConfig;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{GradientsParams, SgdConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};
use lsoftmax::{
    ASoftmaxConfig, AngularMargin, ArcFaceConfig, CombinedMargin, CosFaceConfig, Execution,
    LSoftmaxConfig, MarginHead, NormSoftmaxConfig, Precision, RowSgd,
};
use lsoftmax_testing::SplitMix;

const SAMPLES: usize = 40;
const DEPTH: usize = 33;
const CLASSES: usize = 300;

fn device() -> Device {
    Device::flex().autodiff()
}

fn numbers(seed: u64, rows: usize) -> Tensor<2> {
    let mut numbers = SplitMix(seed);
    let values: Vec<f32> = (0..rows * DEPTH).map(|_| numbers.normal() as f32).collect();
    Tensor::from_data(TensorData::new(values, [rows, DEPTH]), &device())
}

fn labels() -> Tensor<1, Int> {
    let labels: Vec<i64> = (0..SAMPLES).map(|sample| (sample * 31 % CLASSES) as i64).collect();
    Tensor::from_data(TensorData::new(labels, [SAMPLES]), &device())
}

fn bits<const D: usize>(tensor: Tensor<D>) -> Vec<u32> {
    tensor.into_data().iter::<f32>().map(f32::to_bits).collect()
}

fn head(precision: Precision) -> MarginHead {
    let mut head = LSoftmaxConfig::new(DEPTH, CLASSES).with_precision(precision).init(&device());
    head.weight = Param::from_tensor(numbers(1, CLASSES));
    head
}

/// Loss and gradients of a batch, as bits.
fn pass<M: AngularMargin>(head: &MarginHead<M>, seed: u64) -> [Vec<u32>; 3] {
    let x = numbers(seed, SAMPLES).require_grad();
    let out = head.forward(x.clone(), labels(), 0.5).unwrap();
    let gradients = out.loss.backward();
    let [of_x, of_w] = [x.grad(&gradients), head.weight.val().grad(&gradients)].map(Option::unwrap);
    [bits(out.losses), bits(of_x), bits(of_w)]
}

/// The same with a head that has never kept anything.
fn fresh_pass<M: AngularMargin>(head: &MarginHead<M>, seed: u64) -> [Vec<u32>; 3] {
    let weight = Param::from_data(head.weight.val().into_data(), &device());
    let head = MarginHead { weight, ..head.clone() };
    pass(&head.with_execution(Execution::new(Precision::Bf16)), seed)
}

/// The weights after some steps of SGD with momentum, on two batches each.
fn trained<M: AngularMargin>(mut head: MarginHead<M>, precision: Precision) -> Vec<u32> {
    head.weight = Param::from_tensor(numbers(2, CLASSES));
    head = head.with_execution(Execution::new(precision));
    let momentum = MomentumConfig::new().with_momentum(0.9).with_dampening(0.0);
    let mut optimiser = SgdConfig::new().with_momentum(Some(momentum)).init();
    for step in 0..4 {
        let loss = [2 * step, 2 * step + 1]
            .map(|seed| head.forward(numbers(100 + seed, SAMPLES), labels(), 0.5).unwrap().loss);
        let gradients = (loss[0].clone() + loss[1].clone()).backward();
        let gradients = GradientsParams::from_grads(gradients, &head);
        drop(loss);
        head = optimiser.step(0.5, head, gradients);
    }
    let scale = head.log_scale.as_ref().map(|scale| bits(scale.val())).unwrap_or_default();
    [bits(head.weight.val()), scale].concat()
}

fn assert_trained_alike<M: AngularMargin>(name: &str, head: MarginHead<M>) {
    let expected = trained(head.clone(), Precision::Bf16);
    assert_eq!(trained(head.clone(), Precision::Bf16Weights), expected, "{name}");
    assert_ne!(trained(head, Precision::F32), expected, "{name}: rounding changes nothing");
}

#[test]
fn every_head_trains_to_the_same_bits_as_in_bf16() {
    let device = device();
    let (d, k) = (DEPTH, CLASSES);
    assert_trained_alike("L-Softmax", LSoftmaxConfig::new(d, k).with_margin(4).init(&device));
    let with_bias = LSoftmaxConfig::new(d, k).with_margin(1).with_bias(true);
    assert_trained_alike("softmax", with_bias.init(&device));
    assert_trained_alike("A-Softmax", ASoftmaxConfig::new(d, k).init(&device));
    assert_trained_alike("CosFace", CosFaceConfig::new(d, k).init(&device));
    let arcface = ArcFaceConfig::new(d, k).init(&device);
    let combined = CombinedMargin::new(1.1, 0.2, 0.1).unwrap();
    assert_trained_alike("combined", arcface.clone().with_margin(combined));
    assert_trained_alike("ArcFace", arcface);
    let learned = NormSoftmaxConfig::new(d, k).init(&device).with_learned_scale();
    assert_trained_alike("NormSoftmax with a learned scale", learned);
}

#[test]
fn a_copy_is_made_by_the_first_pass_and_has_two_bytes_per_weight() {
    let kept = head(Precision::Bf16Weights);
    assert_eq!(kept.weight_copy.bytes(), 0);
    kept.forward(numbers(5, SAMPLES), labels(), 0.5).unwrap();
    let bytes = kept.weight_copy.bytes();
    // An odd number of features is padded by one; AMX pads further. 1/|W| has four bytes per class.
    assert!((CLASSES * (2 * (DEPTH + 1) + 4)..CLASSES * (2 * DEPTH + 136)).contains(&bytes));
    assert!(pass(&kept, 6) == fresh_pass(&kept, 6));
    let rounded = head(Precision::Bf16);
    rounded.forward(numbers(5, SAMPLES), labels(), 0.5).unwrap();
    assert_eq!(rounded.weight_copy.bytes(), 0);
}

#[test]
fn weights_that_have_changed_in_any_way_are_copied_anew() {
    let mut head = head(Precision::Bf16Weights);
    let mut last = pass(&head, 7);
    let mut check = |what: &str, head: &MarginHead| {
        let found = pass(head, 7);
        assert!(found == fresh_pass(head, 7), "{what}");
        assert!(found == pass(head, 7), "{what}, again");
        assert!(found != last, "{what} changes nothing");
        last = found;
    };

    head.weight = Param::from_tensor(numbers(3, CLASSES));
    check("another parameter", &head);
    head.weight = head.weight.map(|weight| Tensor::from_inner(weight.inner() * 1.5).require_grad());
    check("a parameter mapped in place", &head);
    let layer = LinearConfig::new(DEPTH, CLASSES).with_bias(false).init(&device());
    head = head.with_linear(&layer).unwrap();
    check("a linear layer", &head);

    let gradients = head.forward(numbers(8, SAMPLES), labels(), 0.5).unwrap().loss.backward();
    let gradients = GradientsParams::from_grads(gradients, &head);
    head = SgdConfig::new().init().step(1.0, head, gradients);
    check("an optimiser", &head);

    let rows = Tensor::<1, Int>::from_ints([3, 31, 299], &device());
    let gradient = numbers(9, 3);
    head.weight = RowSgd::new(0.9, 0.0).step(1.0, head.weight, rows, gradient.inner());
    check("an optimiser of some rows", &head);

    let weight = Param::from_tensor(numbers(10, CLASSES));
    let record = MarginHead { weight, ..head.clone() }.into_record();
    head = head.load_record(record);
    check("a record", &head);
    check_clone(&head);
}

/// A clone with other weights shares the place of the copy, and must not use what it finds there.
fn check_clone(head: &MarginHead) {
    let other = MarginHead { weight: Param::from_tensor(numbers(11, CLASSES)), ..head.clone() };
    for _ in 0..2 {
        assert!(pass(head, 12) == fresh_pass(head, 12));
        assert!(pass(&other, 12) == fresh_pass(&other, 12));
    }
}

#[test]
fn a_backward_pass_uses_the_weights_of_its_forward_pass() {
    let mut kept = head(Precision::Bf16Weights);
    let expected = fresh_pass(&kept, 13);
    let x = numbers(13, SAMPLES).require_grad();
    let out = kept.forward(x.clone(), labels(), 0.5).unwrap();
    let weight = kept.weight.val();
    kept.weight = Param::from_tensor(numbers(14, CLASSES));
    kept.forward(numbers(15, SAMPLES), labels(), 0.5).unwrap();
    let gradients = out.loss.backward();
    assert!(bits(x.grad(&gradients).unwrap()) == expected[1]);
    assert!(bits(weight.grad(&gradients).unwrap()) == expected[2]);
}

#[test]
fn sampled_classes_give_the_same_bits_as_in_bf16() {
    let [kept, rounded] = [Precision::Bf16Weights, Precision::Bf16].map(|precision| {
        let head = head(precision).with_sample_rate(lsoftmax::SampleRate::new(0.7).unwrap());
        (0..3)
            .map(|step| {
                let part = head.sampled(labels(), 1, step).unwrap();
                let out = part.head.forward(numbers(16, SAMPLES), part.labels, 0.5).unwrap();
                let gradients = out.loss.backward();
                (bits(out.losses), bits(part.head.weight.val().grad(&gradients).unwrap()))
            })
            .collect::<Vec<_>>()
    });
    assert!(kept == rounded);
}
