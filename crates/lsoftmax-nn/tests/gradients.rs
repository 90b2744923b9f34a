//! Gradients against central differences of the definition.

mod support;

use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Tensor};
use lsoftmax_nn::{Activation, ConvUnit, Pool, Unit};
use lsoftmax_testing::Congruential;
use support::naive::{Images, Naive};
use support::{assert_close, module, tensor, values};

const STEP: f64 = 1e-5;

const CHANNELS: usize = 2;

/// The loss: a fixed linear combination of the outputs.
fn loss(output: &Images, upstream: &[f64]) -> f64 {
    output.numbers.iter().zip(upstream).map(|(x, g)| x * g).sum()
}

/// (f(x + h) − f(x − h)) / 2h for every number that `numbers` returns from `state`.
fn differences<S: Clone>(
    state: &S,
    numbers: impl Fn(&mut S) -> &mut Vec<f64>,
    loss: impl Fn(&S) -> f64,
) -> Vec<f64> {
    let count = numbers(&mut state.clone()).len();
    let moved = |i: usize, step: f64| {
        let mut state = state.clone();
        numbers(&mut state)[i] += step;
        loss(&state)
    };
    (0..count).map(|i| (moved(i, STEP) - moved(i, -STEP)) / (2.0 * STEP)).collect()
}

/// Compares every gradient of a unit, in training or with frozen statistics.
fn check(unit: Unit, size: [usize; 2], seed: u64, training: bool) {
    let device = Device::flex().autodiff();
    let naive = Naive::random(CHANNELS, unit, seed);
    let images = Images::random([3, CHANNELS, size[0], size[1]], seed + 1);
    let output = naive.forward(&images, training);
    let upstream = Congruential::seeded(seed + 2).doubles(output.numbers.len());

    let mut module = module(&naive, &device, DType::F64);
    module.training = module.training.with_value(training);
    let input = tensor(&images.numbers, images.shape, &device, DType::F64).require_grad();
    let weights = tensor(&upstream, output.shape, &device, DType::F64);
    let found = (module.forward(input.clone()).unwrap() * weights).sum().backward();

    let what = |part: &str| format!("{part} of {unit:?}, training {training}");
    let of_images = differences(
        &images,
        |images| &mut images.numbers,
        |images| loss(&naive.forward(images, training), &upstream),
    );
    let gradient = values(input.grad(&found).expect("the images' gradient"));
    assert_close(&what("the images"), &gradient, &of_images, 1e-8);

    let gradient = |param: &Option<Param<Tensor<1>>>| {
        let grad = |param: &Param<Tensor<1>>| values(param.val().grad(&found).expect("a gradient"));
        param.as_ref().map(grad).unwrap_or_default()
    };
    let ConvUnit { weight, bias, gamma, beta, slope, .. } = &module;
    let gradients = [
        values(weight.val().grad(&found).expect("the weight's gradient")),
        gradient(bias),
        gradient(gamma),
        gradient(beta),
        gradient(slope),
    ];
    for (part, gradient) in gradients.iter().enumerate() {
        let name = naive.clone().parts_mut()[part].0;
        let expected = differences(
            &naive,
            |naive| naive.parts_mut().into_iter().nth(part).unwrap().1,
            |naive| loss(&naive.forward(&images, training), &upstream),
        );
        assert_close(&what(name), gradient, &expected, 1e-8);
    }
}

#[test]
fn gradients_are_those_of_the_definition() {
    let plain = Unit::new(3);
    check(Unit { pool: Pool::Max, ..plain }, [5, 5], 1, true);
    check(Unit { pool: Pool::Max, stride: 2, ..plain }, [9, 6], 2, true);
    check(Unit { kernel: [5, 3], padding: 2, pool: Pool::Max, ..plain }, [4, 5], 3, true);
    check(Unit { kernel: [4, 3], padding: 0, ..plain }, [4, 3], 4, true);
    check(Unit { norm: false, bias: true, pool: Pool::Max, ..plain }, [5, 7], 5, true);
    check(Unit { activation: Activation::Relu, ..plain }, [5, 4], 7, true);
    check(Unit { pool: Pool::Average, ..plain }, [5, 4], 8, true);
}

#[test]
fn gradients_with_frozen_statistics_are_those_of_the_definition() {
    check(Unit { pool: Pool::Max, ..Unit::new(3) }, [5, 5], 6, false);
}

/// A unit of one channel with an identity convolution (1x1 with weight 1).
fn passing(unit: Unit, device: &Device) -> ConvUnit {
    let passing = Unit { kernel: [1, 1], padding: 0, norm: false, ..unit };
    let mut unit = ConvUnit::new(1, passing, device);
    unit.weight = unit.weight.map(|weight| weight.ones_like());
    unit.no_grad()
}

#[test]
fn at_zero_the_derivative_of_prelu_is_the_slope() {
    let device = Device::flex().autodiff();
    let unit = passing(Unit::new(1), &device);
    let input = Tensor::<4>::from_floats([[[[-2.0, 0.0, 3.0]]]], &device).require_grad();
    let found = unit.forward(input.clone()).unwrap().sum().backward();
    assert_eq!(values(input.grad(&found).unwrap()), [0.25, 0.25, 1.0]);
}

#[test]
fn pooling_passes_the_gradient_to_the_first_of_equal_pixels() {
    let device = Device::flex().autodiff();
    let unit =
        passing(Unit { activation: Activation::None, pool: Pool::Max, ..Unit::new(1) }, &device);
    let input = Tensor::<4>::full([1, 1, 3, 3], -1.0, &device).require_grad();
    let found = unit.forward(input.clone()).unwrap().sum().backward();
    let expected = [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0];
    assert_eq!(values(input.grad(&found).unwrap()), expected);
}
