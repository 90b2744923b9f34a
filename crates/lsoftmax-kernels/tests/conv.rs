//! Compares the convolution kernels on every path with a naive f64 version, over the paper's shapes
//! and awkward ones.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx_emulator;
mod conv_limits;
mod conv_naive;
mod conv_residual;
mod engines;

use conv_naive::case::{ConvCase, bare, biased, pooled, strided, unit};
use engines::engines;
use lsoftmax_kernels::Precision;
use lsoftmax_kernels::conv::{
    Activation, GradientsTo, Pool, StackForward, StackGradients, Unit, backward,
};
use proptest::prelude::*;

#[test]
fn the_naive_gradients_are_the_finite_differences_of_the_naive_output() {
    let units = [
        strided(Unit { bias: true, ..unit(3, [3, 2], 2) }),
        pooled(unit(4, [2, 3], 1)),
        biased(unit(2, [1, 1], 0)),
    ];
    assert_finite_differences(&ConvCase::new(3, [2, 7, 6], &units));
}

/// Compares the naive gradients with differences of the naive output.
fn assert_finite_differences(case: &ConvCase) {
    let loss = |case: &ConvCase| -> f64 {
        let naive = case.naive(Precision::F32, false);
        let terms = naive.output().iter().zip(&case.output_gradient);
        terms.map(|(output, gradient)| output * f64::from(*gradient)).sum()
    };
    let naive = case.naive(Precision::F32, false);
    let gradient: Vec<f64> = case.output_gradient.iter().copied().map(f64::from).collect();
    let gradients = naive.backward(&gradient, false);

    // The steps are exact in f32, so only the differences are inexact.
    let check = |name: &str, expected: &[f64], place: &dyn Fn(&mut ConvCase) -> &mut Vec<f32>| {
        assert_eq!(place(&mut case.clone()).len(), expected.len(), "{name}");
        for (index, expected) in expected.iter().enumerate() {
            let moved = |by: f32| {
                let mut case = case.clone();
                let value = &mut place(&mut case)[index];
                *value += by;
                let at = f64::from(*value);
                (at, loss(&case))
            };
            let ((low, before), (high, after)) = (moved(-1.0 / 4096.0), moved(1.0 / 4096.0));
            let found = (after - before) / (high - low);
            let error = (found - expected).abs();
            assert!(error < 1e-4 * (1.0 + expected.abs()), "{name} {index}: {found} {expected}");
        }
    };
    check("images", &gradients.images.values, &|case| &mut case.images);
    for (i, unit) in gradients.units.iter().enumerate() {
        check("weight", &unit.weight.values, &|case| &mut case.units[i].weight);
        check("bias", &unit.bias.values, &|case| &mut case.units[i].bias);
        check("gamma", &unit.gamma.values, &|case| &mut case.units[i].gamma);
        check("beta", &unit.beta.values, &|case| &mut case.units[i].beta);
        check("slope", &unit.slope.values, &|case| &mut case.units[i].slope);
    }
}

#[test]
fn every_path_agrees_on_the_3x3_convolutions_of_the_papers_networks() {
    let light = [(1, 64), (3, 64), (64, 64), (64, 96), (96, 96), (96, 128), (128, 128), (3, 96)];
    for (channels, filters) in light {
        ConvCase::new(2, [channels, 6, 5], &[Unit::new(filters)]).check();
        ConvCase::new(1, [channels, 4, 3], &[pooled(Unit::new(filters))]).check();
    }
    let heavy = [(96, 192), (192, 192), (192, 384), (384, 384), (64, 256), (256, 256)];
    for (channels, filters) in heavy {
        ConvCase::new(1, [channels, 4, 3], &[Unit::new(filters)]).check();
    }
    // Small enough for emulated AMX.
    ConvCase::new(1, [64, 3, 3], &[biased(Unit::new(64))]).check();
    ConvCase::new(5, [96, 1, 2], &[biased(Unit::new(96))]).check();
    for size in [[12, 10], [9, 8]] {
        ConvCase::new(2, [3, size[0], size[1]], &[strided(Unit::new(64))]).check();
    }
}

