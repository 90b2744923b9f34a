//! How units and networks start. Apart from the others, which would draw random numbers meanwhile.

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
fn a_seed_fixes_the_weights_whatever_is_used_first() {
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
fn weights_start_as_he_and_others_say() {
    let _alone = RANDOM.lock().unwrap();
    let device = Device::flex();
    device.seed(3);
    let unit = Unit { kernel: [5, 3], bias: true, ..Unit::new(64) };
    let unit = ConvUnit::new(32, unit, &device);
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
    assert_eq!(values(unit.running_mean.unwrap().value()), [0.0; 64]);
    assert_eq!(values(unit.running_var.unwrap().value()), [1.0; 64]);
}
