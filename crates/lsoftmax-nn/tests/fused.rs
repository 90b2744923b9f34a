//! The kernels against the same network composed of Burn's own operations.

use std::sync::{Mutex, PoisonError};

use burn::module::{Module, Param};
use burn::tensor::{Device, Distribution, Gradients, Tensor};
use lsoftmax_nn::{
    Activation, ConvUnit, Execution, FeaturesConfig, Network, NetworkConfig, Pool, Precision,
    Residual, StageConfig, Unit,
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

/// Residual networks: blocks with and without a change of size, both orders, features that are averages or not.
fn residual_configs() -> [NetworkConfig; 2] {
    let stem = StageConfig { pool: false, ..StageConfig::new(7, 1) };
    let strided = |stage| StageConfig { stride: 2, ..stage };
    let resnet = |filters| StageConfig::residual(filters, 4, Residual::Resnet);
    let relu = StageConfig { activation: Activation::Relu, ..resnet(33) };
    let sphereface = StageConfig::residual(8, 2, Residual::Sphereface);
    [
        NetworkConfig {
            input: [3, 19, 15],
            stages: vec![stem.clone(), resnet(7), strided(relu), strided(resnet(10))],
            features: FeaturesConfig::average(10),
        },
        NetworkConfig {
            input: [3, 19, 15],
            stages: vec![StageConfig::new(8, 1), sphereface, strided(stem), resnet(9)],
            features: FeaturesConfig::linear(10),
        },
    ]
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

/// Compares the length of the difference with that of the expected numbers.
fn assert_close_in_norm(what: &str, found: &[f32], expected: &[f32], tolerance: f64) {
    let norm = |values: &[f32]| values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let errors: Vec<f32> = found.iter().zip(expected).map(|(f, e)| f - e).collect();
    let (error, most) = (norm(&errors), tolerance * norm(expected));
    assert!(error < most, "{what}: {error} is more than {most}");
}

/// The network with 4 more in every second channel of a batch norm, and 4 less in the others: no activation is near its
/// bend at 0, where rounding would decide between two slopes.
fn away_from_bends(mut network: Network, device: &Device) -> Network {
    for unit in &mut network.units {
        let Some(beta) = &mut unit.beta else { continue };
        let shifts: Vec<f32> =
            (0..beta.dims()[0]).map(|channel| [4.0, -4.0][channel % 2]).collect();
        *beta = Param::from_tensor(Tensor::from_floats(shifts.as_slice(), device));
    }
    network
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
    let plain = [Activation::None, Activation::Prelu].map(|last| (config(last), false));
    let residual = residual_configs().map(|config| [(config.clone(), false), (config, true)]);
    for (config, shifted) in plain.into_iter().chain(residual.into_iter().flatten()) {
        let run = |execution: Execution| {
            let device = Device::flex().autodiff();
            let network = network(&config, &device).with_execution(execution);
            let network = if shifted { away_from_bends(network, &device) } else { network };
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
        // In these many layers, one activation or two have an input so near 0 that rounding decides between its slopes, and
        // batch norm takes that to all gradients. Away from the bends every number agrees.
        let at_bends = config.stages.len() > 3 && !shifted;
        let agree = |what: &str, found: &[f32], expected: &[f32]| match at_bends {
            false => assert_close(what, found, expected, 1e-4),
            true => assert_close_in_norm(what, found, expected, 5e-3),
        };
        agree("images", &numbers(fused_images), &numbers(plain_images));
        for (index, (fused, plain)) in fused.units.iter().zip(&plain.units).enumerate() {
            let found = parameters(fused, &fused_gradients);
            for ((name, found), (_, expected)) in
                found.into_iter().zip(parameters(plain, &plain_gradients))
            {
                agree(&format!("{name} of unit {index}"), &found, &expected);
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
    for choice in 0..36 {
        let has = |bit: usize| choice >> bit & 1 == 1;
        let (bias, norm) = (has(0), has(1));
        let activation = [Activation::None, Activation::Relu, Activation::Prelu][choice / 4 % 3];
        let pool = [Pool::None, Pool::Max, Pool::Average][choice / 12];
        let unit = Unit { bias, norm, activation, pool, ..Unit::new(9) };
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
    for config in [config(Activation::Prelu)].into_iter().chain(residual_configs()) {
        near_in_bf16(&config);
    }
}

fn near_in_bf16(config: &NetworkConfig) {
    let run = |precision| {
        let device = Device::flex().autodiff();
        let network = network(config, &device).with_execution(Execution::new(precision));
        numbers(network.forward(batch(&device, [32, 3, 19, 15])).unwrap())
    };
    let (found, expected) = (run(Precision::Bf16), run(Precision::F32));
    assert_ne!(found, expected);
    assert_close("features", &found, &expected, 0.05);
}

#[test]
fn kernels_and_composed_operations_agree_where_some_units_are_frozen() {
    let [resnet, sphereface] = residual_configs();
    let plain =
        [&[0][..], &[0, 1, 2], &[1, 3], &[5]].map(|frozen| (config(Activation::Prelu), frozen));
    // Up to and inside of blocks, before and after a projection.
    let resnet = [&[0, 1, 2][..], &[0, 1, 2, 3, 4, 5], &[6], &[7], &[5, 8]]
        .map(|frozen| (resnet.clone(), frozen));
    let sphereface = [&[0, 1][..], &[2]].map(|frozen| (sphereface.clone(), frozen));
    for (config, frozen) in plain.into_iter().chain(resnet).chain(sphereface) {
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
    for config in [config(Activation::Prelu)].into_iter().chain(residual_configs()) {
        assert_eq!(on_threads(&config, 1), on_threads(&config, 3));
    }
}

/// Features and a gradient, computed on some threads.
fn on_threads(config: &NetworkConfig, threads: usize) -> (Vec<f32>, Vec<f32>) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| {
        let device = Device::flex().autodiff();
        let network = network(config, &device);
        let features = network.forward(batch(&device, [40, 3, 19, 15])).unwrap();
        let gradients = features.clone().powi_scalar(2).sum().backward();
        let weight = network.units[1].weight.val().grad(&gradients).unwrap();
        (numbers(features), numbers(weight))
    })
}
