//! Units and networks as modules: statistics, freezing, records.

mod support;

use burn::module::{Module, Param, ParamGroup, RunningState};
use burn::store::ModuleRecord;
use burn::tensor::{DType, Device, Tensor};
use lsoftmax_nn::{ConvUnit, Execution, Network, NetworkConfig, Precision, StageConfig, Unit};
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
fn running_statistics_match_a_manual_computation() {
    let device = Device::flex().autodiff();
    let unit = Unit { kernel: [1, 1], padding: 0, ..Unit::new(1) };
    let mut unit = ConvUnit::new(1, unit, &device).with_momentum(0.25);
    unit.weight = unit.weight.map(|weight| weight.ones_like());
    // Mean 3, variance ((−2)² + (−1)² + 3²) / (3 − 1) = 7.
    unit.forward(Tensor::from_floats([[[[1.0, 2.0, 6.0]]]], &device)).unwrap();
    assert_eq!(running(&unit.running_mean), [0.25 * 3.0]);
    assert_eq!(running(&unit.running_var), [0.75 + 0.25 * 7.0]);
    // One value: mean 5, variance 0.
    unit.forward(Tensor::from_floats([[[[5.0]]]], &device)).unwrap();
    assert_eq!(running(&unit.running_mean), [0.75 * 0.75 + 0.25 * 5.0]);
    assert_eq!(running(&unit.running_var), [0.75 * 2.5]);
}

#[test]
fn running_statistics_follow_the_batches() {
    let device = Device::flex().autodiff();
    let mut naive = Naive::random(2, Unit { stride: 2, ..Unit::new(3) }, 3);
    let unit = module(&naive, &device, DType::F64);
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
        unit.forward(tensor(&images.numbers, images.shape, &device, DType::F64)).unwrap();
    }
    assert_close("the mean", &running(&unit.running_mean), &naive.mean, 1e-12);
    assert_close("the variance", &running(&unit.running_var), &naive.variance, 1e-12);
}

#[test]
fn a_network_for_inference_uses_the_running_statistics_unchanged() {
    let device = Device::flex().autodiff();
    let network = small(&device);
    network.forward(batch(&device, 1)).unwrap();
    let valid = network.valid();
    let mean = running(&valid.units[0].running_mean);
    assert!(mean.iter().all(|mean| *mean != 0.0), "the update before is in {mean:?}");

    let plain = Device::flex();
    let features = values(valid.forward(batch(&plain, 2)).unwrap());
    assert_eq!(values(valid.forward(batch(&plain, 2)).unwrap()), features);
    assert_eq!(running(&valid.units[0].running_mean), mean);
    // The features of an image do not depend on the rest of the batch.
    let alone = values(valid.forward(batch(&plain, 2).narrow(0, 3, 1)).unwrap());
    assert_close("one image", &alone, &features[3 * 6..4 * 6], 1e-6);
}

#[test]
fn a_frozen_network_uses_the_running_statistics_unchanged() {
    let device = Device::flex().autodiff();
    let network = small(&device);
    network.forward(batch(&device, 1)).unwrap();
    let expected = values(network.valid().forward(batch(&Device::flex(), 2)).unwrap());
    let mean = running(&network.units[0].running_mean);
    let frozen = network.freeze();
    let found = values(frozen.forward(batch(&device, 2)).unwrap());
    assert_close("frozen and inference", &found, &expected, 1e-5);
    assert_eq!(running(&frozen.units[0].running_mean), mean);
    let thawed = frozen.unfreeze();
    thawed.forward(batch(&device, 2)).unwrap();
    assert_ne!(running(&thawed.units[0].running_mean), mean);
}

#[test]
fn one_unit_can_be_frozen() {
    let device = Device::flex().autodiff();
    let network = small(&device).freeze_group(ParamGroup::from_predicate("units.0."));
    network.forward(batch(&device, 1)).unwrap();
    assert_eq!(running(&network.units[0].running_mean), [0.0; 4]);
    assert_ne!(running(&network.units[1].running_mean), [0.0; 4]);
}

/// Everything that a record must contain.
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
fn a_record_includes_the_last_update_of_the_statistics() {
    let device = Device::flex().autodiff();
    let network = small(&device);
    network.forward(batch(&device, 1)).unwrap();
    let before = state(&network);
    let bytes = network.into_record().into_bytes().unwrap();
    let other = small(&device);
    assert_ne!(state(&other), before);
    other.forward(batch(&device, 9)).unwrap();
    let loaded = other.load_record(ModuleRecord::from_bytes(bytes).unwrap());
    assert_eq!(state(&loaded), before);
    // No pending update overwrites the loaded values.
    assert_eq!(state(&loaded.valid()), before);
}

#[test]
fn a_network_keeps_its_execution() {
    let network = small(&Device::flex().autodiff());
    assert_eq!(network.execution(), &Execution::new(Precision::F32));
    let network = network.with_execution(Execution::new(Precision::Bf16));
    assert_eq!(network.valid().execution(), &Execution::new(Precision::Bf16));
    assert_eq!(network.clone().no_grad().execution(), network.execution());
}

#[test]
fn the_execution_of_a_network_overrides_that_of_its_units() {
    let device = Device::flex();
    let network = small(&device);
    let run = |network: &Network| values(network.forward(batch(&device, 2)).unwrap());
    let fused = run(&network);
    let composed = network.clone().with_execution(Execution::Composed);
    assert_ne!(run(&composed), fused, "other sums, other roundings");
    let mut other_units = network;
    for unit in &mut other_units.units {
        *unit = unit.clone().with_execution(Execution::Composed);
    }
    assert_eq!(run(&other_units), fused);
}
