//! A stack of convolution units computed from the definitions, in f64.
//!
//! Optionally it rounds to bf16 where the kernels do. Decisions that depend on rounding (the sign of
//! PReLU's input, and the maximum of a pooling window) are marked as ambiguous. The backward pass can be
//! computed with these decisions flipped, which gives their effect on the gradients.

pub mod case;

use lsoftmax_kernels::Precision;
use lsoftmax_kernels::conv::{EPSILON, Moments, Stack, Unit};
use lsoftmax_testing::{Convolution, largest};

/// A unit's parameters; empty for those that it does not have.
#[derive(Clone, Debug, Default)]
pub struct NaiveParameters {
    pub weight: Vec<f64>,
    pub bias: Vec<f64>,
    pub gamma: Vec<f64>,
    pub beta: Vec<f64>,
    pub slope: Vec<f64>,
}

/// The forward pass of a unit.
struct NaiveUnitForward {
    input: Vec<f64>,
    /// After the convolution, as it is stored.
    z: Vec<f64>,
    /// Whether the statistics were given.
    fixed: bool,
    mean: Vec<f64>,
    variance: Vec<f64>,
    /// After batch norm.
    u: Vec<f64>,
    /// For each output, the index of the maximum, and that of the runner-up if the choice is ambiguous.
    chosen: Vec<[usize; 2]>,
    /// Whether the sign of `u` is ambiguous.
    ambiguous: Vec<bool>,
    output: Vec<f64>,
}

/// A stack after the forward pass.
pub struct NaiveStack<'a> {
    stack: &'a Stack,
    units: Vec<NaiveParameters>,
    precision: Precision,
    batch: usize,
    passes: Vec<NaiveUnitForward>,
}

/// An expected tensor, and the typical magnitude of its numbers where their terms do not cancel.
#[derive(Clone, Debug)]
pub struct Expected {
    pub values: Vec<f64>,
    pub usual: f64,
}

/// The gradients of a unit.
#[derive(Clone, Debug)]
pub struct NaiveUnitGradients {
    pub weight: Expected,
    pub bias: Expected,
    pub gamma: Expected,
    pub beta: Expected,
    pub slope: Expected,
}

/// The gradients of a stack.
pub struct NaiveGradients {
    pub images: Expected,
    pub units: Vec<NaiveUnitGradients>,
}

/// Rounds to the nearest bf16, ties to even, if the precision is bf16.
pub fn round(precision: Precision, value: f64) -> f64 {
    if precision == Precision::F32 || !value.is_finite() {
        return value;
    }
    let single = value as f32;
    let step = f32::from_bits(single.to_bits() & 0xff80_0000) / 128.0;
    if step == 0.0 { 0.0 } else { f64::from((single / step).round_ties_even() * step) }
}

fn rounded(precision: Precision, values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| round(precision, *value)).collect()
}

fn convolution(unit: &Unit, input: [usize; 3]) -> Convolution {
    let Unit { filters, kernel, padding, stride, .. } = *unit;
    Convolution { input, filters, kernel, padding, stride }
}

/// The filter of each number of N x F x H x W.
fn filters_of(len: usize, [filters, height, width]: [usize; 3]) -> impl Iterator<Item = usize> {
    (0..len).map(move |index| index / (height * width) % filters)
}

fn sum_by_filter(values: impl Iterator<Item = f64>, shape: [usize; 3], len: usize) -> Vec<f64> {
    let mut sums = vec![0.0; shape[0]];
    for (f, value) in filters_of(len, shape).zip(values) {
        sums[f] += value;
    }
    sums
}

fn rms(values: &[f64]) -> f64 {
    (values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64).sqrt()
}

impl<'a> NaiveStack<'a> {
    /// The forward pass, with the statistics of the batch or, for units that have them, the given ones.
    pub fn forward(
        stack: &'a Stack,
        units: &[NaiveParameters],
        images: &[f64],
        precision: Precision,
        given: &[Option<&Moments>],
    ) -> Self {
        let batch = images.len() / stack.input().iter().product::<usize>();
        let units: Vec<NaiveParameters> = units
            .iter()
            .map(|unit| NaiveParameters {
                weight: rounded(precision, &unit.weight),
                ..unit.clone()
            })
            .collect();
        let mut naive = Self { stack, units, precision, batch, passes: Vec::new() };
        for (index, given) in given.iter().enumerate() {
            let input = naive.passes.last().map_or(images, |pass| &pass.output);
            let pass = naive.unit_forward(index, input, *given);
            naive.passes.push(pass);
        }
        naive
    }

