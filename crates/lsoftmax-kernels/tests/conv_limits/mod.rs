//! Extreme inputs, and invalid ones.

use lsoftmax_kernels::Precision;
use lsoftmax_kernels::conv::{
    Activation, EPSILON, GradientsTo, Moments, Parameters, Stack, StackError, Unit, backward,
    forward, infer,
};

use crate::conv_naive::case::{ConvCase, OwnedParameters, bare, biased, pooled, strided, unit};
use crate::engines::engines;

/// The first few numbers that differ from the expected value by more than its tolerance.
fn differ(found: &[f32], expected: impl Fn(usize) -> (f32, f32)) -> Vec<(usize, f32)> {
    let off = |(index, value): (usize, &f32)| {
        let (expected, tolerance) = expected(index);
        let fits = (value - expected).abs() <= tolerance;
        (!fits).then_some((index, *value))
    };
    found.iter().enumerate().filter_map(off).take(5).collect()
}

#[test]
fn of_equal_numbers_in_a_window_the_first_gets_the_gradient() {
    // Images of 5 x 3, which have windows of 2x2, 2x1, 1x2 and 1x1.
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
    let mut case = ConvCase::new(17, [1, 5, 3], &[pooled(bare(1, [1, 1], 0))]);
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
    // The gradient of the slope is the selected u, which shows which pixel was selected. At u = 0 the
    // derivative is the slope.
    let relu = Unit { activation: Activation::Prelu, ..pooled(bare(2, [1, 1], 0)) };
    let mut case = ConvCase::new(1, [1, 2, 4], &[relu]);
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
    let unit = Unit { activation: Activation::Prelu, ..pooled(bare(1, [1, 1], 0)) };
    let mut case = ConvCase::new(2, [1, 2, 2], &[unit]);
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
    let mut case =
        ConvCase::new(3, [3, 5, 5], &[biased(Unit::new(33)), pooled(biased(Unit::new(4)))]);
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
fn constant_images_have_no_variance_and_give_beta() {
    for value in [0.0, 0.3, 1000.0] {
        let mut case = ConvCase::new(
            17,
            [2, 4, 3],
            &[Unit { activation: Activation::None, ..unit(33, [3, 2], 0) }],
        );
        case.images.fill(value);
        // Few bits, so that the products are exact in bf16 as well.
        case.units[0].weight.iter_mut().for_each(|w| *w = (*w * 4.0).round() / 4.0);
        let beta = &case.units[0].beta;
        for engine in engines() {
            let (pass, gradients) = case.train(engine);
            let Moments { mean, variance } = &pass.moments[0];
            let tiny = |f: usize| (0.0, 1e-6 * (mean[f] * mean[f]).max(1e-3));
            assert_eq!(differ(variance, tiny), [], "variance of {value}, {engine:?}");
            assert!(variance.iter().all(|variance| *variance >= 0.0), "{variance:?}");
            // The rounding error of z, up to 2^-9, is amplified by dividing by a deviation of √ε.
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
fn one_number_per_channel_is_its_own_mean() {
    let mut case = ConvCase::new(1, [5, 3, 3], &[unit(33, [3, 3], 0)]);
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
fn batch_norm_handles_large_and_tiny_images() {
    // The variance of the first is much larger than ε, that of the second negligible.
    for scale in [1e15, 1e-18] {
        let mut case = ConvCase::new(17, [3, 6, 5], &[Unit::new(33), pooled(Unit::new(10))]);
        case.images.iter_mut().for_each(|value| *value *= scale);
        case.check();
    }
}

#[test]
fn a_variance_in_the_range_of_f32_is_correct_where_the_sum_of_squares_overflows() {
    // Half of the pixels are 4e18, half are -4e18: their variance is 1.6e37.
    let mut case = ConvCase::new(
        16,
        [1, 4, 4],
        &[Unit { activation: Activation::None, ..unit(1, [1, 1], 0) }],
    );
    case.images = [4e18, -4e18].repeat(128);
    case.units[0] = OwnedParameters {
        weight: vec![1.0],
        gamma: vec![1.0],
        beta: vec![0.0],
        bias: vec![],
        slope: vec![],
    };
    for engine in engines() {
        let pass = case.train(engine).0;
        let near = |_: usize| (1.6e37, 1e35);
        assert_eq!(differ(&pass.moments[0].variance, near), [], "{engine:?}");
        let near = |index: usize| (if index.is_multiple_of(2) { 1.0 } else { -1.0 }, 0.01);
        assert_eq!(differ(&pass.output, near), [], "{engine:?}");
    }
}

#[test]
fn statistics_are_accurate_where_the_mean_is_large_relative_to_the_deviation() {
    let mut case = ConvCase::new(17, [3, 6, 5], &[unit(33, [3, 3], 0)]);
    case.images.iter_mut().for_each(|value| *value += 30.0);
    let naive = case.naive(Precision::F32, false);
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
fn a_nan_reaches_exactly_the_outputs_that_depend_on_it() {
    let units = [biased(unit(33, [3, 2], 1)), pooled(biased(Unit::new(5)))];
    for place in [0, 7 * 5 * 3 + 17, 17 * 3 * 35 - 1] {
        let mut case = ConvCase::new(17, [3, 7, 5], &units);
        case.images[place] = f32::NAN;
        let expected: Vec<bool> =
            case.naive(Precision::F32, false).output().iter().map(|v| v.is_nan()).collect();
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
    let mut case = ConvCase::new(17, [3, 4, 5], &[pooled(Unit::new(33))]);
    case.images[200] = f32::NAN;
    for engine in engines() {
        let (pass, gradients) = case.train(engine);
        assert!(pass.output.iter().all(|v| v.is_nan()), "{engine:?}");
        assert!(pass.moments[0].mean.iter().all(|v| v.is_nan()), "{engine:?}");
        assert!(gradients.units[0].weight.iter().any(|v| v.is_nan()), "{engine:?}");
    }
}

#[test]
fn invalid_stacks_are_rejected() {
    let rejection = |input, units: &[Unit]| Stack::new(input, units.to_vec()).unwrap_err();
    assert_eq!(rejection([1, 5, 5], &[]), StackError::Empty);
    for input in [[0, 5, 5], [1, 0, 5], [1, 5, 0]] {
        assert_eq!(rejection(input, &[Unit::new(3)]), StackError::Empty);
    }
    for wrong in [
        Unit::new(0),
        unit(3, [0, 3], 1),
        unit(3, [3, 0], 1),
        Unit { stride: 0, ..Unit::new(3) },
        Unit { stride: 3, ..Unit::new(3) },
    ] {
        let error = rejection([1, 5, 5], &[Unit::new(3), wrong]);
        assert_eq!(error, StackError::Unit { unit: 1 });
        assert!(error.to_string().contains("unit 1"));
    }
    let error = rejection([1, 5, 6], &[pooled(Unit::new(3)), unit(3, [6, 2], 1)]);
    assert_eq!(
        error.to_string(),
        "the 6x2 kernel of unit 1 does not fit its input of 3x3 pixels with a padding of 1"
    );
    assert!(matches!(
        rejection([1, 5, 6], &[unit(3, [1, 7], 0)]),
        StackError::Kernel { unit: 0, .. }
    ));
}

#[test]
fn arguments_of_the_wrong_size_are_rejected_with_both_sizes() {
    let with_bias = Unit { bias: true, ..Unit::new(6) };
    let case = ConvCase::new(2, [3, 5, 4], &[Unit::new(5), with_bias]);
    let engine = engines()[0];
    let message = |change: &dyn Fn(&mut ConvCase)| {
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
        format!("expected {expected} numbers for {what} of unit {unit}, but got {found}")
    };
    macro_rules! is_rejected {
        ($field:ident, $what:literal, $unit:literal, $expected:literal) => {
            let long = message(&|case| case.units[$unit].$field.push(0.0));
            assert_eq!(long, length($what, $unit, $expected, $expected + 1));
            if $expected > 0 {
                let none = message(&|case| case.units[$unit].$field.clear());
                assert_eq!(none, length($what, $unit, $expected, 0));
            }
        };
    }
    is_rejected!(weight, "the weight", 0, 135);
    is_rejected!(weight, "the weight", 1, 270);
    is_rejected!(bias, "the bias", 0, 0);
    is_rejected!(bias, "the bias", 1, 6);
    is_rejected!(gamma, "gamma", 0, 5);
    is_rejected!(beta, "beta", 1, 6);
    is_rejected!(slope, "the slopes", 1, 6);
    let mean = message(&|case| case.moments[1].mean.truncate(4));
    assert_eq!(mean, length("the mean", 1, 6, 4));
    let variance = message(&|case| case.moments[0].variance.push(1.0));
    assert_eq!(variance, length("the variance", 0, 5, 6));

    let images = message(&|case| case.images.truncate(119));
    assert_eq!(images, "expected one or more images of 3 x 5 x 4, but got 119 numbers");
    let images = message(&|case| case.images.clear());
    assert_eq!(images, "expected one or more images of 3 x 5 x 4, but got 0 numbers");
    let units = message(&|case| case.units.truncate(1));
    assert_eq!(units, "the stack has 2 units, but parameters were given for 1");
    let units = message(&|case| case.moments.push(Moments::default()));
    assert_eq!(units, "the stack has 2 units, but statistics were given for 3");
}

#[test]
fn backward_rejects_arguments_that_do_not_match_the_forward_pass() {
    let case = ConvCase::new(2, [3, 5, 4], &[Unit::new(5), pooled(Unit::new(6))]);
    let (parameters, gradient) = (case.parameters(), &case.output_gradient[..]);
    let pass = forward(engines()[0], &case.stack, &case.images, &parameters).unwrap();
    let message = |images: &[f32], parameters: &[Parameters<'_>], gradient: &[f32]| {
        backward(&pass, &case.stack, images, parameters, gradient, GradientsTo::Images)
            .err()
            .unwrap()
            .to_string()
    };
    let error = message(&case.images, &parameters, &gradient[1..]);
    assert!(error.contains("72") && error.contains("71"), "{error}");
    let error = message(&case.images, &parameters, &[]);
    assert!(error.contains("72") && error.contains(" 0"), "{error}");
    let error = message(&case.images[1..], &parameters, gradient);
    assert!(error.contains("119"), "{error}");
    // Complete images, but fewer than in the forward pass.
    message(&case.images[60..], &parameters, gradient);
    message(&case.images[60..], &parameters, &gradient[36..]);
    let error = message(&case.images, &parameters[..1], gradient);
    assert!(error.contains("2 units") && error.contains("for 1"), "{error}");
    let mut short = parameters.clone();
    short[1].slope = &[];
    let error = message(&case.images, &short, gradient);
    assert!(error.contains("slopes of unit 1") && error.contains("6 numbers"), "{error}");
}

#[test]
fn backward_rejects_a_different_stack() {
    let case = ConvCase::new(2, [3, 5, 4], &[Unit::new(5), pooled(Unit::new(6))]);
    let gradient = &case.output_gradient[..];
    let pass = forward(engines()[0], &case.stack, &case.images, &case.parameters()).unwrap();
    let other = ConvCase::new(2, [3, 5, 4], &[Unit::new(5)]);
    let result = backward(
        &pass,
        &other.stack,
        &case.images,
        &other.parameters(),
        gradient,
        GradientsTo::Images,
    );
    assert!(result.is_err());
    // Different stacks with the same output shape.
    let same_output = [
        vec![pooled(Unit::new(6))],
        vec![Unit::new(40), pooled(Unit::new(6))],
        vec![Unit::new(5), Unit::new(5), pooled(Unit::new(6))],
        vec![Unit::new(5), pooled(Unit { norm: false, ..Unit::new(6) })],
        vec![Unit::new(5), unit(6, [3, 3], 1), strided(unit(6, [1, 1], 0))],
    ];
    for units in same_output {
        let other = ConvCase::new(2, [3, 5, 4], &units);
        assert_eq!(other.stack.output(), case.stack.output());
        let parameters = other.parameters();
        let result =
            backward(&pass, &other.stack, &case.images, &parameters, gradient, GradientsTo::Images);
        assert!(result.is_err(), "{units:?}");
    }
}