#[test]
fn every_path_agrees_on_tiles_of_every_padding_batch_and_odd_size() {
    for (padding, size) in
        [(0, [3, 4]), (0, [6, 5]), (1, [1, 1]), (1, [2, 7]), (2, [1, 3]), (2, [4, 4])]
    {
        for batch in [1, 2, 5, 17] {
            let units = [unit(32, [3, 3], padding), unit(40, [3, 3], 1)].map(biased);
            ConvCase::new(batch, [33, size[0], size[1]], &units).check();
        }
    }
    // Several sections, bands and waves, with and without pooling.
    ConvCase::new(2, [32, 37, 9], &[pooled(Unit::new(32)), Unit::new(33)]).check();
    ConvCase::new(33, [32, 6, 35], &[Unit::new(32), pooled(Unit::new(32))]).check();
}

#[test]
fn every_path_agrees_on_the_5x5_convolutions_of_the_papers_networks() {
    for (channels, filters) in [(1, 32), (32, 32), (32, 64), (64, 64), (64, 128), (128, 128)] {
        let size = if channels < 64 { [8, 7] } else { [4, 4] };
        let unit = unit(filters, [5, 5], 2);
        ConvCase::new(1, [channels, size[0], size[1]], &[unit]).check();
    }
    ConvCase::new(2, [1, 12, 12], &[unit(32, [5, 5], 2), pooled(unit(32, [5, 5], 2))]).check();
}

#[test]
fn every_path_agrees_on_fully_connected_layers() {
    ConvCase::new(13, [128, 4, 4], &[bare(2, [4, 4], 0)]).check();
    ConvCase::new(16, [64, 4, 4], &[unit(256, [4, 4], 0)]).check();
    ConvCase::new(12, [128, 4, 4], &[unit(256, [4, 4], 0)]).check();
    ConvCase::new(12, [384, 4, 4], &[unit(512, [4, 4], 0)]).check();
    ConvCase::new(5, [256, 7, 6], &[biased(unit(512, [7, 6], 0))]).check();
    ConvCase::new(17, [32, 4, 4], &[unit(40, [4, 4], 0)]).check();
    ConvCase::new(33, [10, 7, 6], &[unit(33, [7, 6], 0)]).check();
    ConvCase::new(250, [33, 1, 1], &[unit(31, [1, 1], 0)]).check();
}

#[test]
fn every_path_agrees_on_awkward_batches_channels_and_sizes() {
    for batch in [1, 5, 16, 17, 33, 170, 250] {
        let unit = if batch < 5 { biased(Unit::new(5)) } else { Unit::new(5) };
        ConvCase::new(batch, [3, 2, 3], &[unit]).check();
        ConvCase::new(batch, [33, 1, 1], &[biased(unit)]).check();
        ConvCase::new(batch, [33, 2, 4], &[unit]).check();
    }
    let counts = [1, 3, 10, 31, 32, 33, 64, 96];
    for (index, channels) in counts.into_iter().enumerate() {
        let filters = counts[(index * 3 + 2) % counts.len()];
        ConvCase::new(5, [channels, 2, 3], &[Unit::new(filters)]).check();
        ConvCase::new(2, [channels, 3, 3], &[pooled(Unit::new(filters))]).check();
    }
    for size in [[7, 5], [13, 9], [1, 13], [5, 1], [2, 3]] {
        let [height, width] = size;
        for (batch, channels, filters) in [(3, 3, 10), (17, 33, 1)] {
            ConvCase::new(batch, [channels, height, width], &[pooled(Unit::new(filters))]).check();
            ConvCase::new(batch, [channels, height, width], &[strided(Unit::new(filters))]).check();
        }
    }
}

#[test]
fn every_path_agrees_on_every_kernel_padding_and_stride() {
    for kernel in [[1, 1], [3, 3], [5, 5], [7, 7], [4, 4], [3, 5], [5, 2]] {
        for padding in 0..4 {
            for stride in [1, 2] {
                // With few channels, for which the kernels use im2col, and with more.
                let unit = Unit { stride, ..unit(5, kernel, padding) };
                ConvCase::new(3, [4, 9, 8], &[unit]).check();
                ConvCase::new(17, [17, 7, 8], &[unit]).check();
            }
        }
    }
}

#[test]
fn every_path_agrees_on_feature_maps_of_several_bands_and_waves() {
    ConvCase::new(2, [32, 24, 22], &[Unit::new(64)]).check();
    ConvCase::new(3, [32, 18, 20], &[unit(32, [1, 1], 0)]).check();
    ConvCase::new(1, [3, 40, 37], &[strided(Unit::new(64))]).check();
    ConvCase::new(17, [16, 20, 21], &[strided(unit(8, [5, 5], 2))]).check();
}

