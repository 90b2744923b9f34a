//! The kernels against the same network composed of Burn's own operations.

use std::sync::{Mutex, PoisonError};

use burn::module::{Module, Param};
use burn::tensor::{Device, Distribution, Gradients, Tensor};
use lsoftmax_nn::{
    Activation, ConvUnit, Execution, FeaturesConfig, Network, NetworkConfig, Precision,
    StageConfig, Unit,
};
use lsoftmax_testing::assert_close_to_scale;

/// Odd sizes, stride 2, with and without pooling, numbers of channels around 32.
fn config(activation: Activation) -> NetworkConfig {
    NetworkConfig {
        input: [3, 19, 15],
        stages: vec![
            StageConfig { stride: 2, pool: false, ..StageConfig::new(7, 1) },
            StageConfig { kernel: 5, ..StageConfig::new(33, 2) },
            StageConfig::new(40, 2),
        ],
        features: FeaturesConfig { activation, ..FeaturesConfig::new(10) },
    }
}

/// Serialises tests that draw random numbers, since the CPU backend has one generator for all threads.
fn drawn<T>(seed: u64, device: &Device, draw: impl FnOnce() -> T) -> T {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    device.seed(seed);
    draw()
}

fn network(config: &NetworkConfig, device: &Device) -> Network {
    drawn(7, device, || config.init(device).unwrap())
}

fn batch(device: &Device, shape: [usize; 4]) -> Tensor<4> {
    drawn(8, device, || Tensor::random(shape, Distribution::Normal(0.0, 1.0), device))
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec().unwrap()
}

fn assert_close(what: &str, found: &[f32], expected: &[f32], tolerance: f64) {
    assert_close_to_scale(what, found, expected, tolerance, 1e-3);
}

/// Everything that has a gradient in a unit, by name.
fn parameters(unit: &ConvUnit, gradients: &Gradients) -> Vec<(&'static str, Vec<f32>)> {
    let vector = |parameter: &Option<Param<Tensor<1>>>| {
        parameter.as_ref().map(|p| numbers(p.val().grad(gradients).unwrap()))
    };
    let weight = numbers(unit.weight.val().grad(gradients).unwrap());
    let vectors = [
        ("bias", vector(&unit.bias)),
        ("gamma", vector(&unit.gamma)),
        ("beta", vector(&unit.beta)),
        ("slope", vector(&unit.slope)),
    ];
    let vectors = vectors.into_iter().filter_map(|(name, values)| Some((name, values?)));
    std::iter::once(("weight", weight)).chain(vectors).collect()
}

#[test]
fn kernels_and_composed_operations_agree_on_features_statistics_and_every_gradient() {
    for activation in [Activation::None, Activation::Prelu] {
        let config = config(activation);
        let run = |execution: Execution| {
            let device = Device::flex().autodiff();
            let network = network(&config, &device).with_execution(execution);
            let images = batch(&device, [17, 3, 19, 15]).require_grad();
            let upstream = batch(&device, [1, 1, 17, 10]).reshape([17, 10]);
            let features = network.forward(images.clone()).unwrap();
            let gradients = (features.clone() * upstream).sum().backward();
            let valid = network.valid();
            let evaluated = valid.forward(batch(&Device::flex(), [5, 3, 19, 15])).unwrap();
            (network, images.grad(&gradients).unwrap(), features, evaluated, gradients)
        };
        let (fused, fused_images, fused_features, fused_evaluated, fused_gradients) =
            run(Execution::default());
        let (plain, plain_images, plain_features, plain_evaluated, plain_gradients) =
            run(Execution::Composed);
        assert_close("features", &numbers(fused_features), &numbers(plain_features), 1e-4);
        assert_close("evaluated", &numbers(fused_evaluated), &numbers(plain_evaluated), 1e-4);
        assert_close("images", &numbers(fused_images), &numbers(plain_images), 1e-3);
        for (index, (fused, plain)) in fused.units.iter().zip(&plain.units).enumerate() {
            let found = parameters(fused, &fused_gradients);
            for ((name, found), (_, expected)) in
                found.into_iter().zip(parameters(plain, &plain_gradients))
            {
                assert_close(&format!("{name} of unit {index}"), &found, &expected, 1e-3);
            }
            let pairs = [
                (&fused.running_mean, &plain.running_mean),
                (&fused.running_var, &plain.running_var),
            ];
            for (found, expected) in pairs {
                let (Some(found), Some(expected)) = (found, expected) else { continue };
                let (found, expected) = (numbers(found.value()), numbers(expected.value()));
                assert_close("running statistics", &found, &expected, 1e-4);
            }
        }
    }
}

