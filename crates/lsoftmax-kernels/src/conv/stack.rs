//! Stacks of units, their parameters, and the validation of both.

/// One unit: a convolution, optionally followed by batch norm, PReLU and max pooling, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Output channels.
    pub filters: usize,
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
    /// Zero padding on every side of the input.
    pub padding: usize,
    /// Stride of the convolution: 1 or 2.
    pub stride: usize,
    /// Whether the convolution adds a bias.
    pub bias: bool,
    /// Whether batch norm follows.
    pub norm: bool,
    /// Whether PReLU follows, with one slope per filter.
    pub prelu: bool,
    /// Whether 2x2 max pooling of stride 2 follows; half an odd size is rounded up, as in Caffe.
    pub pool: bool,
}

impl Unit {
    /// A 3x3 convolution with padding 1, batch norm and PReLU.
    pub fn new(filters: usize) -> Self {
        Self {
            filters,
            kernel: [3, 3],
            padding: 1,
            stride: 1,
            bias: false,
            norm: true,
            prelu: true,
            pool: false,
        }
    }
}

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
    /// The images are not this rank's share of the batch.
    #[error("this rank's share of the batch is {expected} images, but {found} were given")]
    Share {
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

/// A chain of units with matching sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    input: [usize; 3],
    units: Vec<Unit>,
    /// Channels, height and width after each unit's convolution, and after its pooling.
    shapes: Vec<[[usize; 3]; 2]>,
}

impl Stack {
    /// A stack of units on images of `input` channels, height and width.
    ///
    /// # Errors
    /// When a unit has no filters, a kernel that does not fit its input, a stride other than 1 or 2, or
    /// a size that is too large.
    pub fn new(input: [usize; 3], units: Vec<Unit>) -> Result<Self, StackError> {
        if units.is_empty() || input.contains(&0) {
            return Err(StackError::Empty);
        }
        let mut shapes = Vec::with_capacity(units.len());
        if !fits(&input) {
            return Err(StackError::Large { unit: 0 });
        }
        let mut channels = input[0];
        let mut size = [input[1], input[2]];
        for (index, unit) in units.iter().enumerate() {
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
            size = if unit.pool { convolved.map(|side| side.div_ceil(2)) } else { convolved };
            let map = [unit.filters, convolved[0], convolved[1]];
            let weight = [unit.filters, channels, unit.kernel[0], unit.kernel[1]];
            if !fits(&map) || !fits(&weight) {
                return Err(large);
            }
            channels = unit.filters;
            shapes.push([map, [unit.filters, size[0], size[1]]]);
        }
        Ok(Self { input, units, shapes })
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
        if unit == 0 { self.input } else { self.shapes[unit - 1][1] }
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
            expect("the slopes", unit.prelu, unit.filters, given.slope)?;
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