#[test]
fn every_path_agrees_on_every_combination_of_a_units_parts() {
    for parts in 0..24 {
        let [bias, norm, max] = [1, 2, 4].map(|part| parts & part > 0);
        let activation = [Activation::None, Activation::Relu, Activation::Prelu][parts / 8];
        let pool = if max { Pool::Max } else { Pool::None };
        let unit = Unit { bias, norm, activation, pool, ..Unit::new(33) };
        ConvCase::new(5, [10, 5, 7], &[unit]).check();
        ConvCase::new(3, [3, 5, 5], &[Unit::new(8), unit, Unit::new(5)]).check();
    }
}

#[test]
fn every_path_agrees_on_stacks() {
    // The networks of the paper, with fewer filters and smaller images.
    let cifar = [Unit::new(8), pooled(Unit::new(8)), pooled(Unit::new(12)), unit(20, [3, 2], 0)];
    ConvCase::new(17, [3, 9, 7], &cifar).check();
    let lfw = [strided(Unit::new(10)), Unit::new(10), pooled(Unit::new(33)), bare(6, [3, 2], 0)];
    ConvCase::new(13, [3, 11, 8], &lfw).check();
    let plane = [unit(32, [5, 5], 2), pooled(unit(32, [5, 5], 2)), bare(2, [4, 4], 0)];
    ConvCase::new(5, [1, 7, 7], &plane).check();
    let no_norm = [biased(Unit::new(33)), pooled(biased(Unit::new(31))), biased(Unit::new(3))];
    ConvCase::new(2, [3, 5, 5], &no_norm).check();
    // The first unit increases the number of pixels, the second decreases it.
    let padded = [unit(5, [2, 2], 3), strided(pooled(unit(7, [4, 4], 2)))];
    ConvCase::new(4, [2, 3, 2], &padded).check();
    ConvCase::new(1, [32, 8, 8], &[Unit::new(64), Unit::new(64)]).check();
    ConvCase::new(33, [1, 5, 5], &[pooled(Unit::new(32)), pooled(Unit::new(32))]).check();
}

fn any_unit() -> impl Strategy<Value = Unit> {
    let sizes = (1usize..40, 1usize..6, 1usize..6, 0usize..4, 1usize..3);
    let activation =
        prop_oneof![Just(Activation::None), Just(Activation::Relu), Just(Activation::Prelu)];
    let parts = (any::<bool>(), any::<bool>(), activation, any::<bool>());
    (sizes, parts).prop_map(
        |((filters, rows, columns, padding, stride), (bias, norm, activation, max))| Unit {
            kernel: [rows, columns],
            padding,
            stride,
            bias,
            norm,
            activation,
            pool: if max { Pool::Max } else { Pool::None },
            ..Unit::new(filters)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_path_agrees_on_random_stacks(
        batch in 1usize..20,
        input in (1usize..40, 1usize..9, 1usize..9),
        units in proptest::collection::vec(any_unit(), 1..4),
    ) {
        let mut size = [input.1, input.2];
        let mut fitting = Vec::new();
        for unit in units {
            let Unit { padding, stride, .. } = unit;
            let kernel = [0, 1].map(|side| unit.kernel[side].min(size[side] + 2 * padding));
            size = [0, 1].map(|side| (size[side] + 2 * padding - kernel[side]) / stride + 1);
            // With statistics of only a few numbers the gradient nearly vanishes.
            let norm = unit.norm && batch * size[0] * size[1] >= 16;
            if unit.pool == Pool::Max {
                size = size.map(|side| side.div_ceil(2));
            }
            fitting.push(Unit { kernel, norm, ..unit });
        }
        ConvCase::new(batch, [input.0, input.1, input.2], &fitting).check();
    }
}

/// All results of a training step, as bits.
fn bits((pass, gradients): &(StackForward, StackGradients)) -> Vec<Vec<u32>> {
    let mut all: Vec<&[f32]> = vec![&pass.output, gradients.images.as_ref().expect("wanted")];
    all.extend(pass.moments.iter().flat_map(|moments| [&moments.mean[..], &moments.variance[..]]));
    for unit in &gradients.units {
        all.extend([&unit.weight[..], &unit.bias, &unit.gamma, &unit.beta, &unit.slope]);
    }
    all.iter().map(|tensor| tensor.iter().map(|value| value.to_bits()).collect()).collect()
}

#[test]
fn results_are_the_same_bits_for_any_number_of_threads() {
    let wide = [Unit::new(64), pooled(Unit { bias: true, ..Unit::new(96) }), biased(Unit::new(33))];
    let cases = [
        ConvCase::new(3, [3, 3, 3], &[pooled(Unit::new(10)), biased(Unit::new(33))]),
        ConvCase::new(37, [3, 7, 6], &wide),
        ConvCase::new(2, [33, 14, 15], &[strided(Unit::new(70)), Unit::new(65)]),
        ConvCase::new(40, [70, 4, 4], &[unit(100, [4, 4], 0)]),
        ConvCase::new(19, [32, 23, 5], &[Unit::new(32), pooled(Unit::new(64)), Unit::new(33)]),
        // Blocks that are divided into sections of rows.
        ConvCase::new(1, [3, 21, 6], &[Unit::new(9), pooled(Unit::new(33)), strided(Unit::new(8))]),
        ConvCase::new(18, [17, 19, 3], &[pooled(unit(5, [5, 3], 2)), Unit::new(4)]),
    ];
    cases.iter().for_each(assert_same_bits_on_threads);
}

/// Compares training and inference on one thread with those on several.
fn assert_same_bits_on_threads(case: &ConvCase) {
    for engine in engines().into_iter().filter(|engine| !case.is_too_slow(*engine)) {
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| (bits(&case.train(engine)), case.infer(engine)))
        };
        let one = run(1);
        for threads in [2, 3, 7] {
            let same = one == run(threads);
            assert!(same, "{:?}, {engine:?} on {threads} threads", case.stack);
        }
    }
}

