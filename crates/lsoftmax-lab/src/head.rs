//! The heads that a training run, a benchmark or `lsoftmax loss` can have.

use std::fmt;
use std::sync::Arc;

use burn::tensor::Device;
use lsoftmax::{
    AdditiveMargin, AngleError, AngularMargin, CosineMargin, Margin, MarginError, MarginHead,
    Normalisation, Number, SampleRate, ShardError, ShardedHead,
};
use lsoftmax_comm::Communicator;
use lsoftmax_kernels::Engine;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Error as _, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A head, by the name of its paper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeadKind {
    /// L-Softmax: the angle times m, norms free.
    #[default]
    #[serde(rename = "l-softmax")]
    LSoftmax,
    /// Softmax: L-Softmax with m = 1.
    Softmax,
    /// A-Softmax (SphereFace): the angle times m, weights normalised.
    #[serde(rename = "a-softmax")]
    ASoftmax,
    /// CosFace: the cosine less m, times s.
    CosFace,
    /// ArcFace: the cosine of the angle plus m, times s.
    ArcFace,
    /// Softmax over cosines times s.
    NormSoftmax,
}

impl HeadKind {
    /// All kinds, with their names in recipes and at the prompt.
    pub const ALL: [(&str, Self); 6] = [
        ("l-softmax", Self::LSoftmax),
        ("softmax", Self::Softmax),
        ("a-softmax", Self::ASoftmax),
        ("cosface", Self::CosFace),
        ("arcface", Self::ArcFace),
        ("normsoftmax", Self::NormSoftmax),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// The margin that its paper recommends, if it has one.
    fn default_margin(self) -> Option<f64> {
        match self {
            Self::LSoftmax | Self::ASoftmax => Some(4.0),
            Self::CosFace => Some(0.35),
            Self::ArcFace => Some(0.5),
            Self::Softmax | Self::NormSoftmax => None,
        }
    }

    /// The scale that its paper recommends, if it has one.
    fn default_scale(self) -> Option<f64> {
        match self {
            Self::CosFace | Self::ArcFace => Some(64.0),
            Self::NormSoftmax => Some(20.0),
            Self::LSoftmax | Self::Softmax | Self::ASoftmax => None,
        }
    }
}

impl fmt::Display for HeadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A head with its settings.
///
/// In a recipe `head = "arcface"` with the settings of its paper, `head = { name = "arcface", margin = 0.3 }`
/// with others, or `margin = 4` for L-Softmax.
///
/// ```
/// use lsoftmax_lab::head::{HeadKind, HeadSettings};
/// let arcface = HeadSettings::new(HeadKind::ArcFace, None, Some(30.0))?;
/// assert_eq!(arcface.to_string(), "arcface, m = 0.5, s = 30");
/// assert!(HeadSettings::new(HeadKind::LSoftmax, Some(4.0), Some(30.0)).is_err());
/// # Ok::<(), lsoftmax_lab::head::HeadSettingsError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadSettings {
    margin: HeadMargin,
    normalisation: Normalisation,
    learned_scale: bool,
    sample_rate: SampleRate,
}

/// The margin of any head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HeadMargin {
    /// A factor of the angle.
    Multiplied(Margin),
    /// An angle that is added.
    Added(AdditiveMargin),
    /// A number that is subtracted from the cosine.
    Subtracted(CosineMargin),
}

