//! Stacks of units, their parameters, and the validation of both.

use super::unit::{Pool, Unit};

/// The largest allowed height, width, padding or number of filters.
const MAX_SIZE: usize = 1 << 20;
/// The largest allowed number of elements of an image, a feature map or a weight.
const MAX_ELEMENTS: usize = 1 << 40;

/// Why a stack or its arguments are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StackError {
    /// No units, or empty images.
    #[error("a stack needs at least one unit, and images of at least one channel and pixel")]
    Empty,
    /// A unit has a size of zero, or a stride other than 1 and 2.
    #[error(
        "unit {unit} of the stack needs at least one filter, a kernel of at least 1x1 and a stride of 1 or 2"
    )]
    Unit {
        /// Its index in the stack.
        unit: usize,
    },
    /// The kernel is larger than the padded input.
    #[error(
        "the {}x{} kernel of unit {unit} does not fit its input of {}x{} pixels with a padding of {padding}",
        kernel[0], kernel[1], input[0], input[1]
    )]
    Kernel {
        /// Its index in the stack.
        unit: usize,
        /// Height and width of the kernel.
        kernel: [usize; 2],
        /// Height and width of the input.
        input: [usize; 2],
        /// Zero padding on every side.
        padding: usize,
    },
    /// A unit reads or adds an output that it cannot.
    #[error("unit {unit} of the stack {problem}")]
    Graph {
        /// Its index in the stack.
        unit: usize,
        /// What is wrong.
        problem: GraphProblem,
    },
    /// A size is too large.
    #[error(
        "unit {unit} of the stack is too large: a size is at most {MAX_SIZE}, and an image or a weight has at most {MAX_ELEMENTS} elements"
    )]
    Large {
        /// Its index in the stack.
        unit: usize,
    },
    /// A batch has too few images for the number of ranks.
    #[error(
        "a batch of {images} images is {most} blocks of sixteen, which cannot be divided over {ranks} ranks; use at most {most}, or a larger batch"
    )]
    Ranks {
        /// The number of images.
        images: usize,
        /// The largest number of ranks for them.
        most: usize,
        /// The number of ranks.
        ranks: usize,
    },
    /// The images are not a rank's share of the batch.
    #[error("the share of rank {rank} is {expected} images of the batch, but it has {found}")]
    Share {
        /// The rank.
        rank: usize,
        /// The number of images of the share.
        expected: usize,
        /// The number of images given.
        found: usize,
    },
    /// The forward pass was computed by a different stack.
    #[error(
        "the forward pass was computed by a different stack than the one given to the backward pass"
    )]
    OtherStack,
    /// The length of a slice does not match the stack.
    #[error("expected {expected} numbers for {what} of unit {unit}, but got {found}")]
    Length {
        /// Which slice.
        what: &'static str,
        /// The unit's index in the stack.
        unit: usize,
        /// The length that the stack requires.
        expected: usize,
        /// The actual length.
        found: usize,
    },
    /// The images are empty or incomplete.
    #[error(
        "expected one or more images of {channels} x {height} x {width}, but got {found} numbers"
    )]
    Images {
        /// The length of the images.
        found: usize,
        /// Channels per image.
        channels: usize,
        /// Height of an image.
        height: usize,
        /// Width of an image.
        width: usize,
    },
    /// Parameters or statistics of the wrong number of units.
    #[error("the stack has {expected} units, but {what} were given for {found}")]
    Units {
        /// Which argument.
        what: &'static str,
        /// Units of the stack.
        expected: usize,
        /// Units in the argument.
        found: usize,
    },
}

/// What is wrong with the outputs that a unit reads or adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphProblem {
    /// It reads from before the first unit.
    #[error("must read the output of an earlier unit, and the first one the images")]
    Input,
    /// It adds something from before the first unit.
    #[error("must add the output of an earlier unit")]
    Shortcut,
    /// It adds an output of another size.
    #[error(
        "has an output of {}x{}x{}, to which an output of {}x{}x{} cannot be added",
        to[0], to[1], to[2], from[0], from[1], from[2]
    )]
    Shape {
        /// Channels, height and width of what is added.
        from: [usize; 3],
        /// Channels, height and width of the unit's output.
        to: [usize; 3],
    },
    /// It both adds a shortcut and pools.
    #[error("adds a shortcut, so it cannot have max pooling; use a stride of 2 instead")]
    Pooling,
    /// It averages all pixels, but is not the last one.
    #[error("averages all pixels, which only the last one can")]
    Average,
    /// No unit uses its output.
    #[error("has an output that no unit reads or adds")]
    Unused,
    /// Several units add its output, or one adds it before any reads it though one does later.
    #[error("has an output that is added twice, or added before another unit reads it")]
    Order,
    /// Its output is only added, and it adds a shortcut itself.
    #[error("adds a shortcut, so another unit must read its output")]
    Nested,
}

