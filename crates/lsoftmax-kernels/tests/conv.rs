//! The convolution kernels on every path against a naive f64 version, over the paper's shapes and
//! awkward ones.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx_emulator;
mod conv_naive;

use conv_naive::case::{Case, engines};
use lsoftmax_kernels::Precision;
use lsoftmax_kernels::conv::{
    EPSILON, Forward, Gradients, Moments, Parameters, Stack, StackError, Unit, backward, forward,
    infer,
};
use proptest::prelude::*;

fn unit(filters: usize, kernel: [usize; 2], padding: usize) -> Unit {
    Unit { kernel, padding, ..Unit::new(filters) }
}

/// Nothing but the convolution.
fn bare(filters: usize, kernel: [usize; 2], padding: usize) -> Unit {
    Unit { norm: false, prelu: false, ..unit(filters, kernel, padding) }
}

fn pooled(unit: Unit) -> Unit {
    Unit { pool: true, ..unit }
}

fn strided(unit: Unit) -> Unit {
    Unit { stride: 2, ..unit }
}

/// With a bias in place of batch norm.
fn biased(unit: Unit) -> Unit {
    Unit { bias: true, norm: false, ..unit }
}

#[test]
fn the_naive_gradients_are_the_finite_differences_of_the_naive_output() {
    let units = [
        strided(Unit { bias: true, ..unit(3, [3, 2], 2) }),
        pooled(unit(4, [2, 3], 1)),
        biased(unit(2, [1, 1], 0)),
    ];
    let case = Case::new(3, [2, 7, 6], &units);
    let loss = |case: &Case| -> f64 {
        let naive = case.naive(Precision::F32, None);
        let terms = naive.output().iter().zip(&case.output_gradient);
        terms.map(|(output, gradient)| output * f64::from(*gradient)).sum()
    };
    let naive = case.naive(Precision::F32, None);
    let gradient: Vec<f64> = case.output_gradient.iter().copied().map(f64::from).collect();
    let gradients = naive.backward(&gradient, false);

    // Steps that f32 holds exactly, so that only the differences themselves are inexact.
    let check = |name: &str, expected: &[f64], place: &dyn Fn(&mut Case) -> &mut Vec<f32>| {
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
        Case::new(2, [channels, 6, 5], &[Unit::new(filters)]).check();
        Case::new(1, [channels, 4, 3], &[pooled(Unit::new(filters))]).check();
    }
    let heavy = [(96, 192), (192, 192), (192, 384), (384, 384), (64, 256), (256, 256)];
    for (channels, filters) in heavy {
        Case::new(1, [channels, 4, 3], &[Unit::new(filters)]).check();
    }
    // On AMX's emulator only what is small.
    Case::new(1, [64, 3, 3], &[biased(Unit::new(64))]).check();
    Case::new(5, [96, 1, 2], &[biased(Unit::new(96))]).check();
    for size in [[12, 10], [9, 8]] {
        Case::new(2, [3, size[0], size[1]], &[strided(Unit::new(64))]).check();
    }
}

#[test]
fn every_path_agrees_on_the_5x5_convolutions_of_the_papers_networks() {
    for (channels, filters) in [(1, 32), (32, 32), (32, 64), (64, 64), (64, 128), (128, 128)] {
        let size = if channels < 64 { [8, 7] } else { [4, 4] };
        let unit = unit(filters, [5, 5], 2);
        Case::new(1, [channels, size[0], size[1]], &[unit]).check();
    }
    Case::new(2, [1, 12, 12], &[unit(32, [5, 5], 2), pooled(unit(32, [5, 5], 2))]).check();
}

#[test]
fn every_path_agrees_on_fully_connected_layers() {
    Case::new(13, [128, 4, 4], &[bare(2, [4, 4], 0)]).check();
    Case::new(16, [64, 4, 4], &[unit(256, [4, 4], 0)]).check();
    Case::new(12, [128, 4, 4], &[unit(256, [4, 4], 0)]).check();
    Case::new(12, [384, 4, 4], &[unit(512, [4, 4], 0)]).check();
    Case::new(5, [256, 7, 6], &[biased(unit(512, [7, 6], 0))]).check();
    Case::new(17, [32, 4, 4], &[unit(40, [4, 4], 0)]).check();
    Case::new(33, [10, 7, 6], &[unit(33, [7, 6], 0)]).check();
    Case::new(250, [33, 1, 1], &[unit(31, [1, 1], 0)]).check();
}

