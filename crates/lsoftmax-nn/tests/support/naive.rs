//! A unit in f64, by its definition: one loop a sum, every pixel on its own.

use lsoftmax_nn::ConvUnitConfig;

use super::Numbers;

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
        Self { shape, numbers: Numbers::new(seed).vec(shape.iter().product()) }
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

/// Parameters and running statistics of a unit; what it has not is empty.
#[derive(Clone, Debug)]
pub struct Naive {
    pub config: ConvUnitConfig,
    pub weight: Vec<f64>,
    pub bias: Vec<f64>,
    pub gamma: Vec<f64>,
    pub beta: Vec<f64>,
    pub slope: Vec<f64>,
    pub mean: Vec<f64>,
    pub variance: Vec<f64>,
}

impl Naive {
    pub fn random(config: &ConvUnitConfig, seed: u64) -> Self {
        let mut numbers = Numbers::new(seed);
        let ConvUnitConfig { channels, filters, kernel: [height, width], .. } = *config;
        let mut vector =
            |wanted: bool, low, high| numbers.within(if wanted { filters } else { 0 }, low, high);
        let (bias, beta) = (vector(config.bias, -1.0, 1.0), vector(config.norm, -0.5, 0.5));
        let (gamma, slope) = (vector(config.norm, 0.5, 1.5), vector(config.prelu, -0.1, 0.5));
        let (mean, variance) = (vector(config.norm, -1.0, 1.0), vector(config.norm, 0.5, 2.0));
        let weight = numbers.vec(filters * channels * height * width);
        Self { config: config.clone(), weight, bias, gamma, beta, slope, mean, variance }
    }

    /// The parts that are learned, with their names.
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
        let ConvUnitConfig { filters, kernel: [kh, kw], padding, stride, .. } = self.config;
        let [images, channels, height, width] = input.shape;
        let side = |side: usize, kernel: usize| (side + 2 * padding - kernel) / stride + 1;
        let shape = [images, filters, side(height, kh), side(width, kw)];
        Images::from_fn(shape, |[n, f, y, x]| {
            let mut sum = self.bias.get(f).copied().unwrap_or(0.0);
            for c in 0..channels {
                for i in 0..kh {
                    for j in 0..kw {
                        // In the padded image; in the image itself it is `padding` less.
                        let (row, column) = (y * stride + i, x * stride + j);
                        let inside = (padding..padding + height).contains(&row)
                            && (padding..padding + width).contains(&column);
                        if inside {
                            let weight = self.weight[((f * channels + c) * kh + i) * kw + j];
                            sum += weight * input.at([n, c, row - padding, column - padding]);
                        }
                    }
                }
            }
            sum
        })
    }

    /// The unit, with the batch's statistics when `training`, else with the running ones.
    pub fn forward(&self, input: &Images, training: bool) -> Images {
        let convolved = self.convolve(input);
        let (mean, variance) = match training && self.config.norm {
            true => (0..self.config.filters).map(|c| moments(&convolved.channel(c))).unzip(),
            false => (self.mean.clone(), self.variance.clone()),
        };
        let activated = Images::from_fn(convolved.shape, |index| {
            let (c, mut u) = (index[1], convolved.at(index));
            if self.config.norm {
                let scale = self.gamma[c] / (variance[c] + EPSILON).sqrt();
                u = (u - mean[c]) * scale + self.beta[c];
            }
            if self.config.prelu && u < 0.0 { self.slope[c] * u } else { u }
        });
        if self.config.pool { pool(&activated) } else { activated }
    }
}

/// Mean and variance, the latter divided by the count.
pub fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    (mean, values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count)
}

fn pool(input: &Images) -> Images {
    let [images, channels, height, width] = input.shape;
    let shape = [images, channels, (height + 1) / 2, (width + 1) / 2];
    Images::from_fn(shape, |[n, c, y, x]| {
        let rows = 2 * y..(2 * y + 2).min(height);
        let pixels = rows.flat_map(|row| (2 * x..(2 * x + 2).min(width)).map(move |x| (row, x)));
        pixels.map(|(y, x)| input.at([n, c, y, x])).fold(f64::NEG_INFINITY, f64::max)
    })
}