#[test]
fn every_kind_of_unit_agrees() {
    for choice in 0..16 {
        let has = |bit: usize| choice >> bit & 1 == 1;
        let (bias, norm, prelu, pool) = (has(0), has(1), has(2), has(3));
        let unit = Unit { bias, norm, prelu, pool, ..Unit::new(9) };
        let run = |execution: Execution| {
            let device = Device::flex().autodiff();
            let unit = drawn(3, &device, || ConvUnit::new(5, unit, &device));
            let unit = unit.with_execution(execution);
            let output = unit.forward(batch(&device, [6, 5, 7, 9])).unwrap();
            // Not a sum of squares, which batch norm makes independent of the weights.
            let upstream = batch(&device, output.dims());
            let gradients = (output.clone() * upstream).sum().backward();
            (numbers(output), parameters(&unit, &gradients))
        };
        let (found, found_gradients) = run(Execution::default());
        let (expected, expected_gradients) = run(Execution::Composed);
        assert_close("output", &found, &expected, 1e-5);
        for ((name, found), (_, expected)) in found_gradients.iter().zip(&expected_gradients) {
            // Batch norm cancels a bias: its gradient is rounding noise in one and zero in the other.
            let tolerance = if *name == "bias" && has(1) { 1.0 } else { 1e-4 };
            assert_close(name, found, expected, tolerance);
        }
    }
}

#[test]
fn bf16_stays_near_f32() {
    let config = config(Activation::Prelu);
    let run = |precision| {
        let device = Device::flex().autodiff();
        let network = network(&config, &device).with_execution(Execution::new(precision));
        numbers(network.forward(batch(&device, [32, 3, 19, 15])).unwrap())
    };
    let (found, expected) = (run(Precision::Bf16), run(Precision::F32));
    assert_ne!(found, expected);
    assert_close("features", &found, &expected, 0.05);
}

#[test]
fn kernels_and_composed_operations_agree_where_some_units_are_frozen() {
    let config = config(Activation::Prelu);
    for frozen in [&[0][..], &[0, 1, 2], &[1, 3], &[5]] {
        let run = |execution: Execution| {
            let device = Device::flex().autodiff();
            let mut network = network(&config, &device).with_execution(execution);
            // So that the running statistics are not those of a new network.
            network.forward(batch(&device, [9, 3, 19, 15])).unwrap();
            for unit in frozen {
                network.units[*unit] = network.units[*unit].clone().freeze();
            }
            let images = batch(&device, [17, 3, 19, 15]);
            let upstream = batch(&device, [1, 1, 17, 10]).reshape([17, 10]);
            let features = network.forward(images).unwrap();
            let gradients = (features.clone() * upstream).sum().backward();
            (network, features, gradients)
        };
        let (fused, found, fused_gradients) = run(Execution::default());
        let (plain, expected, plain_gradients) = run(Execution::Composed);
        assert_close("features", &numbers(found), &numbers(expected), 1e-4);
        for (index, (fused, plain)) in fused.units.iter().zip(&plain.units).enumerate() {
            if frozen.contains(&index) {
                assert!(fused.weight.val().grad(&fused_gradients).is_none());
                let running =
                    |unit: &ConvUnit| numbers(unit.running_mean.as_ref().unwrap().value());
                assert_close("running statistics", &running(fused), &running(plain), 1e-4);
                continue;
            }
            let found = parameters(fused, &fused_gradients);
            let expected = parameters(plain, &plain_gradients);
            for ((name, found), (_, expected)) in found.into_iter().zip(expected) {
                assert_close(&format!("{name} of unit {index}"), &found, &expected, 1e-3);
            }
        }
    }
}

#[test]
fn frozen_first_layers_have_no_gradients_and_do_not_affect_the_others() {
    let config = config(Activation::Prelu);
    let run = |frozen: bool| {
        let device = Device::flex().autodiff();
        let mut network = network(&config, &device);
        if frozen {
            // Only the weights: a completely frozen unit would use its running statistics.
            network.units[0].weight = network.units[0].weight.clone().no_grad();
        }
        let features = network.forward(batch(&device, [4, 3, 19, 15])).unwrap();
        let gradients = features.powi_scalar(2).sum().backward();
        let first = network.units[0].weight.val().grad(&gradients).map(numbers);
        (first, numbers(network.units[1].weight.val().grad(&gradients).unwrap()))
    };
    let ((none, found), (some, expected)) = (run(true), run(false));
    assert!(none.is_none() && some.is_some());
    assert_eq!(found, expected);
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let config = config(Activation::Prelu);
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let device = Device::flex().autodiff();
            let network = network(&config, &device);
            let features = network.forward(batch(&device, [40, 3, 19, 15])).unwrap();
            let gradients = features.clone().powi_scalar(2).sum().backward();
            let weight = network.units[1].weight.val().grad(&gradients).unwrap();
            (numbers(features), numbers(weight))
        })
    };
    assert_eq!(run(1), run(3));
}
