//! Random stacks, run on every path and compared with the naive version.

use lsoftmax_kernels::conv::{
    Activation, GradientsTo, Moments, Parameters, Pool, Shortcut, ShortcutOrder, Stack,
    StackForward, StackGradients, Unit, backward, forward_with_fixed, infer,
};
use lsoftmax_kernels::{Engine, KernelPath, Precision};
use lsoftmax_testing::{Congruential, largest};

use super::{Expected, NaiveParameters, NaiveStack, rms, round, winograd};
use crate::engines::engines;

/// The tolerance in bf16 per unit, relative to the root mean square. The relative error of rounding is
/// at most 2^-9. The naive version rounds where the kernels do, except that they need not round what is
/// not stored.
const BF16_TOLERANCE: f64 = 1.0 / 512.0;
/// The tolerance in f32 per unit, relative to the largest number.
const F32_TOLERANCE: f64 = 1e-5;
/// The most multiply-adds, including padding to whole blocks, for an emulated path.
const EMULATED_WORK: usize = 6_000_000;

/// A unit with batch norm and PReLU.
pub fn unit(filters: usize, kernel: [usize; 2], padding: usize) -> Unit {
    Unit { kernel, padding, ..Unit::new(filters) }
}

/// A convolution only.
pub fn bare(filters: usize, kernel: [usize; 2], padding: usize) -> Unit {
    Unit { norm: false, activation: Activation::None, ..unit(filters, kernel, padding) }
}

/// With pooling.
pub fn pooled(unit: Unit) -> Unit {
    Unit { pool: Pool::Max, ..unit }
}

/// With a stride of 2.
pub fn strided(unit: Unit) -> Unit {
    Unit { stride: 2, ..unit }
}

/// With a bias in place of batch norm.
pub fn biased(unit: Unit) -> Unit {
    Unit { bias: true, norm: false, ..unit }
}

/// With the output of an earlier unit added before its activation.
pub fn added(unit: Unit, from: usize) -> Unit {
    let order = ShortcutOrder::BeforeActivation;
    Unit { shortcut: Some(Shortcut { from, order }), ..unit }
}

/// With the output of an earlier unit added after its activation.
pub fn added_after(unit: Unit, from: usize) -> Unit {
    let order = ShortcutOrder::AfterActivation;
    Unit { shortcut: Some(Shortcut { from, order }), ..unit }
}

/// The parameters of a unit.
#[derive(Clone, Debug)]
pub struct OwnedParameters {
    pub weight: Vec<f32>,
    pub bias: Vec<f32>,
    pub gamma: Vec<f32>,
    pub beta: Vec<f32>,
    pub slope: Vec<f32>,
}

impl OwnedParameters {
    fn parameters(&self) -> Parameters<'_> {
        let Self { weight, bias, gamma, beta, slope } = self;
        Parameters { weight, bias, gamma, beta, slope }
    }
}

/// A stack, its parameters and its images.
#[derive(Clone, Debug)]
pub struct ConvCase {
    pub stack: Stack,
    pub batch: usize,
    pub images: Vec<f32>,
    pub units: Vec<OwnedParameters>,
    pub output_gradient: Vec<f32>,
    /// Statistics for inference, different from those of the batch.
    pub moments: Vec<Moments>,
    /// Whether each unit uses those in training, too.
    pub fixed: Vec<bool>,
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

impl ConvCase {
    /// Random numbers for `batch` images of channels, height and width.
    pub fn new(batch: usize, input: [usize; 3], units: &[Unit]) -> Self {
        let stack = Stack::new(input, units.to_vec()).unwrap();
        let mut numbers = Congruential(batch as u64 * 31 + input.iter().product::<usize>() as u64);
        let mut owned = Vec::new();
        let mut moments = Vec::new();
        for (index, unit) in units.iter().enumerate() {
            let len = stack.weight_len(index);
            let some = |wanted: bool| if wanted { unit.filters } else { 0 };
            owned.push(OwnedParameters {
                weight: numbers.singles(len, 0.0, (3.0 * unit.filters as f32 / len as f32).sqrt()),
                bias: numbers.singles(some(unit.bias), 0.1, 0.5),
                gamma: numbers.singles(some(unit.norm), 0.7, 1.0),
                beta: numbers.singles(some(unit.norm), 0.1, 0.5),
                slope: numbers.singles(some(unit.has_slopes()), 0.25, 0.5),
            });
            moments.push(Moments {
                mean: numbers.singles(some(unit.norm), 0.1, 0.5),
                variance: numbers.singles(some(unit.norm), 1.0, 0.8),
            });
        }
        let images = numbers.singles(batch * input.iter().product::<usize>(), 0.1, 1.7);
        let outputs = batch * stack.output().iter().product::<usize>();
        let output_gradient = numbers.singles(outputs, 0.05, 1.0);
        let fixed = vec![false; units.len()];
        Self { stack, batch, images, units: owned, output_gradient, moments, fixed }
    }

