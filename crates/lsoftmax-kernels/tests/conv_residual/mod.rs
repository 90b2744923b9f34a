//! Residual stacks: shortcuts, projections and the average of all pixels.

use lsoftmax_kernels::conv::{Activation, GraphProblem, Pool, Stack, StackError, Unit};
use proptest::prelude::*;

use crate::conv_naive::case::{ConvCase, added, added_after, bare, biased, pooled, strided, unit};
use crate::engines::engines;
use crate::{
    assert_finite_differences, assert_same_bits_on_threads, assert_same_gradients_from_any_unit,
};

fn relu(unit: Unit) -> Unit {
    Unit { activation: Activation::Relu, ..unit }
}

fn averaged(unit: Unit) -> Unit {
    Unit { pool: Pool::Average, ..unit }
}

/// A block of two convolutions whose input is added to its output.
fn identity(filters: usize) -> [Unit; 2] {
    [Unit::new(filters), added(Unit::new(filters), 2)]
}

/// A block of stride 2 with a 1x1 convolution as its shortcut.
fn projected(filters: usize) -> [Unit; 3] {
    let shortcut = Unit { activation: Activation::None, from: 2, ..unit(filters, [1, 1], 0) };
    let last = Unit { from: 2, ..added(Unit::new(filters), 1) };
    [strided(Unit::new(filters)), strided(shortcut), last]
}

/// A ResNet of a stem and blocks, with an average at the end.
fn resnet(widths: &[usize]) -> Vec<Unit> {
    let mut units = vec![Unit::new(widths[0])];
    units.extend(identity(widths[0]));
    for filters in &widths[1..] {
        units.extend(projected(*filters));
        units.extend(identity(*filters));
    }
    let last = units.len() - 1;
    units[last] = averaged(units[last]);
    units
}

/// A SphereFace-like network: convolutions of stride 2, each followed by a block.
fn sphereface(widths: &[usize]) -> Vec<Unit> {
    let mut units = Vec::new();
    for filters in widths {
        units.extend([
            strided(Unit::new(*filters)),
            Unit::new(*filters),
            added_after(Unit::new(*filters), 2),
        ]);
    }
    units
}

#[test]
fn the_naive_gradients_of_residual_stacks_are_finite_differences() {
    let last = Unit { from: 2, ..averaged(added(unit(3, [1, 1], 0), 1)) };
    let shortcut = Unit { from: 2, ..strided(unit(3, [1, 1], 0)) };
    let units = [unit(2, [2, 2], 1), strided(unit(3, [3, 2], 1)), shortcut, last];
    assert_finite_differences(&ConvCase::new(3, [2, 4, 4], &units));
    let block = [unit(3, [1, 1], 0), added_after(unit(3, [1, 1], 0), 2)];
    let units = [&[pooled(biased(unit(3, [2, 2], 0)))], &block[..], &[relu(unit(2, [2, 1], 0))]];
    assert_finite_differences(&ConvCase::new(3, [2, 7, 6], &units.concat()));
}

#[test]
fn every_path_agrees_on_residual_blocks() {
    for (filters, batch, size) in
        [(5, 3, [5, 4]), (33, 17, [4, 3]), (16, 16, [8, 8]), (64, 2, [3, 3])]
    {
        let [height, width] = size;
        let stem = Unit::new(filters);
        let units = [&[stem][..], &identity(filters), &identity(filters)].concat();
        ConvCase::new(batch, [3, height, width], &units).check();
        let units = [&[stem][..], &projected(filters + 1), &[Unit::new(4)]].concat();
        ConvCase::new(batch, [3, height, width], &units).check();
    }
}

#[test]
fn every_path_agrees_on_both_orders_and_all_activations() {
    for activation in [Activation::None, Activation::Relu, Activation::Prelu] {
        for order in [added, added_after] {
            for pool in [Pool::None, Pool::Average] {
                let with = |unit: Unit| Unit { activation, ..unit };
                let last = Unit { pool, ..with(order(Unit::new(9), 2)) };
                let units = [with(Unit::new(9)), with(Unit::new(9)), last];
                ConvCase::new(5, [3, 5, 4], &units).check();
                // Batch norm in the first unit only, and a bias in the others.
                let units = [with(Unit::new(9)), biased(units[1]), biased(last)];
                ConvCase::new(18, [3, 4, 4], &units).check();
            }
        }
    }
}