    fn unit_forward(
        &self,
        index: usize,
        input: &[f64],
        given: Option<&Moments>,
    ) -> NaiveUnitForward {
        let (unit, values) = (&self.stack.units()[index], &self.units[index]);
        let shape = self.stack.convolved(index);
        let len = self.batch * shape.iter().product::<usize>();
        let input = rounded(self.precision, input);

        let mut z = vec![0.0; len];
        convolution(unit, self.stack.unit_input(index)).products(self.batch, |o, k, i| {
            z[o] += values.weight[k] * input[i];
        });
        if unit.bias {
            filters_of(len, shape).zip(&mut z).for_each(|(f, z)| *z += values.bias[f]);
        }

        let (mut mean, mut variance) = (vec![], vec![]);
        if let (true, Some(given)) = (unit.norm, given) {
            mean = given.mean.iter().copied().map(f64::from).collect();
            variance = given.variance.iter().copied().map(f64::from).collect();
        } else if unit.norm {
            let count = (len / shape[0]) as f64;
            let average = |sums: Vec<f64>| sums.into_iter().map(|sum| sum / count).collect();
            mean = average(sum_by_filter(z.iter().copied(), shape, len));
            let squares = filters_of(len, shape).zip(&z).map(|(f, z)| (z - mean[f]).powi(2));
            variance = average(sum_by_filter(squares, shape, len));
        }
        let z = rounded(self.precision, &z);
        let normalise = |(f, z): (usize, &f64)| match unit.norm {
            true => {
                let deviation = (variance[f] + f64::from(EPSILON)).sqrt();
                values.gamma[f] * (z - mean[f]) / deviation + values.beta[f]
            }
            false => *z,
        };
        let u: Vec<f64> = filters_of(len, shape).zip(&z).map(normalise).collect();
        let activate = |(f, u): (usize, &f64)| match unit.prelu {
            true if *u > 0.0 => *u,
            true => values.slope[f] * u,
            false => *u,
        };
        let a: Vec<f64> = filters_of(len, shape).zip(&u).map(activate).collect();

        let near = match self.precision {
            Precision::F32 => 4e-6,
            Precision::Bf16 => 1.0 / 4096.0,
        };
        let ambiguous = {
            let near = near * largest(&u);
            u.iter().map(|u| unit.prelu && u.abs() < near).collect()
        };
        let chosen = match unit.pool {
            true => pool(&a, shape, 2.0 * near * largest(&a)),
            false => (0..len).map(|index| [index; 2]).collect(),
        };
        let output = chosen.iter().map(|[first, _]| a[*first]).collect();
        let fixed = given.is_some();
        NaiveUnitForward { input, z, fixed, mean, variance, u, chosen, ambiguous, output }
    }

    pub fn output(&self) -> &[f64] {
        &self.passes.last().expect("a unit").output
    }

    /// Mean and variance of each unit.
    pub fn moments(&self) -> impl Iterator<Item = (&[f64], &[f64])> {
        self.passes.iter().map(|pass| (&pass.mean[..], &pass.variance[..]))
    }

    /// For each output of the stack, whether its last PReLU or pooling was ambiguous.
    pub fn ambiguous_outputs(&self) -> Vec<bool> {
        let pass = self.passes.last().expect("a unit");
        pass.chosen
            .iter()
            .map(|[first, second]| first != second || pass.ambiguous[*first])
            .collect()
    }

    /// The backward pass, optionally with the ambiguous decisions `flipped`.
    pub fn backward(&self, output_gradient: &[f64], flipped: bool) -> NaiveGradients {
        let mut gradient = Expected { values: output_gradient.to_vec(), usual: 0.0 };
        let mut units = Vec::new();
        for index in (0..self.passes.len()).rev() {
            let (unit, input) = self.unit_backward(index, &gradient.values, flipped);
            units.insert(0, unit);
            gradient = input;
            if index > 0 {
                gradient.values = rounded(self.precision, &gradient.values);
            }
        }
        NaiveGradients { images: gradient, units }
    }

