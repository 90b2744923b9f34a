//! A naive implementation of a unit in f64, by its definition.

use lsoftmax_nn::{Activation, Pool, Unit};
use lsoftmax_testing::{Congruential, Convolution};

/// Batch norm's ε: the f32 nearest to 1e-5.
const EPSILON: f64 = 1e-5_f32 as f64;

/// A batch of images, `[images, channels, height, width]`.
#[derive(Clone, Debug)]
pub struct Images {
    pub shape: [usize; 4],
    pub numbers: Vec<f64>,
}

impl Images {
    pub fn random(shape: [usize; 4], seed: u64) -> Self {
        Self { shape, numbers: Congruential::seeded(seed).doubles(shape.iter().product()) }
    }

    fn at(&self, [n, c, y, x]: [usize; 4]) -> f64 {
        let [_, channels, height, width] = self.shape;
        self.numbers[((n * channels + c) * height + y) * width + x]
    }

    /// Images of a shape from a function of their index.
    fn from_fn(shape: [usize; 4], mut value: impl FnMut([usize; 4]) -> f64) -> Self {
        let [images, channels, height, width] = shape;
        let mut numbers = Vec::with_capacity(shape.iter().product());
        for n in 0..images {
            for c in 0..channels {
                for y in 0..height {
                    for x in 0..width {
                        numbers.push(value([n, c, y, x]));
                    }
                }
            }
        }
        Self { shape, numbers }
    }

    /// All values of a channel.
    pub fn channel(&self, c: usize) -> Vec<f64> {
        let [_, channels, height, width] = self.shape;
        let maps = self.numbers.chunks_exact(height * width).enumerate();
        maps.filter(|(i, _)| i % channels == c).flat_map(|(_, map)| map.to_vec()).collect()
    }
}

/// Parameters and running statistics of a unit; those that it does not have are empty.
#[derive(Clone, Debug)]
pub struct Naive {
    pub channels: usize,
    pub unit: Unit,
    pub weight: Vec<f64>,
    pub bias: Vec<f64>,
    pub gamma: Vec<f64>,
    pub beta: Vec<f64>,
    pub slope: Vec<f64>,
    pub mean: Vec<f64>,
    pub variance: Vec<f64>,
}

impl Naive {
    pub fn random(channels: usize, unit: Unit, seed: u64) -> Self {
        let mut numbers = Congruential::seeded(seed);
        let Unit { filters, kernel: [height, width], bias, norm, .. } = unit;
        let mut vector = |wanted: bool, low, high| {
            numbers.doubles_within(if wanted { filters } else { 0 }, low, high)
        };
        let (bias, beta) = (vector(bias, -1.0, 1.0), vector(norm, -0.5, 0.5));
        let (gamma, slope) = (vector(norm, 0.5, 1.5), vector(unit.has_slopes(), -0.1, 0.5));
        let (mean, variance) = (vector(norm, -1.0, 1.0), vector(norm, 0.5, 2.0));
        let weight = numbers.doubles(filters * channels * height * width);
        Self { channels, unit, weight, bias, gamma, beta, slope, mean, variance }
    }

    /// The trainable parameters, with their names.
    pub fn parts_mut(&mut self) -> [(&'static str, &mut Vec<f64>); 5] {
        [
            ("weight", &mut self.weight),
            ("bias", &mut self.bias),
            ("gamma", &mut self.gamma),
            ("beta", &mut self.beta),
            ("slope", &mut self.slope),
        ]
    }

    pub fn convolve(&self, input: &Images) -> Images {
        let Unit { filters, kernel, padding, stride, .. } = self.unit;
        let [images, channels, height, width] = input.shape;
        let input_shape = [channels, height, width];
        let convolution = Convolution { input: input_shape, filters, kernel, padding, stride };
        let [_, rows, columns] = convolution.output();
        let bias = |filter: usize| self.bias.get(filter).copied().unwrap_or(0.0);
        let mut output = Images::from_fn([images, filters, rows, columns], |[_, f, ..]| bias(f));
        convolution.products(images, |o, weight, i| {
            output.numbers[o] += self.weight[weight] * input.numbers[i];
        });
        output
    }

    /// Computes the unit, with the batch's statistics if `training`, else with the running ones.
    pub fn forward(&self, input: &Images, training: bool) -> Images {
        let convolved = self.convolve(input);
        let (mean, variance) = match training && self.unit.norm {
            true => (0..self.unit.filters).map(|c| moments(&convolved.channel(c))).unzip(),
            false => (self.mean.clone(), self.variance.clone()),
        };
        let activated = Images::from_fn(convolved.shape, |index| {
            let (c, mut u) = (index[1], convolved.at(index));
            if self.unit.norm {
                let scale = self.gamma[c] / (variance[c] + EPSILON).sqrt();
                u = (u - mean[c]) * scale + self.beta[c];
            }
            match self.unit.activation {
                Activation::Prelu if u < 0.0 => self.slope[c] * u,
                Activation::Relu => u.max(0.0),
                _ => u,
            }
        });
        match self.unit.pool {
            Pool::None => activated,
            Pool::Max => pool(&activated),
            Pool::Average => average(&activated),
        }
    }
}

/// Mean and variance, the latter divided by the count.
pub fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    (mean, values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count)
}

fn average(input: &Images) -> Images {
    let [images, channels, height, width] = input.shape;
    Images::from_fn([images, channels, 1, 1], |[n, c, ..]| {
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| [n, c, y, x]));
        pixels.map(|index| input.at(index)).sum::<f64>() / (height * width) as f64
    })
}

fn pool(input: &Images) -> Images {
    let [images, channels, height, width] = input.shape;
    let shape = [images, channels, height.div_ceil(2), width.div_ceil(2)];
    Images::from_fn(shape, |[n, c, y, x]| {
        let rows = 2 * y..(2 * y + 2).min(height);
        let pixels = rows.flat_map(|row| (2 * x..(2 * x + 2).min(width)).map(move |x| (row, x)));
        pixels.map(|(y, x)| input.at([n, c, y, x])).fold(f64::NEG_INFINITY, f64::max)
    })
}
