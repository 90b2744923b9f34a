//! A stack of convolution units from its definitions, in f64, one number at a time.
//!
//! Optionally it rounds to bf16 what the kernels round. What rounding alone may decide, the side of
//! PReLU's kink and the winner of a pooling window, is marked as close, and the backward pass can be
//! taken with these decisions turned: the difference is what they are worth.

pub mod case;

use lsoftmax_kernels::Precision;
use lsoftmax_kernels::conv::{EPSILON, Moments, Stack, Unit};

/// A unit's numbers. Those that it does not have are empty.
#[derive(Clone, Debug, Default)]
pub struct Values {
    pub weight: Vec<f64>,
    pub bias: Vec<f64>,
    pub gamma: Vec<f64>,
    pub beta: Vec<f64>,
    pub slope: Vec<f64>,
}

/// What a unit computed on its way forward.
struct Pass {
    input: Vec<f64>,
    /// After the convolution, as it is kept.
    z: Vec<f64>,
    mean: Vec<f64>,
    variance: Vec<f64>,
    /// After batch norm.
    u: Vec<f64>,
    /// For each output, the index it comes from and the index it nearly came from.
    chosen: Vec<[usize; 2]>,
    /// Whether the sign of `u` is close.
    close: Vec<bool>,
    output: Vec<f64>,
}

/// A stack, its numbers and its images after the forward pass.
pub struct Naive<'a> {
    stack: &'a Stack,
    units: Vec<Values>,
    precision: Precision,
    batch: usize,
    passes: Vec<Pass>,
}

/// A tensor to compare with, and the size that its numbers have where they don't happen to cancel.
#[derive(Clone, Debug)]
pub struct Expected {
    pub values: Vec<f64>,
    pub usual: f64,
}

/// The gradients of a unit.
#[derive(Clone, Debug)]
pub struct UnitGradients {
    pub weight: Expected,
    pub bias: Expected,
    pub gamma: Expected,
    pub beta: Expected,
    pub slope: Expected,
}

/// The gradients of a stack.
pub struct Gradients {
    pub images: Expected,
    pub units: Vec<UnitGradients>,
}

/// Rounds to the nearest bf16, ties to even, where the precision asks for it.
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