#[test]
fn every_path_agrees_where_the_statistics_of_some_units_are_fixed() {
    let biased_norm = Unit { bias: true, ..Unit::new(9) };
    let units = [Unit::new(33), pooled(biased_norm), biased(Unit::new(6)), unit(4, [2, 2], 0)];
    for fixed in [&[0][..], &[1], &[0, 1, 2], &[3], &[0, 1, 2, 3]] {
        ConvCase::new(18, [3, 6, 5], &units).with_fixed(fixed).check();
    }
}

#[test]
fn gradients_from_a_unit_on_are_those_of_all_units() {
    let units = [Unit::new(6), pooled(Unit::new(7)), Unit::new(3)];
    assert_same_gradients_from_any_unit(&ConvCase::new(5, [3, 5, 4], &units));
}

/// Compares a backward pass that ends at a unit with one to the images.
fn assert_same_gradients_from_any_unit(case: &ConvCase) {
    for engine in engines() {
        let (pass, all) = case.train(engine);
        let (parameters, gradient) = (case.parameters(), &case.output_gradient);
        for first in 0..all.units.len() {
            let to = GradientsTo::Unit(first);
            let some =
                backward(&pass, &case.stack, &case.images, &parameters, gradient, to).unwrap();
            assert!(some.images.is_none());
            for (index, (found, expected)) in some.units.iter().zip(&all.units).enumerate() {
                let unit = format!("{engine:?}, unit {index} from {first} on");
                if index < first {
                    assert!(found.weight.is_empty() && found.gamma.is_empty(), "{unit}");
                } else {
                    assert_eq!(found.weight, expected.weight, "{unit}");
                    assert_eq!(found.gamma, expected.gamma, "{unit}");
                    assert_eq!(found.slope, expected.slope, "{unit}");
                }
            }
        }
    }
}

#[test]
fn omitting_the_gradients_of_the_images_does_not_change_the_others() {
    let case = ConvCase::new(5, [3, 5, 4], &[Unit::new(6), pooled(Unit::new(7))]);
    for engine in engines() {
        let (pass, all) = case.train(engine);
        let parameters = case.parameters();
        let gradient = &case.output_gradient;
        let lean =
            backward(&pass, &case.stack, &case.images, &parameters, gradient, GradientsTo::Unit(0));
        let lean = lean.unwrap();
        assert!(lean.images.is_none());
        let lean = StackGradients { images: all.images.clone(), ..lean };
        let pass_again = case.train(engine).0;
        assert_eq!(bits(&(pass, all)), bits(&(pass_again, lean)), "{engine:?}");
    }
}