#[test]
fn every_path_agrees_on_awkward_batches_channels_and_sizes() {
    for batch in [1, 5, 16, 17, 33, 250] {
        let unit = if batch < 5 { biased(Unit::new(5)) } else { Unit::new(5) };
        Case::new(batch, [3, 2, 3], &[unit]).check();
        Case::new(batch, [33, 1, 1], &[biased(unit)]).check();
    }
    let counts = [1, 3, 10, 31, 32, 33, 64, 96];
    for (index, channels) in counts.into_iter().enumerate() {
        let filters = counts[(index * 3 + 2) % counts.len()];
        Case::new(5, [channels, 2, 3], &[Unit::new(filters)]).check();
        Case::new(2, [channels, 3, 3], &[pooled(Unit::new(filters))]).check();
    }
    for size in [[7, 5], [13, 9], [1, 13], [5, 1], [2, 3]] {
        let [height, width] = size;
        for (batch, channels, filters) in [(3, 3, 10), (17, 33, 1)] {
            Case::new(batch, [channels, height, width], &[pooled(Unit::new(filters))]).check();
            Case::new(batch, [channels, height, width], &[strided(Unit::new(filters))]).check();
        }
    }
}

#[test]
fn every_path_agrees_on_every_kernel_padding_and_stride() {
    for kernel in [[1, 1], [3, 3], [5, 5], [7, 7], [4, 4], [3, 5], [5, 2]] {
        for padding in 0..4 {
            for stride in [1, 2] {
                let unit = Unit { stride, ..unit(10, kernel, padding) };
                Case::new(3, [4, 9, 8], &[unit]).check();
            }
        }
    }
}

#[test]
fn every_path_agrees_whatever_parts_a_unit_has() {
    for parts in 0..16 {
        let [bias, norm, prelu, pool] = [1, 2, 4, 8].map(|part| parts & part > 0);
        let unit = Unit { bias, norm, prelu, pool, ..Unit::new(33) };
        Case::new(5, [10, 5, 7], &[unit]).check();
        Case::new(3, [3, 5, 5], &[Unit::new(8), unit, Unit::new(5)]).check();
    }
}

#[test]
fn every_path_agrees_on_stacks() {
    // The networks of the paper, with fewer filters and smaller images.
    let cifar = [Unit::new(8), pooled(Unit::new(8)), pooled(Unit::new(12)), unit(20, [3, 2], 0)];
    Case::new(17, [3, 9, 7], &cifar).check();
    let lfw = [strided(Unit::new(10)), Unit::new(10), pooled(Unit::new(33)), bare(6, [3, 2], 0)];
    Case::new(13, [3, 11, 8], &lfw).check();
    let plane = [unit(32, [5, 5], 2), pooled(unit(32, [5, 5], 2)), bare(2, [4, 4], 0)];
    Case::new(5, [1, 7, 7], &plane).check();
    let no_norm = [biased(Unit::new(33)), pooled(biased(Unit::new(31))), biased(Unit::new(3))];
    Case::new(2, [3, 5, 5], &no_norm).check();
    // More pixels after a unit than before it, and fewer again.
    let padded = [unit(5, [2, 2], 3), strided(pooled(unit(7, [4, 4], 2)))];
    Case::new(4, [2, 3, 2], &padded).check();
    Case::new(1, [32, 8, 8], &[Unit::new(64), Unit::new(64)]).check();
    Case::new(33, [1, 5, 5], &[pooled(Unit::new(32)), pooled(Unit::new(32))]).check();
}

fn any_unit() -> impl Strategy<Value = Unit> {
    let sizes = (1usize..40, 1usize..6, 1usize..6, 0usize..4, 1usize..3);
    let parts = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (sizes, parts).prop_map(
        |((filters, rows, columns, padding, stride), (bias, norm, prelu, pool))| Unit {
            filters,
            kernel: [rows, columns],
            padding,
            stride,
            bias,
            norm,
            prelu,
            pool,
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
            // The statistics of a few numbers leave next to nothing of the gradient.
            let norm = unit.norm && batch * size[0] * size[1] >= 16;
            if unit.pool {
                size = size.map(|side| side.div_ceil(2));
            }
            fitting.push(Unit { kernel, norm, ..unit });
        }
        Case::new(batch, [input.0, input.1, input.2], &fitting).check();
    }
}

