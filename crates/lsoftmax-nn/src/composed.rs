//! The units composed of ordinary tensor operations, for every backend and float type.

use burn::module::Param;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::module::{batch_norm, batch_norm_train, conv2d, max_pool2d};
use burn::tensor::ops::{ConvOptions, MaxPoolOptions};
use lsoftmax_kernels::conv::{Activation, EPSILON, Pool, ShortcutOrder, Stack, Unit};

use crate::ConvUnit;

/// Computes the units in sequence.
pub(crate) fn run(units: &[ConvUnit], stack: &Stack, images: Tensor<4>) -> Tensor<4> {
    let mut outputs: Vec<Option<Tensor<4>>> = Vec::with_capacity(units.len());
    for (index, unit) in units.iter().enumerate() {
        let output = |unit: usize| outputs[unit].clone().expect("it is used here");
        let input = stack.source(index).map_or_else(|| images.clone(), output);
        let added = stack.addend(index).map(output);
        let result = forward(unit, input, added);
        for (unit, output) in outputs.iter_mut().enumerate() {
            let is_used = |later| [stack.source(later), stack.addend(later)].contains(&Some(unit));
            if !(index + 1..units.len()).any(is_used) {
                *output = None;
            }
        }
        outputs.push(Some(result));
    }
    outputs.pop().flatten().expect("a network has units")
}

fn forward(unit: &ConvUnit, input: Tensor<4>, added: Option<Tensor<4>>) -> Tensor<4> {
    let Unit { stride, padding, pool, activation, shortcut, .. } = unit.unit();
    let options = ConvOptions::new([stride; 2], [padding; 2], [1, 1], 1);
    let trains = unit.trains_on(&input);
    let bias = unit.bias.as_ref().map(Param::val);
    let output = conv2d(input, unit.weight.val(), bias, options);
    let output = norm(unit, output, trains);
    let before = shortcut.is_some_and(|s| s.order == ShortcutOrder::BeforeActivation);
    let (before, after) = if before { (added, None) } else { (None, added) };
    let output = match before {
        Some(added) => output + added,
        None => output,
    };
    let output = match (activation, &unit.slope) {
        (Activation::Prelu, Some(slope)) => prelu(output, slope.val()),
        (Activation::Relu, _) => relu(output),
        _ => output,
    };
    let output = match after {
        Some(added) => output + added,
        None => output,
    };
    match pool {
        Pool::None => output,
        Pool::Max => max_pool2d(output, MaxPoolOptions::new([2, 2]).with_ceil_mode(true)),
        Pool::Average => output.mean_dim(2).mean_dim(3),
    }
}

/// Batch norm, if the unit has one.
fn norm(unit: &ConvUnit, input: Tensor<4>, trains: bool) -> Tensor<4> {
    let (Some(gamma), Some(beta)) = (&unit.gamma, &unit.beta) else { return input };
    let (Some(mean), Some(variance)) = (&unit.running_mean, &unit.running_var) else {
        return input;
    };
    let epsilon = f64::from(EPSILON);
    if trains {
        let [images, _, height, width] = input.dims();
        let found = batch_norm_train(input, gamma.val(), beta.val(), epsilon);
        unit.update_running(found.mean, found.variance, images * height * width);
        return found.output;
    }
    let device = input.device();
    let (mean, variance) = (mean.value().to_device(&device), variance.value().to_device(&device));
    batch_norm(input, gamma.val(), beta.val(), mean, variance, epsilon)
}

/// PReLU. Its derivative at 0 is the slope, as in PyTorch; that of Burn's own is 1.
fn prelu(input: Tensor<4>, slope: Tensor<1>) -> Tensor<4> {
    let positive = input.clone().greater_scalar(0.0);
    let channels = slope.dims()[0];
    (input.clone() * slope.reshape([1, channels, 1, 1])).mask_where(positive, input)
}