/// Every product of a convolution: calls `visit(output, weight, input)` with the three indices.
fn products(
    batch: usize,
    unit: &Unit,
    [channels, height, width]: [usize; 3],
    [filters, rows, columns]: [usize; 3],
    mut visit: impl FnMut(usize, usize, usize),
) {
    let [kernel_height, kernel_width] = unit.kernel;
    for n in 0..batch {
        for f in 0..filters {
            for c in 0..channels {
                for ky in 0..kernel_height {
                    for kx in 0..kernel_width {
                        let weight = ((f * channels + c) * kernel_height + ky) * kernel_width + kx;
                        for row in 0..rows {
                            let y = (row * unit.stride + ky).wrapping_sub(unit.padding);
                            if y >= height {
                                continue;
                            }
                            for column in 0..columns {
                                let x = (column * unit.stride + kx).wrapping_sub(unit.padding);
                                if x < width {
                                    let output =
                                        ((n * filters + f) * rows + row) * columns + column;
                                    let input = ((n * channels + c) * height + y) * width + x;
                                    visit(output, weight, input);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
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

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, value| value.abs().max(most))
}

fn rms(values: &[f64]) -> f64 {
    (values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64).sqrt()
}

impl<'a> Naive<'a> {
    /// Forward: with the batch's own statistics, or with those given.
    pub fn forward(
        stack: &'a Stack,
        units: &[Values],
        images: &[f64],
        precision: Precision,
        moments: Option<&[Moments]>,
    ) -> Self {
        let batch = images.len() / stack.input().iter().product::<usize>();
        let units: Vec<Values> = units
            .iter()
            .map(|unit| Values { weight: rounded(precision, &unit.weight), ..unit.clone() })
            .collect();
        let mut naive = Self { stack, units, precision, batch, passes: Vec::new() };
        for index in 0..naive.units.len() {
            let input = naive.passes.last().map_or(images, |pass| &pass.output);
            let pass = naive.unit_forward(index, input, moments.map(|moments| &moments[index]));
            naive.passes.push(pass);
        }
        naive
    }

    fn unit_forward(&self, index: usize, input: &[f64], given: Option<&Moments>) -> Pass {
        let (unit, values) = (&self.stack.units()[index], &self.units[index]);
        let shape = self.stack.convolved(index);
        let len = self.batch * shape.iter().product::<usize>();
        let input = rounded(self.precision, input);

        let mut z = vec![0.0; len];
        products(self.batch, unit, self.stack.unit_input(index), shape, |o, k, i| {
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
        let close = {
            let near = near * largest(&u);
            u.iter().map(|u| unit.prelu && u.abs() < near).collect()
        };
        let chosen = match unit.pool {
            true => pool(&a, shape, 2.0 * near * largest(&a)),
            false => (0..len).map(|index| [index; 2]).collect(),
        };
        let output = chosen.iter().map(|[first, _]| a[*first]).collect();
        Pass { input, z, mean, variance, u, chosen, close, output }
    }

    pub fn output(&self) -> &[f64] {
        &self.passes.last().expect("a unit").output
    }

    /// Mean and variance of each unit.
    pub fn moments(&self) -> impl Iterator<Item = (&[f64], &[f64])> {
        self.passes.iter().map(|pass| (&pass.mean[..], &pass.variance[..]))
    }

    /// For each output of the stack, whether its last PReLU or pooling was close.
    pub fn close_outputs(&self) -> Vec<bool> {
        let pass = self.passes.last().expect("a unit");
        pass.chosen.iter().map(|[first, second]| first != second || pass.close[*first]).collect()
    }

    /// Backward, with the close decisions as they fell or `turned`.
    pub fn backward(&self, output_gradient: &[f64], turned: bool) -> Gradients {
        let mut gradient = Expected { values: output_gradient.to_vec(), usual: 0.0 };
        let mut units = Vec::new();
        for index in (0..self.passes.len()).rev() {
            let (unit, input) = self.unit_backward(index, &gradient.values, turned);
            units.insert(0, unit);
            gradient = input;
            if index > 0 {
                gradient.values = rounded(self.precision, &gradient.values);
            }
        }
        Gradients { images: gradient, units }
    }

    fn unit_backward(
        &self,
        index: usize,
        output_gradient: &[f64],
        turned: bool,
    ) -> (UnitGradients, Expected) {
        let (unit, values) = (&self.stack.units()[index], &self.units[index]);
        let (pass, shape) = (&self.passes[index], self.stack.convolved(index));
        let len = pass.z.len();
        let filters = || filters_of(len, shape);
        // A sum and the size that it has where its terms are independent.
        let sum = |wanted: bool, terms: Vec<f64>| -> Expected {
            let squares = terms.iter().map(|term| term * term);
            let usual = largest(&sum_by_filter(squares, shape, len)).sqrt();
            let values = if wanted { sum_by_filter(terms.into_iter(), shape, len) } else { vec![] };
            Expected { values, usual }
        };

        let mut da = vec![0.0; len];
        for (gradient, chosen) in output_gradient.iter().zip(&pass.chosen) {
            da[chosen[usize::from(turned)]] += gradient;
        }
        let below = |index: usize| (pass.u[index] <= 0.0) != (turned && pass.close[index]);
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
                    let rest = du - beta.values[f] / count - normal * gamma.values[f] / count;
                    values.gamma[f] * scale(f) * rest
                })
                .collect();
        } else {
            (gamma, beta, dz) = (sum(false, vec![]), sum(false, vec![]), du);
        }
        let dz = rounded(self.precision, &dz);
        let mut bias = sum(unit.bias, dz.clone());

        let mut weight = vec![0.0; values.weight.len()];
        let mut input = vec![0.0; pass.input.len()];
        products(self.batch, unit, self.stack.unit_input(index), shape, |o, k, i| {
            weight[k] += dz[o] * pass.input[i];
            input[i] += dz[o] * values.weight[k];
        });
        let weight = Expected { values: weight, usual: bias.usual * rms(&pass.input) };
        if unit.norm {
            // Batch norm takes the bias away: all that is left are the errors of many terms.
            bias.usual = largest(&sum_by_filter(dz.iter().map(|dz| dz.abs()), shape, len));
        }
        let usual =
            rms(&dz) * rms(&values.weight) * ((unit.kernel[0] * unit.kernel[1]) as f64).sqrt();
        (UnitGradients { weight, bias, gamma, beta, slope }, Expected { values: input, usual })
    }
}

/// The index of the first maximum of every 2x2 window, and of the second choice where that is within
/// `near` (otherwise the first again). The last window of an odd size is cut short.
fn pool(a: &[f64], [_, height, width]: [usize; 3], near: f64) -> Vec<[usize; 2]> {
    let mut chosen = Vec::new();
    for plane in (0..a.len()).step_by(height * width) {
        for top in (0..height).step_by(2) {
            for left in (0..width).step_by(2) {
                let mut window: Vec<usize> = (top..height.min(top + 2))
                    .flat_map(|y| (left..width.min(left + 2)).map(move |x| (y, x)))
                    .map(|(y, x)| plane + y * width + x)
                    .collect();
                // A stable sort: of equal ones the first stays first. A NaN comes before all.
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