    fn unit_backward(
        &self,
        index: usize,
        output_gradient: &[f64],
        flipped: bool,
    ) -> (NaiveUnitGradients, Expected) {
        let (unit, values) = (&self.stack.units()[index], &self.units[index]);
        let (pass, shape) = (&self.passes[index], self.stack.convolved(index));
        let len = pass.z.len();
        let filters = || filters_of(len, shape);
        // A sum, and its typical magnitude if the terms are independent.
        let sum = |wanted: bool, terms: Vec<f64>| -> Expected {
            let squares = terms.iter().map(|term| term * term);
            let usual = largest(&sum_by_filter(squares, shape, len)).sqrt();
            let values = if wanted { sum_by_filter(terms.into_iter(), shape, len) } else { vec![] };
            Expected { values, usual }
        };

        let mut da = vec![0.0; len];
        for (gradient, chosen) in output_gradient.iter().zip(&pass.chosen) {
            da[chosen[usize::from(flipped)]] += gradient;
        }
        let below = |index: usize| (pass.u[index] <= 0.0) != (flipped && pass.ambiguous[index]);
        let slope = sum(
            unit.prelu,
            (0..len).map(|i| if below(i) { da[i] * pass.u[i] } else { 0.0 }).collect(),
        );
        let du: Vec<f64> = filters()
            .enumerate()
            .map(|(i, f)| if unit.prelu && below(i) { da[i] * values.slope[f] } else { da[i] })
            .collect();

        let (gamma, beta, dz);
        if unit.norm {
            let count = (len / shape[0]) as f64;
            let scale = |f: usize| 1.0 / (pass.variance[f] + f64::from(EPSILON)).sqrt();
            let normal: Vec<f64> =
                filters().zip(&pass.z).map(|(f, z)| (z - pass.mean[f]) * scale(f)).collect();
            gamma = sum(true, du.iter().zip(&normal).map(|(du, normal)| du * normal).collect());
            beta = sum(true, du.clone());
            dz = filters()
                .zip(&du)
                .zip(&normal)
                .map(|((f, du), normal)| {
                    let through_moments = (beta.values[f] + normal * gamma.values[f]) / count;
                    let rest = if pass.fixed { 0.0 } else { through_moments };
                    values.gamma[f] * scale(f) * (du - rest)
                })
                .collect();
        } else {
            (gamma, beta, dz) = (sum(false, vec![]), sum(false, vec![]), du);
        }
        let dz = rounded(self.precision, &dz);
        let mut bias = sum(unit.bias, dz.clone());

        let mut weight = vec![0.0; values.weight.len()];
        let mut input = vec![0.0; pass.input.len()];
        convolution(unit, self.stack.unit_input(index)).products(self.batch, |o, k, i| {
            weight[k] += dz[o] * pass.input[i];
            input[i] += dz[o] * values.weight[k];
        });
        let weight = Expected { values: weight, usual: bias.usual * rms(&pass.input) };
        if unit.norm && !pass.fixed {
            // Batch norm cancels the bias: only the rounding errors of many terms remain.
            bias.usual = largest(&sum_by_filter(dz.iter().map(|dz| dz.abs()), shape, len));
        }
        let usual =
            rms(&dz) * rms(&values.weight) * ((unit.kernel[0] * unit.kernel[1]) as f64).sqrt();
        (NaiveUnitGradients { weight, bias, gamma, beta, slope }, Expected { values: input, usual })
    }
}

/// The index of the first maximum of every 2x2 window, and of the second largest number if that is
/// within `near` (otherwise the first again). The last window of an odd size is smaller.
fn pool(a: &[f64], [_, height, width]: [usize; 3], near: f64) -> Vec<[usize; 2]> {
    let mut chosen = Vec::new();
    for plane in (0..a.len()).step_by(height * width) {
        for top in (0..height).step_by(2) {
            for left in (0..width).step_by(2) {
                let mut window: Vec<usize> = (top..height.min(top + 2))
                    .flat_map(|y| (left..width.min(left + 2)).map(move |x| (y, x)))
                    .map(|(y, x)| plane + y * width + x)
                    .collect();
                // The sort is stable, so the first of equal numbers stays first. NaN counts as largest.
                let key =
                    |index: &usize| if a[*index].is_nan() { f64::INFINITY } else { a[*index] };
                window.sort_by(|l, r| key(r).partial_cmp(&key(l)).expect("no NaN"));
                let first = window[0];
                let second = window.get(1).copied().unwrap_or(first);
                chosen.push([first, if a[first] - a[second] < near { second } else { first }]);
            }
        }
    }
    chosen
}
