//! The description of a network.

use burn::config::Config;
use lsoftmax_kernels::conv::{Activation, Pool, Shortcut, ShortcutOrder, Stack, Unit};
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

/// A sequence of convolutions with equal numbers of filters, each with batch norm and an activation.
///
/// The padding is kernel / 2, which preserves the image size if the kernel is odd and the stride 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StageFields")]
pub struct StageConfig {
    /// The number of output channels of every convolution.
    pub filters: usize,
    /// Height and width of the kernels; 3 by default.
    pub kernel: usize,
    /// The number of convolutions; in a residual stage an even one, without those of shortcuts.
    pub units: usize,
    /// The stride of the first convolution, 1 or 2; 1 by default. The others have 1.
    pub stride: usize,
    /// The activation after every convolution; PReLU by default.
    #[serde(skip_serializing_if = "is_default")]
    pub activation: Activation,
    /// Whether, and how, every two convolutions are a residual block; by default they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub residual: Option<Residual>,
    /// Whether 2x2 max pooling of stride 2 ends the stage; by default true, except in a residual stage, which
    /// cannot have it.
    pub pool: bool,
}

/// A [`StageConfig`] as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StageFields {
    filters: usize,
    #[serde(default = "three")]
    kernel: usize,
    units: usize,
    #[serde(default = "one")]
    stride: usize,
    #[serde(default)]
    activation: Activation,
    residual: Option<Residual>,
    pool: Option<bool>,
}

impl From<StageFields> for StageConfig {
    fn from(fields: StageFields) -> Self {
        let StageFields { filters, kernel, units, stride, activation, residual, pool } = fields;
        let pool = pool.unwrap_or(residual.is_none());
        Self { filters, kernel, units, stride, activation, residual, pool }
    }
}

/// How the input of a residual block is added to its output.
///
/// Where the first block of a stage changes the size, a 1x1 convolution with batch norm changes its input in the
/// same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Residual {
    /// Before the last activation, as in ResNet.
    Resnet,
    /// After the last activation, as in SphereFace.
    Sphereface,
}

/// The layer that computes the features.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeaturesConfig {
    /// The number of features.
    pub size: usize,
    /// What computes them; a fully connected layer by default.
    #[serde(default, skip_serializing_if = "is_default")]
    pub layer: FeatureLayer,
    /// What follows a fully connected layer: batch norm and an activation, PReLU by default, or nothing. In the
    /// latter case the layer has a bias.
    #[serde(default)]
    pub activation: Activation,
}

/// What computes the features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeatureLayer {
    /// A fully connected layer.
    #[default]
    Full,
    /// The average of all pixels: one feature for each filter of the last stage.
    Average,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn three() -> usize {
    3
}

fn one() -> usize {
    1
}

/// A unit, and its name in summaries.
pub(crate) struct NamedUnit {
    pub name: String,
    pub unit: Unit,
}

impl StageConfig {
    /// A stage of `units` 3x3 convolutions with `filters` filters each, and pooling.
    pub fn new(filters: usize, units: usize) -> Self {
        Self {
            filters,
            kernel: 3,
            units,
            stride: 1,
            activation: Activation::default(),
            residual: None,
            pool: true,
        }
    }

    /// A residual stage of `units` 3x3 convolutions, two per block.
    pub fn residual(filters: usize, units: usize, residual: Residual) -> Self {
        Self { residual: Some(residual), pool: false, ..Self::new(filters, units) }
    }

    /// The units of a stage called `name` whose input has `channels` channels.
    fn units(&self, name: &str, channels: usize) -> Vec<NamedUnit> {
        let mut units = Vec::new();
        for number in 1..=self.units {
            let mut unit = Unit {
                kernel: [self.kernel; 2],
                padding: self.kernel / 2,
                stride: if number == 1 { self.stride } else { 1 },
                activation: self.activation,
                pool: if self.pool && number == self.units { Pool::Max } else { Pool::None },
                ..Unit::new(self.filters)
            };
            if let (Some(residual), 0) = (self.residual, number % 2) {
                let changes = number == 2 && (self.stride > 1 || channels != self.filters);
                if changes {
                    let name = format!("{name}.shortcut");
                    units.push(NamedUnit { name, unit: self.projection() });
                }
                // The block's input is two units back, and so is the first convolution if a projection follows it.
                let (from, shortcut) = if changes { (2, 1) } else { (1, 2) };
                let order = match residual {
                    Residual::Resnet => ShortcutOrder::BeforeActivation,
                    Residual::Sphereface => ShortcutOrder::AfterActivation,
                };
                unit.from = from;
                unit.shortcut = Some(Shortcut { from: shortcut, order });
            }
            units.push(NamedUnit { name: format!("{name}.{number}"), unit });
        }
        units
    }

    /// The shortcut of a first block that changes the size.
    fn projection(&self) -> Unit {
        Unit {
            kernel: [1, 1],
            padding: 0,
            stride: self.stride,
            activation: Activation::None,
            from: 2,
            ..Unit::new(self.filters)
        }
    }
}