    pub fn parameters(&self) -> Vec<Parameters<'_>> {
        self.units.iter().map(OwnedParameters::parameters).collect()
    }

    /// With statistics that training does not change in the given units.
    pub fn with_fixed(mut self, units: &[usize]) -> Self {
        units.iter().for_each(|unit| self.fixed[*unit] = true);
        self
    }

    /// The naive version, in inference or in training, without Winograd's algorithm.
    pub fn naive(&self, precision: Precision, inference: bool) -> NaiveStack<'_> {
        self.naive_of(precision, false, inference)
    }

    fn naive_of(&self, precision: Precision, winograd: bool, inference: bool) -> NaiveStack<'_> {
        let values = |unit: &OwnedParameters| NaiveParameters {
            weight: wide(&unit.weight),
            bias: wide(&unit.bias),
            gamma: wide(&unit.gamma),
            beta: wide(&unit.beta),
            slope: wide(&unit.slope),
        };
        let units: Vec<NaiveParameters> = self.units.iter().map(values).collect();
        let given = self.moments.iter().zip(&self.fixed);
        let given: Vec<_> =
            given.map(|(moments, fixed)| (inference || *fixed).then_some(moments)).collect();
        NaiveStack::forward(&self.stack, &units, &wide(&self.images), precision, winograd, &given)
    }

    /// A training step through the kernels.
    pub fn train(&self, engine: Engine) -> (StackForward, StackGradients) {
        let parameters = self.parameters();
        let fixed = self.moments.iter().zip(&self.fixed);
        let fixed: Vec<_> = fixed.map(|(moments, fixed)| fixed.then(|| moments.clone())).collect();
        let pass =
            forward_with_fixed(engine, &self.stack, &self.images, &parameters, &fixed).unwrap();
        let gradient = &self.output_gradient;
        let gradients =
            backward(&pass, &self.stack, &self.images, &parameters, gradient, GradientsTo::Images)
                .unwrap();
        (pass, gradients)
    }

    /// Inference through the kernels.
    pub fn infer(&self, engine: Engine) -> Vec<f32> {
        infer(engine, &self.stack, &self.images, &self.parameters(), &self.moments)
            .unwrap()
            .to_vec()
    }

    /// Compares every path with the naive version: output, statistics, gradients and inference.
    pub fn check(&self) {
        // In bf16, Winograd's algorithm rounds other numbers. AMX does not use it.
        let uses_winograd =
            |e: &Engine| e.precision() == Precision::Bf16 && e.path() != KernelPath::Amx;
        let engines: Vec<Engine> =
            engines().into_iter().filter(|e| !self.is_too_slow(*e)).collect();
        let roundings =
            [(Precision::F32, false), (Precision::Bf16, true), (Precision::Bf16, false)];
        for (precision, winograd) in roundings {
            let rounds = |e: &&Engine| e.precision() == precision && uses_winograd(e) == winograd;
            let engines: Vec<Engine> = engines.iter().filter(rounds).copied().collect();
            if engines.is_empty() {
                continue;
            }
            let mut case = self.clone();
            let naive = self.naive_of(precision, winograd, false);
            // No gradient where the last PReLU or pooling is ambiguous.
            for (gradient, ambiguous) in
                case.output_gradient.iter_mut().zip(naive.ambiguous_outputs())
            {
                let kept = if ambiguous { 0.0 } else { f64::from(*gradient) };
                *gradient = round(precision, kept) as f32;
            }
            let gradient = wide(&case.output_gradient);
            let expected = naive.backward(&gradient, false);
            let flipped = (self.units.len() > 1).then(|| naive.backward(&gradient, true));
            let inferred = self.naive_of(precision, winograd, true).output().to_vec();

            for engine in engines {
                let comparison = Comparison { case: self, engine, winograd };
                let (pass, found) = case.train(engine);
                comparison.plain("output", &pass.output, naive.output());
                for (unit, (mean, variance)) in naive.moments().enumerate() {
                    let usual = largest(variance).sqrt();
                    let mean = Expected { values: mean.to_vec(), usual };
                    comparison.agree(
                        &format!("mean {unit}"),
                        &pass.moments[unit].mean,
                        &mean,
                        None,
                    );
                    let name = format!("variance {unit}");
                    comparison.plain(&name, &pass.moments[unit].variance, variance);
                }
                for (index, (found, expected)) in
                    found.units.iter().zip(&expected.units).enumerate()
                {
                    let flipped = flipped.as_ref().map(|flipped| &flipped.units[index]);
                    macro_rules! agree {
                        ($($field:ident)*) => {$(
                            let name = format!("{} gradient {index}", stringify!($field));
                            let other = flipped.map(|flipped| &flipped.$field);
                            comparison.agree(&name, &found.$field, &expected.$field, other);
                        )*};
                    }
                    agree!(weight bias gamma beta slope);
                }
                let images = found.images.as_ref().expect("wanted");
                let flipped = flipped.as_ref().map(|flipped| &flipped.images);
                comparison.agree("image gradient", images, &expected.images, flipped);
                comparison.plain("inferred output", &case.infer(engine), &inferred);
            }
        }
    }

    /// Whether the path is emulated and the case too large for emulation.
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