/// Everything a training step gives, as bits.
fn bits((pass, gradients): &(Forward, Gradients)) -> Vec<Vec<u32>> {
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
        Case::new(3, [3, 3, 3], &[pooled(Unit::new(10)), biased(Unit::new(33))]),
        Case::new(37, [3, 7, 6], &wide),
        Case::new(2, [33, 14, 15], &[strided(Unit::new(70)), Unit::new(65)]),
        Case::new(40, [70, 4, 4], &[unit(100, [4, 4], 0)]),
    ];
    for case in cases {
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
}

#[test]
fn gradients_of_the_images_are_left_out_when_not_wanted_and_change_nothing() {
    let case = Case::new(5, [3, 5, 4], &[Unit::new(6), pooled(Unit::new(7))]);
    for engine in engines() {
        let (pass, all) = case.train(engine);
        let parameters = case.parameters();
        let gradient = &case.output_gradient;
        let lean = backward(&pass, &case.stack, &case.images, &parameters, gradient, false);
        let lean = lean.unwrap();
        assert!(lean.images.is_none());
        let lean = Gradients { images: all.images.clone(), ..lean };
        let pass_again = case.train(engine).0;
        assert_eq!(bits(&(pass, all)), bits(&(pass_again, lean)), "{engine:?}");
    }
}

/// The first few numbers that are not within a spread around a middle.
fn differ(found: &[f32], expected: impl Fn(usize) -> (f32, f32)) -> Vec<(usize, f32)> {
    let off = |(index, value): (usize, &f32)| {
        let (middle, spread) = expected(index);
        let fits = (value - middle).abs() <= spread;
        (!fits).then_some((index, *value))
    };
    found.iter().enumerate().filter_map(off).take(5).collect()
}

#[test]
fn of_equal_numbers_in_a_window_the_first_gets_the_gradient() {
    // One channel, copied: 5 x 3, so that windows of 2x2, 2x1, 1x2 and 1x1 are there.
    #[rustfmt::skip]
    let images = [
        1.0, 2.0, 3.0,
        2.0, 2.0, 3.0,
        4.0, 4.0, 0.0,
        4.0, 4.0, 5.0,
        7.0, 7.0, -1.0,
    ];
    #[rustfmt::skip]
    let expected = [
        0.0, 1.0, 2.0,
        0.0, 0.0, 0.0,
        3.0, 0.0, 0.0,
        0.0, 0.0, 4.0,
        5.0, 0.0, 6.0,
    ];
    let mut case = Case::new(17, [1, 5, 3], &[pooled(bare(1, [1, 1], 0))]);
    case.images = images.repeat(17);
    case.units[0].weight = vec![1.0];
    case.output_gradient = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].repeat(17);
    for engine in engines() {
        let (pass, gradients) = case.train(engine);
        assert_eq!(pass.output[..], [2.0, 3.0, 4.0, 5.0, 7.0, -1.0].repeat(17), "{engine:?}");
        assert_eq!(gradients.images.unwrap()[..], expected.repeat(17), "{engine:?}");
    }
}

#[test]
fn where_a_slope_of_zero_makes_all_of_a_window_zero_the_first_gets_the_gradient() {
    // The gradient of the slope is the chosen u, and so tells which one was chosen. At u = 0 the
    // derivative is the slope.
    let relu = Unit { prelu: true, ..pooled(bare(2, [1, 1], 0)) };
    let mut case = Case::new(1, [1, 2, 4], &[relu]);
    case.images = vec![-3.0, -1.0, 0.0, -5.0, -2.0, -4.0, 0.0, -0.5];
    case.units[0].weight = vec![1.0, 2.0];
    case.units[0].slope = vec![0.0, 0.0];
    case.output_gradient = vec![1.0, 10.0, 1.0, 10.0];
    for engine in engines() {
        let (pass, gradients) = case.train(engine);
        assert!(pass.output.iter().all(|output| *output == 0.0), "{engine:?}");
        assert_eq!(gradients.units[0].slope, [-3.0, -6.0], "{engine:?}");
        assert!(gradients.images.unwrap().iter().all(|g| *g == 0.0), "{engine:?}");
    }
}