/// The parameters of a unit; empty for those that it does not have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parameters<'a> {
    /// Filters x channels x height x width.
    pub weight: &'a [f32],
    /// One per filter.
    pub bias: &'a [f32],
    /// Batch norm's scale, one per filter.
    pub gamma: &'a [f32],
    /// Batch norm's shift, one per filter.
    pub beta: &'a [f32],
    /// PReLU's slopes, one per filter.
    pub slope: &'a [f32],
}

/// Mean and variance of a unit's channels after its convolution; empty without batch norm.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moments {
    /// One per filter.
    pub mean: Vec<f32>,
    /// One per filter, biased: divided by n, not by n − 1.
    pub variance: Vec<f32>,
}

/// Units with matching sizes, each of which reads the output of an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    input: [usize; 3],
    units: Vec<Unit>,
    /// Who uses each unit's output.
    uses: Vec<Uses>,
    /// Channels, height and width after each unit's convolution, and after its pooling.
    shapes: Vec<[[usize; 3]; 2]>,
}

/// The units that use the output of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Uses {
    /// Those that convolve it, in order.
    pub readers: Vec<usize>,
    /// The one that adds it.
    pub adder: Option<usize>,
}

impl Stack {
    /// A stack of units on images of `input` channels, height and width.
    ///
    /// Every output but the last is read by at least one later unit and added by at most one, which comes after
    /// the first that reads it; or it is only added, as the output of a projection.
    ///
    /// # Errors
    /// When a unit has no filters, a kernel that does not fit its input, a stride other than 1 or 2, or
    /// a size that is too large, or when it reads or adds an output that it cannot.
    pub fn new(input: [usize; 3], units: Vec<Unit>) -> Result<Self, StackError> {
        if units.is_empty() || input.contains(&0) {
            return Err(StackError::Empty);
        }
        let mut shapes: Vec<[[usize; 3]; 2]> = Vec::with_capacity(units.len());
        if !fits(&input) {
            return Err(StackError::Large { unit: 0 });
        }
        let uses = uses(&units)?;
        for (index, unit) in units.iter().enumerate() {
            let [channels, height, width] = match index.checked_sub(unit.from) {
                Some(source) => shapes[source][1],
                None => input,
            };
            let size = [height, width];
            if unit.filters == 0 || unit.kernel.contains(&0) || !(1..=2).contains(&unit.stride) {
                return Err(StackError::Unit { unit: index });
            }
            let large = StackError::Large { unit: index };
            let sides = [unit.filters, unit.kernel[0], unit.kernel[1], unit.padding];
            if sides.into_iter().chain(size).any(|side| side > MAX_SIZE) {
                return Err(large);
            }
            let padded = size.map(|side| side + 2 * unit.padding);
            if unit.kernel[0] > padded[0] || unit.kernel[1] > padded[1] {
                return Err(StackError::Kernel {
                    unit: index,
                    kernel: unit.kernel,
                    input: size,
                    padding: unit.padding,
                });
            }
            let after = |side: usize| (padded[side] - unit.kernel[side]) / unit.stride + 1;
            let convolved = [after(0), after(1)];
            let pooled = match unit.pool {
                Pool::None => convolved,
                Pool::Max => convolved.map(|side| side.div_ceil(2)),
                Pool::Average => [1, 1],
            };
            let map = [unit.filters, convolved[0], convolved[1]];
            let weight = [unit.filters, channels, unit.kernel[0], unit.kernel[1]];
            if !fits(&map) || !fits(&weight) {
                return Err(large);
            }
            if let Some(shortcut) = unit.shortcut {
                let from = shapes[index - shortcut.from][1];
                if from != map {
                    let problem = GraphProblem::Shape { from, to: map };
                    return Err(StackError::Graph { unit: index, problem });
                }
            }
            shapes.push([map, [unit.filters, pooled[0], pooled[1]]]);
        }
        Ok(Self { input, units, uses, shapes })
    }

    /// Channels, height and width of an image.
    pub fn input(&self) -> [usize; 3] {
        self.input
    }

    /// The units, first to last.
    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    /// Channels, height and width of a unit's input.
    pub fn unit_input(&self, unit: usize) -> [usize; 3] {
        self.source(unit).map_or(self.input, |source| self.shapes[source][1])
    }

    /// The unit whose output a unit reads; none for the first, which reads the images.
    pub fn source(&self, unit: usize) -> Option<usize> {
        unit.checked_sub(self.units[unit].from)
    }

    /// The unit whose output a unit adds.
    pub fn addend(&self, unit: usize) -> Option<usize> {
        Some(unit - self.units[unit].shortcut?.from)
    }

    pub(super) fn uses(&self, unit: usize) -> &Uses {
        &self.uses[unit]
    }

    /// Channels, height and width after a unit's convolution.
    pub fn convolved(&self, unit: usize) -> [usize; 3] {
        self.shapes[unit][0]
    }

    /// Channels, height and width of a unit's output.
    pub fn unit_output(&self, unit: usize) -> [usize; 3] {
        self.shapes[unit][1]
    }

    /// Channels, height and width of the stack's output.
    pub fn output(&self) -> [usize; 3] {
        self.unit_output(self.units.len() - 1)
    }

