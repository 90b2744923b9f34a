//! Several ranks that share a batch compute what one process computes, to the bit.

use lsoftmax_comm::in_threads;
use lsoftmax_kernels::conv::{
    BatchShare, GradientsTo, Moments, Parameters, Pool, Shortcut, ShortcutOrder, Stack, StackError,
    StackForward, Unit, UnitGradients, backward, forward_shared, forward_with_fixed,
};
use lsoftmax_kernels::{Engine, Precision};
use lsoftmax_testing::Congruential;

/// A stack with its inputs.
struct Case {
    stack: Stack,
    images: Vec<f32>,
    weights: Vec<Vec<f32>>,
    output_gradient: Vec<f32>,
}

/// What is compared: by value for the whole batch, by row for the images.
#[derive(Debug, PartialEq)]
struct Found {
    output: Vec<f32>,
    moments: Vec<Moments>,
    /// Weight, bias, gamma, beta and slopes of every unit.
    units: Vec<[Vec<f32>; 5]>,
    images: Vec<f32>,
}

impl Case {
    fn new(count: usize, input: [usize; 3], units: Vec<Unit>) -> Self {
        let stack = Stack::new(input, units).expect("a stack");
        let mut random = Congruential::seeded(5);
        let mut numbers = |len: usize| random.singles(len, 0.0, 1.0);
        let size = |shape: [usize; 3]| count * shape.iter().product::<usize>();
        let images = numbers(size(input));
        let output_gradient = numbers(size(stack.output()));
        let weights =
            (0..stack.units().len()).map(|unit| numbers(stack.weight_len(unit))).collect();
        Self { stack, images, weights, output_gradient }
    }

    fn run(&self, engine: Engine, share: Option<&BatchShare>) -> Found {
        let slopes = [0.25; 256];
        let ones = [1.0; 256];
        let parameters: Vec<Parameters<'_>> = (self.stack.units().iter().zip(&self.weights))
            .map(|(unit, weight)| {
                let vector = |wanted: bool| if wanted { &ones[..unit.filters] } else { &[] };
                let slope = if unit.has_slopes() { &slopes[..unit.filters] } else { &[] };
                let (bias, gamma, beta) = (vector(unit.bias), vector(unit.norm), vector(unit.norm));
                Parameters { weight, bias, gamma, beta, slope }
            })
            .collect();
        let fixed = vec![None; self.stack.units().len()];
        let total = self.images.len() / self.stack.input().iter().product::<usize>();
        let range = share.map_or(0..total, BatchShare::images);
        let rows = |values: &'_ [f32]| {
            let width = values.len() / total;
            values[range.start * width..range.end * width].to_vec()
        };
        let (images, gradient) = (rows(&self.images), rows(&self.output_gradient));
        let pass: StackForward = match share {
            Some(share) => forward_shared(engine, &self.stack, &images, &parameters, &fixed, share),
            None => forward_with_fixed(engine, &self.stack, &images, &parameters, &fixed),
        }
        .expect("the sizes fit");
        let to = GradientsTo::Images;
        let found =
            backward(&pass, &self.stack, &images, &parameters, &gradient, to).expect("sizes");
        let unit = |UnitGradients { weight, bias, gamma, beta, slope }| {
            [weight.to_vec(), bias, gamma, beta, slope]
        };
        Found {
            output: pass.output.to_vec(),
            moments: pass.moments,
            units: found.units.into_iter().map(unit).collect(),
            images: found.images.expect("wanted").to_vec(),
        }
    }

    /// Rank by rank, joined.
    fn shared(&self, engine: Engine, ranks: usize) -> Found {
        let total = self.images.len() / self.stack.input().iter().product::<usize>();
        let found = in_threads(ranks, |comm| {
            self.run(engine, Some(&BatchShare::new(comm, total).expect("enough images")))
        });
        let mut found = found.into_iter();
        let mut first = found.next().expect("a rank");
        for Found { output, moments, units, images } in found {
            assert!(moments == first.moments && units == first.units, "the ranks differ");
            first.output.extend(output);
            first.images.extend(images);
        }
        first
    }
}