#[test]
fn a_negative_slope_makes_the_smallest_number_the_largest() {
    let unit = Unit { prelu: true, ..pooled(bare(1, [1, 1], 0)) };
    let mut case = Case::new(2, [1, 2, 2], &[unit]);
    case.images = vec![1.0, -1.0, -8.0, 2.0, 5.0, -8.0, -1.0, 2.0];
    case.units[0].weight = vec![1.0];
    case.units[0].slope = vec![-0.5];
    case.output_gradient = vec![1.0, 1.0];
    for engine in engines() {
        let (pass, gradients) = case.train(engine);
        assert_eq!(pass.output[..], [4.0, 5.0], "{engine:?}");
        assert_eq!(gradients.units[0].slope, [-8.0], "{engine:?}");
        let images = gradients.images.unwrap();
        assert_eq!(images[..], [0.0, 0.0, -0.5, 0.0, 1.0, 0.0, 0.0, 0.0], "{engine:?}");
    }
}

#[test]
fn units_that_are_all_negative_before_prelu_agree() {
    let mut case = Case::new(3, [3, 5, 5], &[biased(Unit::new(33)), pooled(biased(Unit::new(4)))]);
    case.units.iter_mut().for_each(|unit| unit.bias.fill(-100.0));
    case.check();
    case.units.iter_mut().for_each(|unit| unit.slope.fill(0.0));
    for engine in engines() {
        let (pass, gradients) = case.train(engine);
        assert!(pass.output.iter().all(|output| *output == 0.0), "{engine:?}");
        assert!(gradients.images.unwrap().iter().all(|g| *g == 0.0), "{engine:?}");
    }
}

#[test]
fn constant_images_have_no_variance_and_leave_beta() {
    for value in [0.0, 0.3, 1000.0] {
        let mut case = Case::new(17, [2, 4, 3], &[Unit { prelu: false, ..unit(33, [3, 2], 0) }]);
        case.images.fill(value);
        // Few bits, so that the products are exact in bf16, too.
        case.units[0].weight.iter_mut().for_each(|w| *w = (*w * 4.0).round() / 4.0);
        let beta = &case.units[0].beta;
        for engine in engines() {
            let (pass, gradients) = case.train(engine);
            let Moments { mean, variance } = &pass.moments[0];
            let tiny = |f: usize| (0.0, 1e-6 * (mean[f] * mean[f]).max(1e-3));
            assert_eq!(differ(variance, tiny), [], "variance of {value}, {engine:?}");
            assert!(variance.iter().all(|variance| *variance >= 0.0), "{variance:?}");
            // A rounded z may be off by 2^-9, which a deviation of √ε makes more of.
            let rounding = if engine.precision() == Precision::F32 { 1e-6 } else { 1.0 / 256.0 };
            let near_beta = |i: usize| {
                let f = i / 4 % 33;
                (beta[f], 2.0 * rounding * mean[f].abs() / EPSILON.sqrt() + 1e-6)
            };
            assert_eq!(differ(&pass.output, near_beta), [], "output of {value}, {engine:?}");
            let images = gradients.images.unwrap();
            assert!(images.iter().all(|g| g.is_finite()), "images of {value}, {engine:?}");
            let weight = &gradients.units[0].weight;
            assert!(weight.iter().all(|g| g.is_finite()), "weight of {value}, {engine:?}");
        }
    }
}

#[test]
fn one_number_a_channel_is_its_own_mean() {
    let mut case = Case::new(1, [5, 3, 3], &[unit(33, [3, 3], 0)]);
    case.units[0].slope.fill(0.5);
    for engine in engines().into_iter().filter(|engine| engine.precision() == Precision::F32) {
        let (pass, gradients) = case.train(engine);
        let beta = &case.units[0].beta;
        let expected = |f: usize| (if beta[f] > 0.0 { beta[f] } else { 0.5 * beta[f] }, 1e-3);
        assert_eq!(differ(&pass.output, expected), [], "{engine:?}");
        let none = |_: usize| (0.0, 1e-2);
        assert_eq!(differ(&gradients.units[0].weight, none), [], "{engine:?}");
        assert_eq!(differ(&gradients.images.unwrap(), none), [], "{engine:?}");
    }
}

