//! Units and networks as modules: statistics, freezing, records, how they start.

mod support;

use burn::module::{Module, Param, ParamGroup, RunningState};
use burn::store::ModuleRecord;
use burn::tensor::{DType, Device, Tensor};
use lsoftmax_nn::{ConvUnit, ConvUnitConfig, Network, NetworkConfig, Precision, StageConfig};
use support::naive::{Images, Naive, moments};
use support::{assert_close, module, tensor, values};

fn running(state: &Option<RunningState<Tensor<1>>>) -> Vec<f64> {
    values(state.as_ref().expect("running statistics").value())
}

/// A small network, on a device.
fn small(device: &Device) -> Network {
    let mut config = NetworkConfig::mnist();
    config.input = [1, 8, 8];
    config.stages = vec![StageConfig::new(4, 2)];
    config.features.size = 6;
    config.init(device).unwrap()
}

fn batch(device: &Device, seed: u64) -> Tensor<4> {
    let images = Images::random([5, 1, 8, 8], seed);
    tensor(&images.numbers, images.shape, device, DType::F32)
}

#[test]
fn running_statistics_are_those_of_a_hand_computation() {
    let device = Device::flex().autodiff();
    let config = ConvUnitConfig::new(1, 1).with_kernel([1, 1]).with_padding(0).with_momentum(0.25);
    let mut unit = config.init(&device);
    unit.weight = unit.weight.map(|weight| weight.ones_like());
    // Mean 3, variance ((−2)² + (−1)² + 3²) / (3 − 1) = 7.
    unit.forward(Tensor::from_floats([[[[1.0, 2.0, 6.0]]]], &device));
    assert_eq!(running(&unit.running_mean), [0.25 * 3.0]);
    assert_eq!(running(&unit.running_var), [0.75 + 0.25 * 7.0]);
    // One value: mean 5, variance 0.
    unit.forward(Tensor::from_floats([[[[5.0]]]], &device));
    assert_eq!(running(&unit.running_mean), [0.75 * 0.75 + 0.25 * 5.0]);
    assert_eq!(running(&unit.running_var), [0.75 * 2.5]);
}

#[test]
fn running_statistics_follow_the_batches() {
    let device = Device::flex().autodiff();
    let config = ConvUnitConfig::new(2, 3).with_stride(2);
    let mut naive = Naive::random(&config, 3);
    let unit = module(&config, &naive, &device, DType::F64);
    for seed in 0..3 {
        let images = Images::random([4, 2, 7, 5], seed);
        let convolved = naive.convolve(&images);
        for c in 0..3 {
            let channel = convolved.channel(c);
            let (mean, variance) = moments(&channel);
            let count = channel.len() as f64;
            naive.mean[c] = 0.9 * naive.mean[c] + 0.1 * mean;
            naive.variance[c] = 0.9 * naive.variance[c] + 0.1 * variance * count / (count - 1.0);
        }
        unit.forward(tensor(&images.numbers, images.shape, &device, DType::F64));
    }
    assert_close("the mean", &running(&unit.running_mean), &naive.mean, 1e-12);
    assert_close("the variance", &running(&unit.running_var), &naive.variance, 1e-12);
}

#[test]
fn a_validated_network_uses_the_running_statistics_and_leaves_them() {
    let device = Device::flex().autodiff();
    let network = small(&device);
    network.forward(batch(&device, 1));
    let valid = network.valid();
    let mean = running(&valid.units[0].running_mean);
    assert!(mean.iter().all(|mean| *mean != 0.0), "the update before is in {mean:?}");

    let plain = Device::flex();
    let features = values(valid.forward(batch(&plain, 2)));
    assert_eq!(values(valid.forward(batch(&plain, 2))), features);
    assert_eq!(running(&valid.units[0].running_mean), mean);
    // An image's features don't depend on the others of its batch.
    let alone = values(valid.forward(batch(&plain, 2).narrow(0, 3, 1)));
    assert_close("one image", &alone, &features[3 * 6..4 * 6], 1e-6);
}

