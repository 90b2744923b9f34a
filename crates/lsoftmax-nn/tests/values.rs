//! The outputs of units and networks against the definition in f64.

mod support;

use burn::module::Module;
use burn::tensor::{DType, Device, Tensor};
use lsoftmax_nn::{
    Activation, ConvUnit, Execution, FeaturesConfig, NetworkConfig, NetworkError, Pool, StackError,
    StageConfig, Unit,
};
use support::naive::{Images, Naive};
use support::{assert_close, module, tensor, values};

/// Units of every kind: odd sizes, strides, paddings, non-square kernels, with and without each part.
fn units() -> [Unit; 12] {
    let plain = Unit::new(4);
    let sized = |kernel, padding| Unit { kernel, padding, ..plain };
    [
        plain,
        Unit { pool: Pool::Max, ..plain },
        Unit { stride: 2, ..plain },
        Unit { stride: 2, pool: Pool::Max, bias: true, ..plain },
        Unit { pool: Pool::Max, ..sized([5, 5], 2) },
        sized([7, 5], 0),
        Unit { pool: Pool::Max, ..sized([2, 3], 2) },
        Unit { norm: false, pool: Pool::Max, ..sized([1, 1], 0) },
        Unit { norm: false, activation: Activation::None, bias: true, ..plain },
        Unit { activation: Activation::None, pool: Pool::Max, ..plain },
        Unit { activation: Activation::Relu, ..plain },
        Unit { pool: Pool::Average, ..plain },
    ]
}

#[test]
fn a_unit_computes_its_definition_in_training_and_in_inference() {
    for (case, unit) in units().into_iter().enumerate() {
        let naive = Naive::random(3, unit, case as u64 + 1);
        for (size, [height, width]) in [[7, 5], [8, 6], [9, 11]].into_iter().enumerate() {
            let images = Images::random([3, 3, height, width], size as u64 + 100);
            for (device, training) in [(Device::flex().autodiff(), true), (Device::flex(), false)] {
                let expected = naive.forward(&images, training);
                for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F64, 1e-12)] {
                    let module = module(&naive, &device, dtype);
                    let input = tensor(&images.numbers, images.shape, &device, dtype);
                    let output = module.forward(input).unwrap();
                    let what = format!("{unit:?} on {height}x{width} in {dtype:?}");
                    assert_eq!(output.dims(), expected.shape, "{what}");
                    assert_close(&what, &values(output), &expected.numbers, tolerance);
                }
            }
        }
    }
}

#[test]
fn a_module_has_the_parameters_of_its_unit() {
    for unit in units() {
        let module = ConvUnit::new(3, unit, &Device::flex());
        assert_eq!(module.unit(), unit);
        let [height, width] = unit.kernel;
        assert_eq!(module.weight.dims(), [4, 3, height, width]);
        let found = [&module.bias, &module.gamma, &module.beta, &module.slope];
        let expected = [unit.bias, unit.norm, unit.norm, unit.has_slopes()];
        assert_eq!(found.map(Option::is_some), expected, "{unit:?}");
    }
}

#[test]
fn an_invalid_unit_cannot_be_built() {
    let panics = |channels, unit| {
        std::panic::catch_unwind(|| ConvUnit::new(channels, unit, &Device::flex())).is_err()
    };
    let plain = Unit::new(4);
    assert!(panics(0, plain) && panics(3, Unit::new(0)));
    assert!(panics(3, Unit { kernel: [0, 3], ..plain }) && panics(3, Unit { stride: 3, ..plain }));
    let builds = |momentum| {
        let build = || ConvUnit::new(3, plain, &Device::flex()).with_momentum(momentum);
        std::panic::catch_unwind(build).is_ok()
    };
    assert!(builds(0.0) && builds(1.0) && !builds(1.5) && !builds(f64::NAN));
}

#[test]
fn an_input_smaller_than_the_kernel_is_an_error_with_every_execution() {
    for execution in [Execution::default(), Execution::Composed] {
        let unit = Unit { kernel: [5, 5], padding: 0, ..Unit::new(4) };
        let unit = ConvUnit::new(1, unit, &Device::flex()).with_execution(execution);
        let error = unit.forward(Tensor::zeros([1, 1, 4, 9], &Device::flex())).unwrap_err();
        assert!(
            matches!(error, NetworkError::Stack(StackError::Kernel { unit: 0, .. })),
            "{error}"
        );
    }
}

#[test]
fn pooling_ignores_its_padding() {
    let device = Device::flex();
    let sized = Unit { kernel: [1, 1], padding: 0, ..Unit::new(1) };
    let pooling = Unit { norm: false, activation: Activation::None, pool: Pool::Max, ..sized };
    let mut unit = ConvUnit::new(1, pooling, &device);
    unit.weight = unit.weight.map(|weight| weight.ones_like());
    let output = unit.forward(Tensor::full([1, 1, 3, 5], -7.0, &device)).unwrap();
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
        features: FeaturesConfig { activation, ..FeaturesConfig::new(5) },
    }
}

#[test]
fn a_network_is_the_sequence_of_its_units() {
    for activation in [Activation::Prelu, Activation::None] {
        for (device, training) in [(Device::flex().autodiff(), true), (Device::flex(), false)] {
            let mut network = tiny(activation).init(&device).unwrap();
            let images = Images::random([4, 2, 11, 9], 7);
            let mut expected = images.clone();
            for (i, unit) in network.units.iter_mut().enumerate() {
                let naive = Naive::random(expected.shape[1], unit.unit(), i as u64 + 20);
                expected = naive.forward(&expected, training);
                *unit = module(&naive, &device, DType::F64);
            }
            let input = tensor(&images.numbers, images.shape, &device, DType::F64);
            let features = network.forward(input).unwrap();
            assert_eq!(features.dims(), [4, 5]);
            assert_close("features", &values(features), &expected.numbers, 1e-8);
        }
    }
}

#[test]
fn the_feature_layer_has_a_bias_or_batch_norm_and_prelu() {
    let network = tiny(Activation::None).init(&Device::flex()).unwrap();
    let last = network.units.last().unwrap();
    assert!(last.bias.is_some() && last.gamma.is_none() && last.slope.is_none());
    let network = tiny(Activation::Prelu).init(&Device::flex()).unwrap();
    let last = network.units.last().unwrap();
    assert!(last.bias.is_none() && last.gamma.is_some() && last.slope.is_some());
    assert_eq!(network.valid().units.len(), 4);
}

#[test]
fn images_of_another_size_are_rejected() {
    let device = Device::flex();
    let network = tiny(Activation::None).init(&device).unwrap();
    let error = network.forward(Tensor::zeros([1, 2, 9, 11], &device)).unwrap_err();
    let expected = "the network takes images of 2 x 11 x 9 (channels, height, width), \
                    but these are 2 x 9 x 11";
    assert_eq!(error.to_string(), expected);
}