#[test]
fn batch_norm_takes_huge_and_tiny_images() {
    // Squares of 1e18 just fit in f32; those of 1e-18 vanish beside epsilon.
    for scale in [1e18, 1e-18] {
        let mut case = Case::new(17, [3, 6, 5], &[Unit::new(33), pooled(Unit::new(10))]);
        case.images.iter_mut().for_each(|value| *value *= scale);
        case.check();
    }
}

#[test]
fn statistics_hold_where_the_mean_is_large_beside_the_deviation() {
    let mut case = Case::new(17, [3, 6, 5], &[unit(33, [3, 3], 0)]);
    case.images.iter_mut().for_each(|value| *value += 30.0);
    let naive = case.naive(Precision::F32, None);
    let (mean, variance) = naive.moments().next().unwrap();
    for engine in engines().into_iter().filter(|engine| engine.precision() == Precision::F32) {
        let pass = case.train(engine).0;
        let near = |f: usize| (mean[f] as f32, 1e-4 * variance[f].sqrt() as f32);
        assert_eq!(differ(&pass.moments[0].mean, near), [], "{engine:?}");
        let near = |f: usize| (variance[f] as f32, 1e-3 * variance[f] as f32);
        assert_eq!(differ(&pass.moments[0].variance, near), [], "{engine:?}");
    }
}

#[test]
fn a_nan_reaches_every_output_that_sees_it_and_no_other() {
    let units = [biased(unit(33, [3, 2], 1)), pooled(biased(Unit::new(5)))];
    for place in [0, 7 * 5 * 3 + 17, 17 * 3 * 35 - 1] {
        let mut case = Case::new(17, [3, 7, 5], &units);
        case.images[place] = f32::NAN;
        let expected: Vec<bool> =
            case.naive(Precision::F32, None).output().iter().map(|v| v.is_nan()).collect();
        assert!(expected.contains(&true) && expected.contains(&false));
        for engine in engines() {
            let (pass, gradients) = case.train(engine);
            let found: Vec<bool> = pass.output.iter().map(|v| v.is_nan()).collect();
            assert_eq!(found, expected, "{place} {engine:?}");
            let weight = &gradients.units[0].weight;
            assert!(weight.iter().any(|v| v.is_nan()), "weight {place} {engine:?}");
            let found: Vec<bool> = case.infer(engine).iter().map(|v| v.is_nan()).collect();
            assert_eq!(found, expected, "inferred {place} {engine:?}");
        }
    }
}

#[test]
fn batch_norm_spreads_a_nan_over_the_whole_batch() {
    let mut case = Case::new(17, [3, 4, 5], &[pooled(Unit::new(33))]);
    case.images[200] = f32::NAN;
    for engine in engines() {
        let (pass, gradients) = case.train(engine);
        assert!(pass.output.iter().all(|v| v.is_nan()), "{engine:?}");
        assert!(pass.moments[0].mean.iter().all(|v| v.is_nan()), "{engine:?}");
        assert!(gradients.units[0].weight.iter().any(|v| v.is_nan()), "{engine:?}");
    }
}

#[test]
fn a_stack_that_cannot_be_is_told() {
    let told = |input, units: &[Unit]| Stack::new(input, units.to_vec()).unwrap_err();
    assert_eq!(told([1, 5, 5], &[]), StackError::Empty);
    for input in [[0, 5, 5], [1, 0, 5], [1, 5, 0]] {
        assert_eq!(told(input, &[Unit::new(3)]), StackError::Empty);
    }
    for wrong in [
        Unit::new(0),
        unit(3, [0, 3], 1),
        unit(3, [3, 0], 1),
        Unit { stride: 0, ..Unit::new(3) },
        Unit { stride: 3, ..Unit::new(3) },
    ] {
        let error = told([1, 5, 5], &[Unit::new(3), wrong]);
        assert_eq!(error, StackError::Unit { unit: 1 });
        assert!(error.to_string().contains("unit 1"));
    }
    let error = told([1, 5, 6], &[pooled(Unit::new(3)), unit(3, [6, 2], 1)]);
    assert_eq!(
        error.to_string(),
        "the 6x2 kernel of unit 1 does not fit its input of 3x3 pixels with a padding of 1"
    );
    assert!(matches!(told([1, 5, 6], &[unit(3, [1, 7], 0)]), StackError::Kernel { unit: 0, .. }));
}

