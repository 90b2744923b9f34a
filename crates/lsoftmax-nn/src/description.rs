//! The description of a network.

use burn::config::Config;
use lsoftmax_kernels::conv::{Stack, Unit};
use serde::{Deserialize, Serialize};

use crate::NetworkError;

/// The description of a [`Network`](crate::Network): stages of convolutions, then the feature layer.
///
/// ```
/// use lsoftmax_nn::NetworkConfig;
/// let config: NetworkConfig = toml::from_str(
///     r#"
///     input = [3, 32, 32]
///     stages = [{ filters = 32, units = 2 }, { filters = 64, units = 2, kernel = 5 }]
///     features = { size = 128 }
///     "#,
/// )?;
/// println!("{}", config.summary()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkConfig {
    /// Channels, height and width of an image.
    pub input: [usize; 3],
    /// The stages, first to last.
    pub stages: Vec<StageConfig>,
    /// The layer after the last stage.
    pub features: FeaturesConfig,
}

impl Config for NetworkConfig {}

/// A sequence of equal convolutions, each with batch norm and PReLU.
///
/// The padding is kernel / 2, which preserves the image size if the kernel is odd and the stride 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageConfig {
    /// The number of output channels of every convolution.
    pub filters: usize,
    /// Height and width of the kernels; 3 by default.
    #[serde(default = "three")]
    pub kernel: usize,
    /// The number of convolutions.
    pub units: usize,
    /// The stride of the first convolution, 1 or 2; 1 by default. The others have 1.
    #[serde(default = "one")]
    pub stride: usize,
    /// Whether 2x2 max pooling of stride 2 ends the stage; true by default.
    #[serde(default = "yes")]
    pub pool: bool,
}

/// The fully connected layer that computes the features.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeaturesConfig {
    /// The number of features.
    pub size: usize,
    /// What follows the layer; PReLU by default.
    #[serde(default)]
    pub activation: Activation,
}

/// What follows the feature layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// Batch norm and PReLU; the layer has no bias.
    #[default]
    Prelu,
    /// Nothing; the layer has a bias.
    None,
}

fn three() -> usize {
    3
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}

impl StageConfig {
    /// A stage of `units` 3x3 convolutions with `filters` filters each, and pooling.
    pub fn new(filters: usize, units: usize) -> Self {
        Self { filters, kernel: 3, units, stride: 1, pool: true }
    }

    fn units(&self) -> impl Iterator<Item = Unit> {
        (1..=self.units).map(|number| Unit {
            kernel: [self.kernel; 2],
            padding: self.kernel / 2,
            stride: if number == 1 { self.stride } else { 1 },
            pool: self.pool && number == self.units,
            ..Unit::new(self.filters)
        })
    }
}

impl NetworkConfig {
    /// The validated sizes of every layer.
    ///
    /// # Errors
    /// When a size is zero or too large, or a stride is not 1 or 2.
    pub fn stack(&self) -> Result<Stack, NetworkError> {
        self.check_sizes()?;
        let mut units: Vec<Unit> = self.stages.iter().flat_map(StageConfig::units).collect();
        let map = match units.as_slice() {
            [] => self.input,
            before => Stack::new(self.input, before.to_vec())?.output(),
        };
        units.push(self.features.unit([map[1], map[2]]));
        let stack = Stack::new(self.input, units)?;
        let parameters = (0..stack.units().len()).map(|unit| parameters(&stack, unit)).sum();
        if parameters > MOST_PARAMETERS {
            return Err(NetworkError::Parameters { parameters, most: MOST_PARAMETERS });
        }
        Ok(stack)
    }

    /// Rejects sizes that would overflow in [`Stack`], with an error that names them.
    fn check_sizes(&self) -> Result<(), NetworkError> {
        for (what, found) in ["number of channels", "height", "width"].into_iter().zip(self.input) {
            check(&format!("the {what} of the input"), found, MOST)?;
        }
        for (index, stage) in self.stages.iter().enumerate() {
            let of = |what: &str| format!("the {what} of {}", self.stage_name(index));
            check(&of("number of filters"), stage.filters, MOST)?;
            check(&of("kernel"), stage.kernel, MOST)?;
            check(&of("stride"), stage.stride, 2)?;
            check(&of("number of units"), stage.units, MOST_UNITS)?;
        }
        let units = self.stages.iter().map(|stage| stage.units).fold(0, usize::saturating_add);
        if units > MOST_UNITS {
            check("the number of units of all stages together", units, MOST_UNITS)?;
        }
        check("the number of features", self.features.size, MOST)
    }

    /// The name of a stage as in the paper: conv1, conv2 and so on; conv0 is a first stage without pooling.
    pub(crate) fn stage_name(&self, index: usize) -> String {
        let pools = self.stages.first().is_some_and(|stage| stage.pool);
        format!("conv{}", index + usize::from(pools))
    }
}

/// The largest size. Together with [`MOST_PARAMETERS`] it ensures that no count overflows 64 bits.
const MOST: usize = 1 << 16;

/// The largest number of convolutions.
const MOST_UNITS: usize = 1000;

/// The largest number of parameters: 8 GB of f32.
const MOST_PARAMETERS: u128 = 1 << 31;

fn check(what: &str, found: usize, most: usize) -> Result<(), NetworkError> {
    if (1..=most).contains(&found) {
        return Ok(());
    }
    Err(NetworkError::Size { what: what.to_owned(), found, most })
}

/// The number of parameters of a unit: weights, and one per filter for each of bias, γ, β and slope.
pub(crate) fn parameters(stack: &Stack, unit: usize) -> u128 {
    let [channels, ..] = stack.unit_input(unit);
    let Unit { filters, kernel: [height, width], bias, norm, prelu, .. } = stack.units()[unit];
    let vectors = u128::from(bias) + 2 * u128::from(norm) + u128::from(prelu);
    let weights = [channels, height, width].into_iter().map(|size| size as u128).product::<u128>();
    filters as u128 * (weights + vectors)
}

impl FeaturesConfig {
    /// `size` features with batch norm and PReLU.
    pub fn new(size: usize) -> Self {
        Self { size, activation: Activation::default() }
    }

    /// The layer for a feature map of this height and width.
    fn unit(&self, map: [usize; 2]) -> Unit {
        let active = self.activation == Activation::Prelu;
        Unit {
            kernel: map,
            padding: 0,
            bias: !active,
            norm: active,
            prelu: active,
            ..Unit::new(self.size)
        }
    }
}