#[test]
fn every_path_agrees_on_residual_networks() {
    ConvCase::new(5, [3, 8, 8], &resnet(&[6, 12, 20])).check();
    ConvCase::new(17, [3, 7, 5], &resnet(&[16, 33])).check();
    let mut faces = sphereface(&[8, 12]);
    faces.push(unit(10, [3, 2], 0));
    ConvCase::new(6, [3, 11, 8], &faces).check();
    let relus = resnet(&[8, 12]).into_iter().map(|unit| match unit.activation {
        Activation::Prelu => relu(unit),
        _ => unit,
    });
    ConvCase::new(4, [3, 8, 6], &relus.collect::<Vec<_>>()).check();
}

#[test]
fn every_path_agrees_where_a_pooled_output_is_added() {
    let units = [&[pooled(Unit::new(10))][..], &identity(10), &[bare(3, [2, 2], 0)]].concat();
    ConvCase::new(5, [3, 7, 6], &units).check();
    // A projection with pooling and an activation.
    let stem = Unit::new(6);
    let shortcut = Unit { from: 2, ..pooled(unit(8, [1, 1], 0)) };
    let last = Unit { from: 2, ..added(Unit::new(8), 1) };
    let units = [stem, strided(Unit::new(8)), shortcut, last, Unit::new(4)];
    ConvCase::new(5, [3, 8, 6], &units).check();
}

#[test]
fn every_path_agrees_where_kernels_are_smaller_than_their_stride() {
    // The first unit that reads a sum does not read all its rows and columns.
    let small = strided(unit(7, [1, 1], 0));
    for size in [[8, 8], [7, 9], [21, 4]] {
        let units = [&[Unit::new(5)][..], &identity(5), &[small, Unit::new(4)]].concat();
        ConvCase::new(2, [3, size[0], size[1]], &units).check();
        let last = Unit { from: 2, ..added(Unit::new(7), 1) };
        let bottleneck = [small, Unit { from: 2, ..small }, last];
        let units = [&[Unit::new(5)][..], &identity(5), &bottleneck].concat();
        ConvCase::new(3, [3, size[0], size[1]], &units).check();
    }
}

#[test]
fn every_path_agrees_where_an_output_is_read_by_several_units() {
    // Units 1 and 3 read the output of unit 0, which unit 2 adds; unit 4 reads that of unit 2 and adds that of
    // unit 3.
    let (plain, reads) = (Unit::new(6), |from| Unit { from, ..Unit::new(6) });
    let units = [plain, plain, added(plain, 2), reads(3), added(reads(2), 1), plain];
    ConvCase::new(5, [3, 5, 4], &units).check();
}

#[test]
fn every_path_agrees_on_residual_stacks_with_fixed_statistics() {
    let units =
        [&[Unit::new(9)][..], &projected(12), &identity(12), &[bare(4, [2, 2], 0)]].concat();
    for fixed in [&[0][..], &[1], &[2], &[3], &[0, 1, 2, 3, 4, 5]] {
        ConvCase::new(18, [3, 6, 5], &units).with_fixed(fixed).check();
    }
}

#[test]
fn residual_results_are_the_same_bits_for_any_number_of_threads() {
    let cases = [
        ConvCase::new(3, [3, 9, 8], &resnet(&[8, 16])),
        ConvCase::new(37, [3, 7, 6], &resnet(&[10, 33])),
        // Blocks that are divided into sections of rows, which read rows of a sum that others store.
        ConvCase::new(1, [3, 40, 6], &resnet(&[9, 12])),
        ConvCase::new(18, [3, 21, 5], &[sphereface(&[5, 8]), vec![unit(6, [3, 2], 0)]].concat()),
    ];
    cases.iter().for_each(assert_same_bits_on_threads);
}

#[test]
fn gradients_of_residual_stacks_from_a_unit_on_are_those_of_all_units() {
    let units = [&[Unit::new(6)][..], &projected(8), &identity(8)].concat();
    assert_same_gradients_from_any_unit(&ConvCase::new(5, [3, 6, 5], &units));
}