#[test]
fn wrong_arguments_are_told_with_their_numbers() {
    let with_bias = Unit { bias: true, ..Unit::new(6) };
    let case = Case::new(2, [3, 5, 4], &[Unit::new(5), with_bias]);
    let engine = engines()[0];
    let told = |change: &dyn Fn(&mut Case)| {
        let mut case = case.clone();
        change(&mut case);
        let parameters = case.parameters();
        let trained = forward(engine, &case.stack, &case.images, &parameters).err();
        let inferred =
            infer(engine, &case.stack, &case.images, &parameters, &case.moments).unwrap_err();
        if let Some(trained) = trained {
            assert_eq!(trained, inferred);
        }
        inferred.to_string()
    };
    let length = |what: &str, unit: usize, expected: usize, found: usize| {
        format!("{what} of unit {unit} must hold {expected} numbers but holds {found}")
    };
    macro_rules! is_told {
        ($field:ident, $what:literal, $unit:literal, $expected:literal) => {
            let long = told(&|case| case.units[$unit].$field.push(0.0));
            assert_eq!(long, length($what, $unit, $expected, $expected + 1));
            if $expected > 0 {
                let none = told(&|case| case.units[$unit].$field.clear());
                assert_eq!(none, length($what, $unit, $expected, 0));
            }
        };
    }
    is_told!(weight, "the weight", 0, 135);
    is_told!(weight, "the weight", 1, 270);
    is_told!(bias, "the bias", 0, 0);
    is_told!(bias, "the bias", 1, 6);
    is_told!(gamma, "gamma", 0, 5);
    is_told!(beta, "beta", 1, 6);
    is_told!(slope, "the slopes", 1, 6);
    let mean = told(&|case| case.moments[1].mean.truncate(4));
    assert_eq!(mean, length("the mean", 1, 6, 4));
    let variance = told(&|case| case.moments[0].variance.push(1.0));
    assert_eq!(variance, length("the variance", 0, 5, 6));

    let images = told(&|case| case.images.truncate(119));
    assert_eq!(images, "119 numbers are not one or more images of 3 x 5 x 4");
    let images = told(&|case| case.images.clear());
    assert_eq!(images, "0 numbers are not one or more images of 3 x 5 x 4");
    let units = told(&|case| case.units.truncate(1));
    assert_eq!(units, "the stack has 2 units, but parameters were given for 1");
    let units = told(&|case| case.moments.push(Moments::default()));
    assert_eq!(units, "the stack has 2 units, but statistics were given for 3");
}

#[test]
fn backward_tells_what_does_not_belong_to_its_forward_pass() {
    let case = Case::new(2, [3, 5, 4], &[Unit::new(5), pooled(Unit::new(6))]);
    let (parameters, gradient) = (case.parameters(), &case.output_gradient[..]);
    let pass = forward(engines()[0], &case.stack, &case.images, &parameters).unwrap();
    let told = |images: &[f32], parameters: &[Parameters<'_>], gradient: &[f32]| {
        backward(&pass, &case.stack, images, parameters, gradient, true).err().unwrap().to_string()
    };
    let error = told(&case.images, &parameters, &gradient[1..]);
    assert!(error.contains("72") && error.contains("71"), "{error}");
    let error = told(&case.images, &parameters, &[]);
    assert!(error.contains("72") && error.contains(" 0"), "{error}");
    let error = told(&case.images[1..], &parameters, gradient);
    assert!(error.contains("119"), "{error}");
    // Whole images, but not as many as went forward.
    told(&case.images[60..], &parameters, gradient);
    told(&case.images[60..], &parameters, &gradient[36..]);
    let error = told(&case.images, &parameters[..1], gradient);
    assert!(error.contains("2 units") && error.contains("for 1"), "{error}");
    let mut short = parameters.clone();
    short[1].slope = &[];
    let error = told(&case.images, &short, gradient);
    assert!(error.contains("slopes of unit 1") && error.contains("6 numbers"), "{error}");
    // Another stack than went forward.
    let other = Case::new(2, [3, 5, 4], &[Unit::new(5)]);
    let result = backward(&pass, &other.stack, &case.images, &other.parameters(), gradient, true);
    assert!(result.is_err());
}