/// A comparison with the naive version; case and engine are for the message.
struct Comparison<'a> {
    case: &'a ConvCase,
    engine: Engine,
    winograd: bool,
}

impl Comparison<'_> {
    /// The number of units by which the tolerance grows. In Winograd's algorithm an input that is rounded differently changes
    /// the rounding of a whole tile, so such a unit counts three times.
    fn depth(&self) -> usize {
        let stack = &self.case.stack;
        let tiled = |index: &usize| self.winograd && winograd::computes(stack, *index);
        stack.units().len() + 2 * (0..stack.units().len()).filter(tiled).count()
    }

    fn plain(&self, what: &str, found: &[f32], expected: &[f64]) {
        let expected = Expected { values: expected.to_vec(), usual: 0.0 };
        self.agree(what, found, &expected, None);
    }

    /// In f32 every number must agree, within a fraction of the largest. In bf16, where roundings may
    /// differ, the tensor as a whole must. The effect of ambiguous decisions is added to the tolerance.
    fn agree(&self, what: &str, found: &[f32], expected: &Expected, flipped: Option<&Expected>) {
        let Expected { values, usual } = expected;
        let name = || {
            let ConvCase { stack, batch, .. } = self.case;
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
        let depth = self.depth() as f64;
        let flipped = flipped.map_or(values, |flipped| &flipped.values);
        let open: Vec<f64> = values.iter().zip(flipped).map(|(v, t)| (v - t).abs()).collect();
        let errors: Vec<f64> =
            found.iter().zip(values).map(|(f, v)| (f64::from(*f) - v).abs()).collect();
        match self.engine.precision() {
            Precision::F32 => {
                let allowed = F32_TOLERANCE * depth * largest(values).max(*usual);
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
            _ => {
                let scale = rms(values).max(*usual);
                let (error, most) = (rms(&errors), BF16_TOLERANCE * depth * scale + rms(&open));
                assert!(error <= most, "{}\nis off by {error:e} > {most:e} of {scale:e}", name());
            }
        }
    }
}
