//! A stack of convolution units computed from the definitions, in f64.
//!
//! Optionally it rounds to bf16 where the kernels do. Decisions that depend on rounding (the sign of
//! the activation's input, and the maximum of a pooling window) are marked as ambiguous. The backward pass can be
//! computed with these decisions flipped, which gives their effect on the gradients.

pub mod case;
mod winograd;

use lsoftmax_kernels::Precision;
use lsoftmax_kernels::conv::{Activation, EPSILON, Moments, Pool, ShortcutOrder, Stack, Unit};
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
    /// The input of the activation, as it is stored if it is a sum.
    u: Vec<f64>,
    /// For each output, the index of the maximum, and that of the runner-up if the choice is ambiguous; with an
    /// average, for each number that is averaged.
    chosen: Vec<[usize; 2]>,
    /// Whether the sign of `u` is ambiguous.
    ambiguous: Vec<bool>,
    output: Vec<f64>,
    /// The output as another unit adds it: computed from the sum that is stored.
    stored_output: Vec<f64>,
}

/// A stack after the forward pass.
pub struct NaiveStack<'a> {
    stack: &'a Stack,
    units: Vec<NaiveParameters>,
    precision: Precision,
    /// Whether the kernels use Winograd's algorithm, and round in bf16 what it multiplies.
    winograd: bool,
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
        winograd: bool,
        given: &[Option<&Moments>],
    ) -> Self {
        let batch = images.len() / stack.input().iter().product::<usize>();
        let mut naive =
            Self { stack, units: units.to_vec(), precision, winograd, batch, passes: Vec::new() };
        for (index, unit) in naive.units.iter_mut().enumerate() {
            if !(winograd && winograd::computes(stack, index)) {
                unit.weight = rounded(precision, &unit.weight);
            }
        }
        for (index, given) in given.iter().enumerate() {
            let input = stack.source(index).map_or(images, |unit| &naive.passes[unit].output);
            let pass = naive.unit_forward(index, input, *given);
            naive.passes.push(pass);
        }
        naive
    }

    /// Whether a unit is computed by Winograd's algorithm. In f32, where nothing is rounded, the definition will do.
    fn uses_winograd(&self, index: usize) -> bool {
        self.winograd && winograd::computes(self.stack, index)
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
        let convolution = convolution(unit, self.stack.unit_input(index));
        if self.uses_winograd(index) {
            z = winograd::output(&convolution, self.precision, &values.weight, &input);
        } else {
            convolution.products(self.batch, |o, k, i| z[o] += values.weight[k] * input[i]);
        }
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
        let mut u: Vec<f64> = filters_of(len, shape).zip(&z).map(normalise).collect();
        let addend = self.stack.addend(index).map(|unit| &self.passes[unit].stored_output);
        let order = unit.shortcut.map(|shortcut| shortcut.order);
        let add = |values: &mut [f64], here: ShortcutOrder| {
            if let Some(addend) = addend.filter(|_| order == Some(here)) {
                values.iter_mut().zip(addend).for_each(|(value, added)| *value += added);
            }
        };
        add(&mut u, ShortcutOrder::BeforeActivation);
        let activate = |(f, u): (usize, &f64)| match unit.activation {
            Activation::Prelu if *u <= 0.0 => values.slope[f] * u,
            Activation::Relu if *u <= 0.0 => 0.0,
            _ => *u,
        };
        let activated =
            |u: &[f64]| -> Vec<f64> { filters_of(len, shape).zip(u).map(activate).collect() };
        let mut a = activated(&u);
        add(&mut a, ShortcutOrder::AfterActivation);
        let stored = match order {
            None => a.clone(),
            Some(ShortcutOrder::AfterActivation) => rounded(self.precision, &a),
            Some(ShortcutOrder::BeforeActivation) => {
                u = rounded(self.precision, &u);
                activated(&u)
            }
        };

        let near = match self.precision {
            Precision::F32 => 4e-6,
            _ => 1.0 / 4096.0,
        };
        let ambiguous = {
            let near = near * largest(&u);
            u.iter().map(|u| unit.activation != Activation::None && u.abs() < near).collect()
        };
        let chosen = match unit.pool {
            Pool::Max => pool(&a, shape, 2.0 * near * largest(&a)),
            _ => (0..len).map(|index| [index; 2]).collect(),
        };
        let pooled =
            |a: &[f64]| -> Vec<f64> { chosen.iter().map(|[first, _]| a[*first]).collect() };
        let (output, stored_output) = (pooled(&a), pooled(&stored));
        let output = match unit.pool {
            Pool::Average => {
                let pixels = shape[1] * shape[2];
                let means = output.chunks_exact(pixels);
                means.map(|values| values.iter().sum::<f64>() / pixels as f64).collect()
            }
            _ => output,
        };
        let fixed = given.is_some();
        NaiveUnitForward {
            input,
            z,
            fixed,
            mean,
            variance,
            u,
            chosen,
            ambiguous,
            output,
            stored_output,
        }
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
        let ambiguous: Vec<bool> = pass
            .chosen
            .iter()
            .map(|[first, second]| first != second || pass.ambiguous[*first])
            .collect();
        let each = ambiguous.len() / pass.output.len();
        ambiguous.chunks_exact(each).map(|any| any.contains(&true)).collect()
    }

    /// The backward pass, optionally with the ambiguous decisions `flipped`.
    pub fn backward(&self, output_gradient: &[f64], flipped: bool) -> NaiveGradients {
        let len = self.passes.len();
        let mut gradients: Vec<Vec<f64>> =
            self.passes.iter().map(|pass| vec![0.0; pass.output.len()]).collect();
        gradients[len - 1] = output_gradient.to_vec();
        let mut images = None;
        let mut units = Vec::new();
        for index in (0..len).rev() {
            // The gradient of a projection is that of the sum, which is not rounded.
            let is_read = (index..len).any(|reader| self.stack.source(reader) == Some(index));
            let precision = if is_read { self.precision } else { Precision::F32 };
            let gradient = rounded(precision, &gradients[index]);
            let (unit, input, added) = self.unit_backward(index, &gradient, flipped);
            units.insert(0, unit);
            let mut add = |unit: usize, terms: &[f64]| {
                gradients[unit].iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
            };
            if let Some(addend) = self.stack.addend(index) {
                add(addend, &added);
            }
            match self.stack.source(index) {
                Some(source) => add(source, &input.values),
                None => images = Some(input),
            }
        }
        NaiveGradients { images: images.expect("the first unit reads them"), units }
    }

    /// The gradients of a unit's parameters, of its input, and of what it adds.
    fn unit_backward(
        &self,
        index: usize,
        output_gradient: &[f64],
        flipped: bool,
    ) -> (NaiveUnitGradients, Expected, Vec<f64>) {
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
        let each = pass.chosen.len() / pass.output.len();
        for (index, chosen) in pass.chosen.iter().enumerate() {
            da[chosen[usize::from(flipped)]] += output_gradient[index / each] / each as f64;
        }
        if unit.pool == Pool::Average {
            da = rounded(self.precision, &da);
        }
        let below = |index: usize| (pass.u[index] <= 0.0) != (flipped && pass.ambiguous[index]);
        let slope = sum(
            unit.has_slopes(),
            (0..len).map(|i| if below(i) { da[i] * pass.u[i] } else { 0.0 }).collect(),
        );
        let du: Vec<f64> = filters()
            .enumerate()
            .map(|(i, f)| match unit.activation {
                Activation::Prelu if below(i) => da[i] * values.slope[f],
                Activation::Relu if below(i) => 0.0,
                _ => da[i],
            })
            .collect();
        let added = match unit.shortcut.map(|shortcut| shortcut.order) {
            Some(ShortcutOrder::BeforeActivation) => du.clone(),
            _ => da.clone(),
        };

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
        let convolution = convolution(unit, self.stack.unit_input(index));
        if self.uses_winograd(index) {
            let (precision, weights) = (self.precision, &values.weight);
            weight = winograd::weight_gradient(&convolution, precision, &pass.input, &dz);
            input = winograd::input_gradient(&convolution, precision, weights, &dz);
        } else {
            convolution.products(self.batch, |o, k, i| {
                weight[k] += dz[o] * pass.input[i];
                input[i] += dz[o] * values.weight[k];
            });
        }
        let weight = Expected { values: weight, usual: bias.usual * rms(&pass.input) };
        if unit.norm && !pass.fixed {
            // Batch norm cancels the bias: only the rounding errors of many terms remain.
            bias.usual = largest(&sum_by_filter(dz.iter().map(|dz| dz.abs()), shape, len));
        }
        let usual =
            rms(&dz) * rms(&values.weight) * ((unit.kernel[0] * unit.kernel[1]) as f64).sqrt();
        let gradients = NaiveUnitGradients { weight, bias, gamma, beta, slope };
        (gradients, Expected { values: input, usual }, added)
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