#[test]
fn a_block_of_zeros_is_the_identity() {
    // With γ = β = 0 in its last unit, the output of a block is its input, and so is its gradient.
    let units = [bare(5, [1, 1], 0), Unit::new(5), added_after(Unit::new(5), 2)];
    let mut case = ConvCase::new(4, [5, 3, 3], &units);
    case.units[0].weight = (0..25).map(|i| if i % 6 == 0 { 1.0 } else { 0.0 }).collect();
    case.units[2].gamma.fill(0.0);
    case.units[2].beta.fill(0.0);
    // Few digits, so that bf16 has them all.
    case.images.iter_mut().for_each(|value| *value = (*value * 8.0).round() / 8.0);
    case.output_gradient.iter_mut().for_each(|value| *value = (*value * 8.0).round() / 8.0);
    for engine in engines() {
        let (pass, gradients) = case.train(engine);
        assert_eq!(pass.output[..], case.images[..], "{engine:?}");
        assert_eq!(gradients.images.unwrap()[..], case.output_gradient[..], "{engine:?}");
    }
}

fn problem(units: &[Unit]) -> (usize, GraphProblem) {
    match Stack::new([3, 8, 8], units.to_vec()).unwrap_err() {
        StackError::Graph { unit, problem } => (unit, problem),
        other => panic!("{other}"),
    }
}

#[test]
fn stacks_with_impossible_shortcuts_are_rejected() {
    let plain = Unit::new(4);
    let from = |from| Unit { from, ..plain };
    assert_eq!(problem(&[from(2)]), (0, GraphProblem::Input));
    assert_eq!(problem(&[plain, from(0)]), (1, GraphProblem::Input));
    assert_eq!(problem(&[plain, from(2)]), (1, GraphProblem::Input));
    assert_eq!(problem(&[plain, added(plain, 2)]), (1, GraphProblem::Shortcut));
    assert_eq!(problem(&[plain, added(plain, 0)]), (1, GraphProblem::Shortcut));
    let (wide, small) = (Unit::new(5), strided(plain));
    let (from, to) = ([4, 8, 8], [5, 8, 8]);
    let shape = GraphProblem::Shape { from, to };
    assert_eq!(problem(&[plain, wide, added(wide, 2)]), (2, shape));
    let shape = GraphProblem::Shape { from, to: [4, 4, 4] };
    assert_eq!(problem(&[plain, small, added(plain, 2)]), (2, shape));
    let max = pooled(added(plain, 2));
    assert_eq!(problem(&[plain, plain, max]), (2, GraphProblem::Pooling));
    assert_eq!(problem(&[averaged(plain), plain]), (0, GraphProblem::Average));
    let past = Unit { from: 2, ..plain };
    assert_eq!(problem(&[plain, plain, past]), (1, GraphProblem::Unused));
    let twice = [plain, plain, added(plain, 2), added(plain, 3)];
    assert_eq!(problem(&twice), (0, GraphProblem::Order));
    assert_eq!(problem(&[plain, added(plain, 1)]), (0, GraphProblem::Order));
    let nested = [plain, plain, added(plain, 2), Unit { from: 2, ..added(plain, 1) }];
    assert_eq!(problem(&nested), (2, GraphProblem::Nested));
    let message = Stack::new([3, 8, 8], vec![plain, wide, added(wide, 2)]).unwrap_err().to_string();
    let expected =
        "unit 2 of the stack has an output of 5x8x8, to which an output of 4x8x8 cannot be added";
    assert_eq!(message, expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_path_agrees_on_random_residual_stacks(
        batch in 2usize..20,
        size in (3usize..9, 3usize..9),
        widths in proptest::collection::vec((1usize..40, any::<bool>(), any::<bool>()), 1..3),
    ) {
        let mut units = vec![Unit::new(widths[0].0)];
        let mut side = [size.0, size.1];
        for (filters, after, bare) in widths {
            let halved = side.map(|side| side.div_ceil(2));
            // With statistics of only a few numbers the gradient nearly vanishes.
            let shrinks = batch * halved[0] * halved[1] >= 32;
            let filters = if shrinks { filters } else { units[units.len() - 1].filters };
            let mut block = match shrinks {
                true => projected(filters).to_vec(),
                false => identity(filters).to_vec(),
            };
            side = if shrinks { halved } else { side };
            let last = block.len() - 1;
            if after {
                block[last] = added_after(block[last], block[last].shortcut.unwrap().from);
            }
            if bare {
                block[last] = biased(block[last]);
            }
            units.extend(block);
        }
        ConvCase::new(batch, [3, size.0, size.1], &units).check();
    }
}