impl NetworkConfig {
    /// The validated sizes of every layer.
    ///
    /// # Errors
    /// When a size is zero or too large, or a stride is not 1 or 2.
    pub fn stack(&self) -> Result<Stack, NetworkError> {
        Ok(self.named_stack()?.0)
    }

    /// The stack, and the names of its units.
    pub(crate) fn named_stack(&self) -> Result<(Stack, Vec<String>), NetworkError> {
        self.check_sizes()?;
        self.check_kinds()?;
        let mut channels = self.input[0];
        let mut named = Vec::new();
        for (index, stage) in self.stages.iter().enumerate() {
            named.extend(stage.units(&self.stage_name(index), channels));
            channels = stage.filters;
        }
        let (mut names, mut units): (Vec<String>, Vec<Unit>) =
            named.into_iter().map(|NamedUnit { name, unit }| (name, unit)).unzip();
        match (self.features.layer, units.last_mut()) {
            (FeatureLayer::Average, Some(last)) => last.pool = Pool::Average,
            _ => {
                let [_, height, width] = match units.as_slice() {
                    [] => self.input,
                    before => Stack::new(self.input, before.to_vec())?.output(),
                };
                names.push("features".to_owned());
                units.push(self.features.unit([height, width]));
            }
        }
        let stack = Stack::new(self.input, units)?;
        let parameters = (0..stack.units().len()).map(|unit| parameters(&stack, unit)).sum();
        if parameters > MOST_PARAMETERS {
            return Err(NetworkError::Parameters { parameters, most: MOST_PARAMETERS });
        }
        Ok((stack, names))
    }

    /// Rejects residual stages and averages that do not fit what is before them.
    fn check_kinds(&self) -> Result<(), NetworkError> {
        for (index, stage) in self.stages.iter().enumerate() {
            let wrong = |problem: String| {
                let stage = self.stage_name(index);
                Err(NetworkError::Residual { stage, problem })
            };
            match stage.residual {
                None => {}
                Some(_) if index == 0 => {
                    return wrong("needs a stage before it, such as one convolution".to_owned());
                }
                Some(_) if stage.units % 2 == 1 => {
                    let units = stage.units;
                    return wrong(format!(
                        "has two convolutions per block, so its number of units must be even, but is {units}"
                    ));
                }
                Some(_) if stage.kernel % 2 == 0 => {
                    let kernel = stage.kernel;
                    return wrong(format!("needs an odd kernel, but has one of {kernel}"));
                }
                Some(_) if stage.pool => {
                    return wrong(
                        "cannot have pooling; use a stride of 2 in the next stage instead"
                            .to_owned(),
                    );
                }
                Some(_) => {}
            }
        }
        let FeaturesConfig { size, layer, activation } = self.features;
        if layer == FeatureLayer::Full {
            return Ok(());
        }
        let Some(last) = self.stages.last() else {
            return Err(NetworkError::Average("needs a stage before it".to_owned()));
        };
        if size != last.filters {
            let filters = last.filters;
            return Err(NetworkError::Average(format!(
                "gives one feature per filter of the last stage, so their number must be {filters}, but is {size}"
            )));
        }
        if last.pool {
            let problem = "cannot follow pooling; set `pool = false` in the last stage";
            return Err(NetworkError::Average(problem.to_owned()));
        }
        if activation != Activation::default() {
            let problem = "has no activation of its own; remove `activation` from the features";
            return Err(NetworkError::Average(problem.to_owned()));
        }
        Ok(())
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
    let unit = stack.units()[unit];
    let Unit { filters, kernel: [height, width], bias, norm, .. } = unit;
    let vectors = u128::from(bias) + 2 * u128::from(norm) + u128::from(unit.has_slopes());
    let weights = [channels, height, width].into_iter().map(|size| size as u128).product::<u128>();
    filters as u128 * (weights + vectors)
}

impl FeaturesConfig {
    /// `size` features of a fully connected layer with batch norm and PReLU.
    pub fn new(size: usize) -> Self {
        Self { size, layer: FeatureLayer::Full, activation: Activation::default() }
    }

    /// `size` features of a fully connected layer with a bias.
    pub fn linear(size: usize) -> Self {
        Self { activation: Activation::None, ..Self::new(size) }
    }

    /// The averages of the last stage's filters, of which there are `size`.
    pub fn average(size: usize) -> Self {
        Self { layer: FeatureLayer::Average, ..Self::new(size) }
    }

    /// The fully connected layer for a feature map of this height and width.
    fn unit(&self, map: [usize; 2]) -> Unit {
        let active = self.activation != Activation::None;
        Unit {
            kernel: map,
            padding: 0,
            bias: !active,
            norm: active,
            activation: self.activation,
            ..Unit::new(self.size)
        }
    }
}