/// Settings that a head cannot have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HeadSettingsError {
    /// A margin of L-Softmax or A-Softmax.
    #[error(transparent)]
    Margin(#[from] MarginError),
    /// A margin of CosFace or ArcFace.
    #[error(transparent)]
    Angle(#[from] AngleError),
    /// A margin for a head without one.
    #[error("{0} has no margin; leave it out")]
    NoMargin(HeadKind),
    /// A scale for a head without one.
    #[error("{0} has no scale; leave it out")]
    NoScale(HeadKind),
    /// A scale out of range.
    #[error("the scale must be above 0 and at most 10000, but is {0}")]
    Scale(f64),
}

/// The largest scale accepted.
const LARGEST_SCALE: f64 = 1e4;

impl HeadSettings {
    /// A head with a margin and a scale, by default those of its paper.
    ///
    /// # Errors
    /// When one is out of range, or the head has none.
    pub fn new(
        kind: HeadKind,
        margin: Option<f64>,
        scale: Option<f64>,
    ) -> Result<Self, HeadSettingsError> {
        let number = match (margin, kind.default_margin()) {
            (Some(_), None) => return Err(HeadSettingsError::NoMargin(kind)),
            (margin, default) => margin.or(default).unwrap_or(1.0),
        };
        let scale = match (scale, kind.default_scale()) {
            (Some(_), None) => return Err(HeadSettingsError::NoScale(kind)),
            (scale, default) => scale.or(default),
        };
        if let Some(scale) = scale.filter(|scale| !(*scale > 0.0 && *scale <= LARGEST_SCALE)) {
            return Err(HeadSettingsError::Scale(scale));
        }
        let margin = match kind {
            HeadKind::CosFace => HeadMargin::Subtracted(CosineMargin::new(number)?),
            HeadKind::ArcFace => HeadMargin::Added(AdditiveMargin::new(number)?),
            _ => HeadMargin::Multiplied(Margin::new(number)?),
        };
        let normalisation = match (kind, scale) {
            (_, Some(scale)) => Normalisation::Both { scale },
            (HeadKind::ASoftmax, None) => Normalisation::Weights,
            (_, None) => Normalisation::None,
        };
        let sample_rate = SampleRate::ALL;
        Ok(Self { margin, normalisation, learned_scale: false, sample_rate })
    }

    /// L-Softmax with this margin; with 1 it is softmax.
    pub const fn l_softmax(margin: Margin) -> Self {
        Self {
            margin: HeadMargin::Multiplied(margin),
            normalisation: Normalisation::None,
            learned_scale: false,
            sample_rate: SampleRate::ALL,
        }
    }

    /// This head with another margin or scale; softmax becomes L-Softmax.
    ///
    /// # Errors
    /// When one is out of range, or the head has none.
    pub fn with(self, margin: Option<f64>, scale: Option<f64>) -> Result<Self, HeadSettingsError> {
        let kind = match self.kind() {
            HeadKind::Softmax if margin.is_some() => HeadKind::LSoftmax,
            kind => kind,
        };
        let own_margin = kind.default_margin().map(|_| self.margin.value());
        let changed = Self::new(kind, margin.or(own_margin), scale.or(self.scale()))?;
        Ok(Self { margin: changed.margin, normalisation: changed.normalisation, ..self })
    }

    /// This head with a scale that is learned, starting at its own.
    ///
    /// # Errors
    /// When the head has no scale.
    pub fn with_learned_scale(mut self) -> Result<Self, HeadSettingsError> {
        if self.scale().is_none() {
            return Err(HeadSettingsError::NoScale(self.kind()));
        }
        self.learned_scale = true;
        Ok(self)
    }

    /// This head with a share of the classes in each training step.
    pub fn with_sample_rate(mut self, rate: SampleRate) -> Self {
        self.sample_rate = rate;
        self
    }

    /// Its name; L-Softmax with m = 1 is softmax.
    pub fn kind(self) -> HeadKind {
        match (self.margin, self.normalisation) {
            (HeadMargin::Added(_), _) => HeadKind::ArcFace,
            (HeadMargin::Subtracted(_), _) => HeadKind::CosFace,
            (_, Normalisation::Both { .. }) => HeadKind::NormSoftmax,
            (_, Normalisation::Weights) => HeadKind::ASoftmax,
            (margin, Normalisation::None) if margin.is_identity() => HeadKind::Softmax,
            (_, Normalisation::None) => HeadKind::LSoftmax,
        }
    }

    /// Its margin.
    pub fn margin(self) -> HeadMargin {
        self.margin
    }

    /// Its scale, if features are normalised; if it is learned, the initial one.
    pub fn scale(self) -> Option<f64> {
        match self.normalisation {
            Normalisation::Both { scale } => Some(scale),
            _ => None,
        }
    }

    /// Whether there is a margin, and so the loss depends on λ.
    pub fn has_margin(self) -> bool {
        !self.margin.is_identity()
    }

    /// Whether weights and features keep their lengths: L-Softmax and softmax.
    pub fn is_free(self) -> bool {
        self.normalisation == Normalisation::None
    }

    /// Whether a training step uses only a share of the classes.
    pub fn is_sampled(self) -> bool {
        self.sample_rate != SampleRate::ALL
    }

    /// This head with the weights of another.
    pub fn apply<M: AngularMargin>(self, head: MarginHead<M>) -> MarginHead<HeadMargin> {
        let head = head.with_margin(self.margin).with_normalisation(self.normalisation);
        let head = head.with_sample_rate(self.sample_rate);
        if self.learned_scale { head.with_learned_scale() } else { head }
    }

    /// This head, divided over ranks by class, with He's initial weights: for so many features and classes. Its
    /// scale is on a device with autodiff.
    pub(crate) fn sharded(
        self,
        seed: u64,
        (features, classes): (usize, usize),
        engine: Engine,
        ranks: Arc<dyn Communicator>,
        device: &Device,
    ) -> Result<ShardedHead<HeadMargin>, ShardError> {
        let head = ShardedHead::new(seed, features, classes, self.margin, engine, ranks)?
            .with_normalisation(self.normalisation)
            .with_sample_rate(self.sample_rate);
        Ok(if self.learned_scale { head.with_learned_scale(device) } else { head })
    }

    /// A short name for files: `m4` for L-Softmax, such as `arcface-m0.5-scale64` for others.
    pub fn file_name(self) -> String {
        let kind = self.kind();
        let mut name = format!("m{}", self.margin.value());
        if !self.is_free() {
            let margin = kind.default_margin().map_or(String::new(), |_| format!("-{name}"));
            let scale = self.scale().map_or(String::new(), |scale| format!("-scale{scale}"));
            let learned = if self.learned_scale { "-learned" } else { "" };
            name = format!("{kind}{margin}{scale}{learned}");
        }
        if self.is_sampled() { format!("{name}-sampled{}", self.sample_rate.value()) } else { name }
    }
}

impl fmt::Display for HeadSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        kind.fmt(f)?;
        if kind.default_margin().is_some() {
            write!(f, ", m = {}", self.margin.value())?;
        }
        if let Some(scale) = self.scale() {
            write!(f, ", s = {scale}")?;
        }
        if self.learned_scale {
            f.write_str(" (learned)")?;
        }
        match self.is_sampled() {
            true => write!(f, ", {} of the classes", self.sample_rate.value()),
            false => Ok(()),
        }
    }
}

