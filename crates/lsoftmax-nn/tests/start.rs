//! Initialisation of units and networks. A separate test program, because other tests draw random
//! numbers concurrently.

mod support;

use std::sync::Mutex;

use burn::module::Param;
use burn::tensor::{Device, Tensor};
use lsoftmax_nn::{ConvUnit, Network, NetworkConfig, Unit};
use support::naive::moments;
use support::values;

/// The CPU backend has one generator for all threads.
static RANDOM: Mutex<()> = Mutex::new(());

#[test]
fn the_weights_depend_only_on_the_seed() {
    let _alone = RANDOM.lock().unwrap();
    let device = Device::flex();
    let weights = |network: &Network| {
        let weights = network.units.iter().map(|unit| values(unit.weight.val()));
        weights.collect::<Vec<_>>()
    };
    device.seed(5);
    let expected = weights(&NetworkConfig::mnist_2d().init(&device).unwrap());
    device.seed(5);
    let network = NetworkConfig::mnist_2d().init(&device).unwrap();
    values(network.units[2].weight.val());
    assert_eq!(weights(&network), expected);
}

#[test]
fn weights_have_he_initialisation() {
    let _alone = RANDOM.lock().unwrap();
    let device = Device::flex();
    device.seed(3);
    let unit = Unit { kernel: [5, 3], bias: true, ..Unit::new(64) };
    let unit = ConvUnit::new(32, unit, &device);
    let weight = values(unit.weight.val());
    let (mean, variance) = moments(&weight);
    let expected = 2.0 / (32.0 * 15.0);
    // Within four standard errors for n = 30,720: √(variance / n) for the mean, √(2 / n) relative for the
    // variance.
    let count = weight.len() as f64;
    assert!(mean.abs() < 4.0 * (expected / count).sqrt(), "the mean is {mean}");
    assert!((variance / expected - 1.0).abs() < 4.0 * (2.0 / count).sqrt(), "{variance}");
    let starts = |param: &Option<Param<Tensor<1>>>| values(param.as_ref().unwrap().val());
    assert_eq!(starts(&unit.bias), [0.0; 64]);
    assert_eq!(starts(&unit.gamma), [1.0; 64]);
    assert_eq!(starts(&unit.beta), [0.0; 64]);
    assert_eq!(starts(&unit.slope), [0.25; 64]);
    assert_eq!(values(unit.running_mean.unwrap().value()), [0.0; 64]);
    assert_eq!(values(unit.running_var.unwrap().value()), [1.0; 64]);
}
