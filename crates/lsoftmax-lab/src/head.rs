//! The heads that a training run, a benchmark or `lsoftmax loss` can have.

use std::fmt;

use lsoftmax::{
    AdditiveMargin, AngleError, AngularMargin, CosineMargin, Margin, MarginError, MarginHead,
    Normalisation, Number,
};
use serde::{Deserialize, Serialize, Serializer};

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
/// ```
/// use lsoftmax_lab::head::{HeadKind, HeadSettings};
/// let arcface = HeadSettings::new(HeadKind::ArcFace, None, Some(30.0))?;
/// assert_eq!(arcface.to_string(), "arcface, m = 0.5, s = 30");
/// assert!(HeadSettings::new(HeadKind::LSoftmax, Some(4.0), Some(30.0)).is_err());
/// # Ok::<(), lsoftmax_lab::head::HeadSettingsError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadSettings {
    kind: HeadKind,
    margin: HeadMargin,
    normalisation: Normalisation,
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
        Ok(Self { kind, margin, normalisation })
    }

    /// L-Softmax with this margin.
    pub fn l_softmax(margin: Margin) -> Self {
        let margin = HeadMargin::Multiplied(margin);
        Self { kind: HeadKind::LSoftmax, margin, normalisation: Normalisation::None }
    }

    /// Its name.
    pub fn kind(self) -> HeadKind {
        self.kind
    }

    /// Its margin.
    pub fn margin(self) -> HeadMargin {
        self.margin
    }

    /// Its scale, if features are normalised.
    pub fn scale(self) -> Option<f64> {
        match self.normalisation {
            Normalisation::Both { scale } => Some(scale),
            _ => None,
        }
    }

    /// This head with the weights of another.
    pub fn apply<M: AngularMargin>(self, head: MarginHead<M>) -> MarginHead<HeadMargin> {
        head.with_margin(self.margin).with_normalisation(self.normalisation)
    }
}

impl fmt::Display for HeadSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        if self.kind.default_margin().is_some() {
            write!(f, ", m = {}", self.margin.value())?;
        }
        self.scale().map_or(Ok(()), |scale| write!(f, ", s = {scale}"))
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
