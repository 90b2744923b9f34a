//! Random stacks, run on every path and held against the naive version.

use lsoftmax_kernels::conv::{
    Forward, Gradients, Moments, Parameters, Stack, Unit, backward, forward, infer,
};
use lsoftmax_kernels::{Engine, Path, Precision};

use super::{Expected, Naive, Values, largest, rms, round};

/// Of the root mean square, for each unit. Rounding to bf16 is off by 2^-9 at most, and the naive
/// version rounds as the kernels do, but where a number is not kept they need not round.
const BF16: f64 = 1.0 / 512.0;
/// Of the largest number, for each unit.
const F32: f64 = 1e-5;
/// Multiply-adds, with everything padded to whole tiles, that an emulated path may be given.
const EMULATED_WORK: usize = 6_000_000;

/// Every engine of this CPU, and AMX emulated where it is missing.
pub fn engines() -> Vec<Engine> {
    let mut engines = Vec::new();
    for precision in [Precision::F32, Precision::Bf16] {
        for path in Path::ALL.into_iter().filter(|path| path.is_available()) {
            let engine = Engine::at_most(path, precision).unwrap();
            if engine.path() == path {
                engines.push(engine);
            }
        }
    }
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if !Path::Amx.is_available() && Path::Avx512Bf16.is_available() {
        crate::amx_emulator::install();
        // SAFETY: the emulator has just been installed, and AVX-512 BF16 is there.
        engines.push(unsafe { Engine::assume(Path::Amx, Precision::Bf16) });
    }
    engines
}

/// A unit with batch norm and PReLU.
pub fn unit(filters: usize, kernel: [usize; 2], padding: usize) -> Unit {
    Unit { kernel, padding, ..Unit::new(filters) }
}

/// Nothing but the convolution.
pub fn bare(filters: usize, kernel: [usize; 2], padding: usize) -> Unit {
    Unit { norm: false, prelu: false, ..unit(filters, kernel, padding) }
}

/// With pooling.
pub fn pooled(unit: Unit) -> Unit {
    Unit { pool: true, ..unit }
}

/// With a stride of 2.
pub fn strided(unit: Unit) -> Unit {
    Unit { stride: 2, ..unit }
}

/// With a bias in place of batch norm.
pub fn biased(unit: Unit) -> Unit {
    Unit { bias: true, norm: false, ..unit }
}

/// A fixed sequence of numbers in (−1, 1), good enough to multiply.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 40) as f32 / (1u64 << 23) as f32) - 1.0
    }

    pub fn vec(&mut self, len: usize, centre: f32, spread: f32) -> Vec<f32> {
        (0..len).map(|_| centre + spread * self.next()).collect()
    }
}

/// The parameters of a unit.
#[derive(Clone, Debug)]
pub struct Owned {
    pub weight: Vec<f32>,
    pub bias: Vec<f32>,
    pub gamma: Vec<f32>,
    pub beta: Vec<f32>,
    pub slope: Vec<f32>,
}

impl Owned {
    fn parameters(&self) -> Parameters<'_> {
        let Self { weight, bias, gamma, beta, slope } = self;
        Parameters { weight, bias, gamma, beta, slope }
    }
}

/// A stack, its parameters and its images.
#[derive(Clone, Debug)]
pub struct Case {
    pub stack: Stack,
    pub batch: usize,
    pub images: Vec<f32>,
    pub units: Vec<Owned>,
    pub output_gradient: Vec<f32>,
    /// Statistics for inference, which are not the batch's.
    pub moments: Vec<Moments>,
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

impl Case {
    /// Random numbers for `batch` images of channels, height and width.
    pub fn new(batch: usize, input: [usize; 3], units: &[Unit]) -> Self {
        let stack = Stack::new(input, units.to_vec()).unwrap();
        let mut numbers = Numbers(batch as u64 * 31 + input.iter().product::<usize>() as u64);
        let mut owned = Vec::new();
        let mut moments = Vec::new();
        for (index, unit) in units.iter().enumerate() {
            let len = stack.weight_len(index);
            let some = |wanted: bool| if wanted { unit.filters } else { 0 };
            owned.push(Owned {
                weight: numbers.vec(len, 0.0, (3.0 * unit.filters as f32 / len as f32).sqrt()),
                bias: numbers.vec(some(unit.bias), 0.1, 0.5),
                gamma: numbers.vec(some(unit.norm), 0.7, 1.0),
                beta: numbers.vec(some(unit.norm), 0.1, 0.5),
                slope: numbers.vec(some(unit.prelu), 0.25, 0.5),
            });
            moments.push(Moments {
                mean: numbers.vec(some(unit.norm), 0.1, 0.5),
                variance: numbers.vec(some(unit.norm), 1.0, 0.8),
            });
        }
        let images = numbers.vec(batch * input.iter().product::<usize>(), 0.1, 1.7);
        let outputs = batch * stack.output().iter().product::<usize>();
        let output_gradient = numbers.vec(outputs, 0.05, 1.0);
        Self { stack, batch, images, units: owned, output_gradient, moments }
    }

    pub fn parameters(&self) -> Vec<Parameters<'_>> {
        self.units.iter().map(Owned::parameters).collect()
    }