    /// The number of elements of a unit's weight.
    pub fn weight_len(&self, unit: usize) -> usize {
        let Unit { filters, kernel, .. } = self.units[unit];
        filters * self.unit_input(unit)[0] * kernel[0] * kernel[1]
    }

    /// Multiply-adds of a unit's convolution per image, including those with padding.
    pub fn multiply_adds(&self, unit: usize) -> u64 {
        let [_, height, width] = self.convolved(unit);
        self.weight_len(unit) as u64 * (height * width) as u64
    }

    /// The number of images in `images`.
    pub(super) fn images(&self, images: &[f32]) -> Result<usize, StackError> {
        let [channels, height, width] = self.input;
        let size = channels * height * width;
        if images.is_empty() || !images.len().is_multiple_of(size) {
            return Err(StackError::Images { found: images.len(), channels, height, width });
        }
        Ok(images.len() / size)
    }

    pub(super) fn check(&self, parameters: &[Parameters<'_>]) -> Result<(), StackError> {
        self.check_count("parameters", parameters.len())?;
        for (index, (unit, given)) in self.units.iter().zip(parameters).enumerate() {
            let expect = |what, wanted: bool, expected, found: &[f32]| {
                expect(what, index, if wanted { expected } else { 0 }, found)
            };
            expect("the weight", true, self.weight_len(index), given.weight)?;
            expect("the bias", unit.bias, unit.filters, given.bias)?;
            expect("gamma", unit.norm, unit.filters, given.gamma)?;
            expect("beta", unit.norm, unit.filters, given.beta)?;
            expect("the slopes", unit.has_slopes(), unit.filters, given.slope)?;
        }
        Ok(())
    }

    pub(super) fn check_moments(&self, moments: &[Moments]) -> Result<(), StackError> {
        self.check_count("statistics", moments.len())?;
        moments.iter().enumerate().try_for_each(|(index, given)| self.check_unit(index, given))
    }

    /// Checks the statistics of the units that have them.
    pub(super) fn check_fixed(&self, fixed: &[Option<Moments>]) -> Result<(), StackError> {
        self.check_count("statistics", fixed.len())?;
        let given =
            fixed.iter().enumerate().filter_map(|(index, fixed)| Some((index, fixed.as_ref()?)));
        given.into_iter().try_for_each(|(index, given)| self.check_unit(index, given))
    }

    fn check_unit(&self, index: usize, given: &Moments) -> Result<(), StackError> {
        let unit = self.units[index];
        let expected = if unit.norm { unit.filters } else { 0 };
        expect("the mean", index, expected, &given.mean)?;
        expect("the variance", index, expected, &given.variance)
    }

    fn check_count(&self, what: &'static str, found: usize) -> Result<(), StackError> {
        let expected = self.units.len();
        if found == expected { Ok(()) } else { Err(StackError::Units { what, expected, found }) }
    }
}

/// Who uses each unit's output.
fn uses(units: &[Unit]) -> Result<Vec<Uses>, StackError> {
    let mut uses = vec![Uses::default(); units.len()];
    let last = units.len() - 1;
    for (index, unit) in units.iter().enumerate() {
        let wrong = |problem| StackError::Graph { unit: index, problem };
        match index.checked_sub(unit.from) {
            Some(source) if unit.from > 0 => uses[source].readers.push(index),
            None if index == 0 && unit.from == 1 => {}
            _ => return Err(wrong(GraphProblem::Input)),
        }
        if unit.pool == Pool::Average && index != last {
            return Err(wrong(GraphProblem::Average));
        }
        let Some(shortcut) = unit.shortcut else { continue };
        if unit.pool == Pool::Max {
            return Err(wrong(GraphProblem::Pooling));
        }
        let addend = index.checked_sub(shortcut.from).filter(|addend| *addend < index);
        let addend = addend.ok_or(wrong(GraphProblem::Shortcut))?;
        if uses[addend].adder.replace(index).is_some() {
            return Err(StackError::Graph { unit: addend, problem: GraphProblem::Order });
        }
    }
    for (unit, Uses { readers, adder }) in uses[..last].iter().enumerate() {
        let problem = match (readers.first(), adder) {
            (None, None) => GraphProblem::Unused,
            (None, Some(_)) if units[unit].shortcut.is_some() => GraphProblem::Nested,
            (Some(reader), Some(adder)) if adder <= reader => GraphProblem::Order,
            _ => continue,
        };
        return Err(StackError::Graph { unit, problem });
    }
    Ok(uses)
}

/// Whether the number of elements is allowed.
fn fits(sides: &[usize]) -> bool {
    let product = sides.iter().try_fold(1usize, |product, side| product.checked_mul(*side));
    product.is_some_and(|product| product <= MAX_ELEMENTS)
}

fn expect(
    what: &'static str,
    unit: usize,
    expected: usize,
    found: &[f32],
) -> Result<(), StackError> {
    match found.len() {
        found if found == expected => Ok(()),
        found => Err(StackError::Length { what, unit, expected, found }),
    }
}
