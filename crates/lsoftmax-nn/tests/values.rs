//! What the units and networks compute, against the definition in f64.

mod support;

use burn::module::Module;
use burn::tensor::{DType, Device, Tensor};
use lsoftmax_nn::{Activation, ConvUnitConfig, FeaturesConfig, NetworkConfig, StageConfig};
use support::naive::{Images, Naive};
use support::{assert_close, module, tensor, values};

/// Units of every kind: odd sizes, strides, paddings, kernels that are not square, parts left out.
fn configs() -> Vec<ConvUnitConfig> {
    let plain = ConvUnitConfig::new(3, 4);
    vec![
        plain.clone(),
        plain.clone().with_pool(true),
        plain.clone().with_stride(2),
        plain.clone().with_stride(2).with_pool(true).with_bias(true),
        plain.clone().with_kernel([5, 5]).with_padding(2).with_pool(true),
        plain.clone().with_kernel([7, 5]).with_padding(0),
        plain.clone().with_kernel([2, 3]).with_padding(2).with_pool(true),
        plain.clone().with_kernel([1, 1]).with_padding(0).with_norm(false).with_pool(true),
        plain.clone().with_norm(false).with_prelu(false).with_bias(true),
        plain.with_prelu(false).with_pool(true),
    ]
}

#[test]
fn a_unit_computes_its_definition_in_training_and_in_inference() {
    for (case, config) in configs().iter().enumerate() {
        let naive = Naive::random(config, case as u64 + 1);
        for (size, [height, width]) in [[7, 5], [8, 6], [9, 11]].into_iter().enumerate() {
            let images = Images::random([3, 3, height, width], size as u64 + 100);
            for (device, training) in [(Device::flex().autodiff(), true), (Device::flex(), false)] {
                let expected = naive.forward(&images, training);
                for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F64, 1e-12)] {
                    let unit = module(config, &naive, &device, dtype);
                    let input = tensor(&images.numbers, images.shape, &device, dtype);
                    let output = unit.forward(input);
                    let what = format!("{config:?} on {height}x{width} in {dtype:?}");
                    assert_eq!(output.dims(), expected.shape, "{what}");
                    assert_close(&what, &values(output), &expected.numbers, tolerance);
                }
            }
        }
    }
}

#[test]
fn a_unit_is_the_unit_of_the_kernels_that_it_was_configured_as() {
    for config in configs() {
        let unit = config.init(&Device::flex()).unit();
        assert_eq!(ConvUnitConfig::of_unit(config.channels, &unit), config);
    }
}

#[test]
fn pooling_never_takes_its_padding_for_a_pixel() {
    let device = Device::flex();
    let config = ConvUnitConfig::new(1, 1).with_kernel([1, 1]).with_padding(0);
    let config = config.with_norm(false).with_prelu(false).with_pool(true);
    let mut unit = config.init(&device);
    unit.weight = unit.weight.map(|weight| weight.ones_like());
    let output = unit.forward(Tensor::full([1, 1, 3, 5], -7.0, &device));
    assert_eq!(output.dims(), [1, 1, 2, 3]);
    assert_eq!(values(output), [-7.0; 6]);
}

/// Two stages on 11x9: stride 2 gives 6x5, pooling 3x3, then 2x2.
fn tiny(activation: Activation) -> NetworkConfig {
    NetworkConfig {
        input: [2, 11, 9],
        stages: vec![
            StageConfig { stride: 2, ..StageConfig::new(3, 2) },
            StageConfig { kernel: 5, ..StageConfig::new(4, 1) },
        ],
        features: FeaturesConfig { size: 5, activation },
    }
}

#[test]
fn a_network_is_its_units_one_after_the_other() {
    for activation in [Activation::Prelu, Activation::None] {
        for (device, training) in [(Device::flex().autodiff(), true), (Device::flex(), false)] {
            let mut network = tiny(activation).init(&device).unwrap();
            let images = Images::random([4, 2, 11, 9], 7);
            let mut expected = images.clone();
            for (i, unit) in network.units.iter_mut().enumerate() {
                let config = ConvUnitConfig::of_unit(expected.shape[1], &unit.unit());
                let naive = Naive::random(&config, i as u64 + 20);
                expected = naive.forward(&expected, training);
                *unit = module(&config, &naive, &device, DType::F64);
            }
            let input = tensor(&images.numbers, images.shape, &device, DType::F64);
            let features = network.forward(input);
            assert_eq!(features.dims(), [4, 5]);
            assert_close("features", &values(features), &expected.numbers, 1e-8);
        }
    }
}

#[test]
fn features_without_activation_go_in_all_directions() {
    let network = tiny(Activation::None).init(&Device::flex()).unwrap();
    let last = network.units.last().unwrap();
    assert!(last.bias.is_some() && last.gamma.is_none() && last.slope.is_none());
    let network = tiny(Activation::Prelu).init(&Device::flex()).unwrap();
    let last = network.units.last().unwrap();
    assert!(last.bias.is_none() && last.gamma.is_some() && last.slope.is_some());
    assert_eq!(network.valid().units.len(), 4);
}

#[test]
#[should_panic(expected = "the network is for images of [2, 11, 9], not of [2, 9, 11]")]
fn images_of_another_size_are_refused_in_words() {
    let device = Device::flex();
    let network = tiny(Activation::None).init(&device).unwrap();
    network.forward(Tensor::zeros([1, 2, 9, 11], &device));
}