    /// The naive version, with the batch's statistics or the given.
    pub fn naive(&self, precision: Precision, moments: Option<&[Moments]>) -> Naive<'_> {
        let values = |unit: &Owned| Values {
            weight: wide(&unit.weight),
            bias: wide(&unit.bias),
            gamma: wide(&unit.gamma),
            beta: wide(&unit.beta),
            slope: wide(&unit.slope),
        };
        let units: Vec<Values> = self.units.iter().map(values).collect();
        Naive::forward(&self.stack, &units, &wide(&self.images), precision, moments)
    }

    /// A training step through the kernels.
    pub fn train(&self, engine: Engine) -> (Forward, Gradients) {
        let parameters = self.parameters();
        let pass = forward(engine, &self.stack, &self.images, &parameters).unwrap();
        let gradient = &self.output_gradient;
        let gradients =
            backward(&pass, &self.stack, &self.images, &parameters, gradient, true).unwrap();
        (pass, gradients)
    }

    /// Inference through the kernels.
    pub fn infer(&self, engine: Engine) -> Vec<f32> {
        infer(engine, &self.stack, &self.images, &self.parameters(), &self.moments)
            .unwrap()
            .to_vec()
    }

    /// Holds every path against the naive version: output, statistics, gradients and inference.
    pub fn check(&self) {
        for precision in [Precision::F32, Precision::Bf16] {
            let mut case = self.clone();
            let naive = self.naive(precision, None);
            // No gradient where rounding may choose another way for it.
            for (gradient, close) in case.output_gradient.iter_mut().zip(naive.close_outputs()) {
                let kept = if close { 0.0 } else { f64::from(*gradient) };
                *gradient = round(precision, kept) as f32;
            }
            let gradient = wide(&case.output_gradient);
            let expected = naive.backward(&gradient, false);
            let turned = (self.units.len() > 1).then(|| naive.backward(&gradient, true));
            let inferred = self.naive(precision, Some(&self.moments)).output().to_vec();

            for engine in engines().into_iter().filter(|e| e.precision() == precision) {
                if self.is_too_slow(engine) {
                    continue;
                }
                let hold = Hold { case: self, engine };
                let (pass, found) = case.train(engine);
                hold.plain("output", &pass.output, naive.output());
                for (unit, (mean, variance)) in naive.moments().enumerate() {
                    let usual = largest(variance).sqrt();
                    let mean = Expected { values: mean.to_vec(), usual };
                    hold.agree(&format!("mean {unit}"), &pass.moments[unit].mean, &mean, None);
                    let name = format!("variance {unit}");
                    hold.plain(&name, &pass.moments[unit].variance, variance);
                }
                for (index, (found, expected)) in
                    found.units.iter().zip(&expected.units).enumerate()
                {
                    let turned = turned.as_ref().map(|turned| &turned.units[index]);
                    macro_rules! agree {
                        ($($field:ident)*) => {$(
                            let name = format!("{} gradient {index}", stringify!($field));
                            let other = turned.map(|turned| &turned.$field);
                            hold.agree(&name, &found.$field, &expected.$field, other);
                        )*};
                    }
                    agree!(weight bias gamma beta slope);
                }
                let images = found.images.as_ref().expect("wanted");
                let turned = turned.as_ref().map(|turned| &turned.images);
                hold.agree("image gradient", images, &expected.images, turned);
                hold.plain("inferred output", &case.infer(engine), &inferred);
            }
        }
    }

    /// Whether the path is emulated and the case too large for that.
    pub fn is_too_slow(&self, engine: Engine) -> bool {
        let work = (0..self.units.len()).map(|index| {
            let [_, height, width] = self.stack.convolved(index);
            let unit = self.stack.units()[index];
            let channels = self.stack.unit_input(index)[0].next_multiple_of(32);
            let weight = unit.filters.next_multiple_of(32) * channels;
            weight * unit.kernel[0] * unit.kernel[1] * height * width
        });
        let work = work.sum::<usize>() * self.batch.next_multiple_of(16);
        !engine.path().is_available() && work > EMULATED_WORK
    }
}

/// What is being held against the naive version, for the message.
struct Hold<'a> {
    case: &'a Case,
    engine: Engine,
}

impl Hold<'_> {
    fn plain(&self, what: &str, found: &[f32], expected: &[f64]) {
        let expected = Expected { values: expected.to_vec(), usual: 0.0 };
        self.agree(what, found, &expected, None);
    }

    /// In f32 every number must agree, up to a share of the largest. In bf16, where a rounding may
    /// fall either way, the tensor as a whole must. Beyond that only what close decisions are worth
    /// is allowed.
    fn agree(&self, what: &str, found: &[f32], expected: &Expected, turned: Option<&Expected>) {
        let Expected { values, usual } = expected;
        let name = || {
            let Case { stack, batch, .. } = self.case;
            format!(
                "{what} of {batch} x {:?}, {:?}, {:?}",
                stack.input(),
                stack.units(),
                self.engine
            )
        };
        assert_eq!(found.len(), values.len(), "{}", name());
        if found.is_empty() {
            return;
        }
        let depth = self.case.units.len() as f64;
        let turned = turned.map_or(values, |turned| &turned.values);
        let open: Vec<f64> = values.iter().zip(turned).map(|(v, t)| (v - t).abs()).collect();
        let errors: Vec<f64> =
            found.iter().zip(values).map(|(f, v)| (f64::from(*f) - v).abs()).collect();
        match self.engine.precision() {
            Precision::F32 => {
                let allowed = F32 * depth * largest(values).max(*usual);
                for (i, error) in errors.iter().enumerate() {
                    let (f, v) = (found[i], values[i]);
                    let most = allowed + 2.0 * open[i];
                    assert!(
                        *error <= most,
                        "{}\n[{i}] is {f}, not {v}: off by {error:e} > {most:e}",
                        name()
                    );
                }
            }
            Precision::Bf16 => {
                let scale = rms(values).max(*usual);
                let (error, most) = (rms(&errors), BF16 * depth * scale + rms(&open));
                assert!(error <= most, "{}\nis off by {error:e} > {most:e} of {scale:e}", name());
            }
        }
    }
}