/// A head as a table.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadTable {
    name: HeadKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    margin: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scale: Option<f64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    learned_scale: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sample_rate: Option<SampleRate>,
}

impl Serialize for HeadSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let name = self.kind();
        let table = HeadTable {
            name,
            margin: name.default_margin().map(|_| self.margin.value()),
            scale: self.scale(),
            learned_scale: self.learned_scale,
            sample_rate: self.is_sampled().then_some(self.sample_rate),
        };
        table.serialize(serializer)
    }
}

impl TryFrom<HeadTable> for HeadSettings {
    type Error = HeadSettingsError;

    fn try_from(table: HeadTable) -> Result<Self, HeadSettingsError> {
        let head = Self::new(table.name, table.margin, table.scale)?;
        let head = head.with_sample_rate(table.sample_rate.unwrap_or_default());
        if table.learned_scale { head.with_learned_scale() } else { Ok(head) }
    }
}

/// Implemented by hand, because the error of a derived untagged enum would not say what is wrong with
/// the table.
impl<'de> Deserialize<'de> for HeadSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberNameOrTable;

        impl<'de> Visitor<'de> for NumberNameOrTable {
            type Value = HeadSettings;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str(
                    "the margin of L-Softmax, the name of a head, or a table of its settings",
                )
            }

            fn visit_f64<E: de::Error>(self, margin: f64) -> Result<HeadSettings, E> {
                Margin::new(margin).map(HeadSettings::l_softmax).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, margin: i64) -> Result<HeadSettings, E> {
                self.visit_f64(margin as f64)
            }

            fn visit_u64<E: de::Error>(self, margin: u64) -> Result<HeadSettings, E> {
                self.visit_f64(margin as f64)
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<HeadSettings, E> {
                let kind = HeadKind::deserialize(name.into_deserializer())?;
                HeadSettings::new(kind, None, None).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<HeadSettings, A::Error> {
                let table = HeadTable::deserialize(MapAccessDeserializer::new(map))?;
                table.try_into().map_err(A::Error::custom)
            }
        }

        deserializer.deserialize_any(NumberNameOrTable)
    }
}

impl HeadMargin {
    /// m.
    pub fn value(self) -> f64 {
        match self {
            Self::Multiplied(margin) => margin.value(),
            Self::Added(margin) => margin.value(),
            Self::Subtracted(margin) => margin.value(),
        }
    }
}

/// As the number m.
impl Serialize for HeadMargin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.value())
    }
}

impl AngularMargin for HeadMargin {
    fn value_and_slope<N: Number>(&self, cos: N) -> (N, N) {
        match self {
            Self::Multiplied(margin) => margin.value_and_slope(cos),
            Self::Added(margin) => margin.value_and_slope(cos),
            Self::Subtracted(margin) => margin.value_and_slope(cos),
        }
    }

    fn is_identity(&self) -> bool {
        match self {
            Self::Multiplied(margin) => margin.is_identity(),
            Self::Added(margin) => margin.is_identity(),
            Self::Subtracted(margin) => margin.is_identity(),
        }
    }

    fn intervals(&self) -> usize {
        match self {
            Self::Multiplied(margin) => margin.intervals(),
            Self::Added(margin) => margin.intervals(),
            Self::Subtracted(margin) => margin.intervals(),
        }
    }

    fn interval(&self, cos: f64) -> usize {
        match self {
            Self::Multiplied(margin) => margin.interval(cos),
            Self::Added(margin) => margin.interval(cos),
            Self::Subtracted(margin) => margin.interval(cos),
        }
    }
}