fn engines() -> Vec<Engine> {
    let engine = |precision| Engine::new(precision).expect("the machine has kernels");
    vec![engine(Precision::F32), engine(Precision::Bf16)]
}

#[test]
fn any_number_of_ranks_has_the_bits_of_one_process() {
    let units = vec![
        Unit::new(8),
        Unit { pool: Pool::Max, ..Unit::new(40) },
        Unit { bias: true, norm: false, stride: 2, ..Unit::new(16) },
        Unit { kernel: [2, 2], padding: 0, ..Unit::new(5) },
    ];
    // Six blocks, the last one not full.
    let case = Case::new(83, [3, 8, 7], units);
    for engine in engines() {
        let alone = case.run(engine, None);
        for ranks in 1..=6 {
            assert!(case.shared(engine, ranks) == alone, "{ranks} ranks, {engine:?}");
        }
    }
}

#[test]
fn residual_stacks_have_the_same_bits_for_any_number_of_ranks() {
    let order = ShortcutOrder::BeforeActivation;
    let adds = |from| Unit { shortcut: Some(Shortcut { from, order }), ..Unit::new(12) };
    let units = vec![
        Unit::new(12),
        Unit::new(12),
        adds(2),
        Unit { stride: 2, ..Unit::new(12) },
        Unit { kernel: [1, 1], padding: 0, stride: 2, from: 2, ..Unit::new(12) },
        Unit { from: 2, pool: Pool::Average, ..adds(1) },
    ];
    let case = Case::new(83, [3, 8, 7], units);
    for engine in engines() {
        let alone = case.run(engine, None);
        for ranks in 2..=6 {
            assert!(case.shared(engine, ranks) == alone, "{ranks} ranks, {engine:?}");
        }
    }
}

/// A weight of more than two million floats has four partial sums in all.
#[test]
fn large_weights_have_the_same_bits_for_up_to_four_ranks_and_nearly_for_more() {
    let full = Unit { kernel: [16, 16], padding: 0, ..Unit::new(160) };
    let case = Case::new(128, [1, 16, 16], vec![Unit::new(64), full]);
    let engine = engines()[1];
    let alone = case.run(engine, None);
    for ranks in [2, 4] {
        assert!(case.shared(engine, ranks) == alone, "{ranks} ranks");
    }
    let eight = case.shared(engine, 8);
    assert!(eight.moments == alone.moments && eight.output == alone.output);
    let [weight, ..] = &alone.units[1];
    let scale = weight.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    for (found, expected) in eight.units[1][0].iter().zip(weight) {
        assert!((found - expected).abs() <= 1e-6 * scale, "{found} {expected}");
    }
}

#[test]
fn a_batch_of_fewer_blocks_than_ranks_is_refused_and_so_is_another_number_of_images() {
    let found = in_threads(3, |comm| BatchShare::new(comm, 32).map(|share| share.images()));
    let ranks = StackError::Ranks { images: 32, most: 2, ranks: 3 };
    assert_eq!(found, [Err(ranks.clone()), Err(ranks.clone()), Err(ranks)]);

    let stack = Stack::new([1, 2, 2], vec![Unit::new(1)]).expect("a stack");
    let found = in_threads(2, |comm| {
        let share = BatchShare::new(comm, 32).expect("enough");
        let parameters = [Parameters {
            weight: &[0.0; 9],
            bias: &[],
            gamma: &[1.0],
            beta: &[0.0],
            slope: &[0.25],
        }];
        let images = [0.0; 32 * 4];
        let pass = forward_shared(engines()[0], &stack, &images, &parameters, &[None], &share);
        pass.map(|pass| pass.output.len())
    });
    let share = |rank| Err(StackError::Share { rank, expected: 16, found: 32 });
    assert_eq!(found, [share(0), share(1)]);

    let counted = |counts: [usize; 2]| {
        in_threads(2, |comm| {
            let count = counts[comm.rank()];
            BatchShare::of_images(comm, count).map(|share| (share.total(), share.images()))
        })
    };
    assert_eq!(counted([32, 20]), [Ok((52, 0..32)), Ok((52, 32..52))]);
    let share = StackError::Share { rank: 0, expected: 32, found: 20 };
    assert_eq!(counted([20, 32]), [Err(share.clone()), Err(share)]);
}