#[test]
fn a_frozen_network_uses_the_running_statistics_and_leaves_them() {
    let device = Device::flex().autodiff();
    let network = small(&device);
    network.forward(batch(&device, 1));
    let expected = values(network.valid().forward(batch(&Device::flex(), 2)));
    let mean = running(&network.units[0].running_mean);
    let frozen = network.freeze();
    assert_eq!(values(frozen.forward(batch(&device, 2))), expected);
    assert_eq!(running(&frozen.units[0].running_mean), mean);
    frozen.unfreeze().forward(batch(&device, 2));
}

#[test]
fn one_unit_can_be_frozen() {
    let device = Device::flex().autodiff();
    let network = small(&device).freeze_group(ParamGroup::from_predicate("units.0."));
    network.forward(batch(&device, 1));
    assert_eq!(running(&network.units[0].running_mean), [0.0; 4]);
    assert_ne!(running(&network.units[1].running_mean), [0.0; 4]);
}

/// Everything that a record must keep.
fn state(network: &Network) -> Vec<Vec<f64>> {
    let vector = |param: &Option<Param<Tensor<1>>>| param.as_ref().map(|param| values(param.val()));
    let mut state = Vec::new();
    for ConvUnit { weight, bias, gamma, beta, slope, running_mean, running_var, .. } in
        &network.units
    {
        state.push(values(weight.val()));
        state.extend([bias, gamma, beta, slope].into_iter().filter_map(vector));
        state.extend([running_mean, running_var].map(running));
    }
    state
}

#[test]
fn a_record_keeps_everything_the_last_update_included() {
    let device = Device::flex().autodiff();
    device.seed(1);
    let network = small(&device);
    network.forward(batch(&device, 1));
    let before = state(&network);
    let bytes = network.into_record().into_bytes().unwrap();
    device.seed(2);
    let other = small(&device);
    assert_ne!(state(&other), before);
    other.forward(batch(&device, 9));
    let loaded = other.load_record(ModuleRecord::from_bytes(bytes).unwrap());
    assert_eq!(state(&loaded), before);
    // Nothing pending comes back over what was loaded.
    assert_eq!(state(&loaded.valid()), before);
}

#[test]
fn a_seed_fixes_the_weights_whatever_is_used_first() {
    let device = Device::flex();
    let weights = |network: &Network| {
        let weights = network.units.iter().map(|unit| values(unit.weight.val()));
        weights.collect::<Vec<_>>()
    };
    device.seed(5);
    let expected = weights(&small(&device));
    device.seed(5);
    let network = small(&device);
    values(network.units[2].weight.val());
    assert_eq!(weights(&network), expected);
}

#[test]
fn weights_start_as_he_and_others_say() {
    let device = Device::flex();
    device.seed(3);
    let unit = ConvUnitConfig::new(32, 64).with_kernel([5, 3]).with_bias(true).init(&device);
    let weight = values(unit.weight.val());
    let (mean, variance) = moments(&weight);
    let expected = 2.0 / (32.0 * 15.0);
    // 30,720 weights: a mean to √(variance / n), a variance to √(2 / n) of itself; four times that.
    let count = weight.len() as f64;
    assert!(mean.abs() < 4.0 * (expected / count).sqrt(), "the mean is {mean}");
    assert!((variance / expected - 1.0).abs() < 4.0 * (2.0 / count).sqrt(), "{variance}");
    let starts = |param: &Option<Param<Tensor<1>>>| values(param.as_ref().unwrap().val());
    assert_eq!(starts(&unit.bias), [0.0; 64]);
    assert_eq!(starts(&unit.gamma), [1.0; 64]);
    assert_eq!(starts(&unit.beta), [0.0; 64]);
    assert_eq!(starts(&unit.slope), [0.25; 64]);
    assert_eq!(running(&unit.running_mean), [0.0; 64]);
    assert_eq!(running(&unit.running_var), [1.0; 64]);
}

#[test]
fn a_precision_is_that_of_every_unit() {
    let network = small(&Device::flex());
    assert!(network.units.iter().all(|unit| unit.precision == Precision::F32));
    let network = network.with_precision(Precision::Bf16);
    assert!(network.units.iter().all(|unit| unit.precision == Precision::Bf16));
    assert!(network.valid().units.iter().all(|unit| unit.precision == Precision::Bf16));
}
