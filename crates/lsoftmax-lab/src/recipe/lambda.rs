//! λ of a recipe: a schedule, or left to the trainer.

use lsoftmax::{LambdaError, LambdaSchedule};
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::keys::lambda_schedules;
use crate::head::HeadMargin;

/// λ of a training run.
///
/// In a recipe `lambda = "auto"`, a number for a constant λ, or the table of a schedule, of which
/// `{ schedule = "auto", keep = 0.97, end = 2, floor = 1 }` is one.
#[derive(Clone, Debug, PartialEq)]
pub enum Lambda {
    /// Decreased as fast as the network can satisfy the margin; see `train/auto_lambda.rs`.
    Auto(AutoRule),
    /// A function of the optimiser step.
    Schedule(LambdaSchedule),
}

/// What an automatic λ follows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AutoRule {
    /// Of the images that are classified correctly, the fraction that must remain so under the margin for λ to fall fast.
    pub keep: f64,
    /// The upper bound of λ at the last step, to which it falls exponentially; with 1000, where λ starts, there is none.
    pub end: f64,
    /// The lower bound of λ at the initial learning rate with m = 2; it is in proportion to m − 1 and to the rate.
    pub floor: f64,
}

impl Default for AutoRule {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl AutoRule {
    /// What suits the paper's networks.
    const DEFAULT: Self = Self { keep: 0.97, end: 2.0, floor: 1.0 };

    /// The lower bound of λ with a margin, at a fraction of the initial learning rate. A margin that does not multiply the angle
    /// has that of m = 2.
    pub(crate) fn lower_bound(self, margin: HeadMargin, relative_rate: f64) -> f64 {
        let size = match margin {
            HeadMargin::Multiplied(m) => m.value() - 1.0,
            HeadMargin::Added(_) | HeadMargin::Subtracted(_) => 1.0,
        };
        self.floor * size * relative_rate
    }
}

/// The name of [`Lambda::Auto`].
const AUTO: &str = "auto";

/// [`Lambda::Auto`] in a recipe.
#[derive(Serialize)]
struct AutoTable {
    schedule: &'static str,
    #[serde(flatten)]
    rule: AutoRule,
}

/// The name of a schedule of λ.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct ScheduleName(String);

impl TryFrom<String> for ScheduleName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let known: Vec<&str> = lambda_schedules().collect();
        match known.contains(&name.as_str()) {
            true => Ok(Self(name)),
            false => {
                Err(format!("unknown choice `{name}`, expected one of `{}`", known.join("`, `")))
            }
        }
    }
}

impl Lambda {
    /// The automatic λ, with the rule that suits the paper's networks.
    pub const AUTO: Self = Self::Auto(AutoRule::DEFAULT);

    /// A constant λ.
    ///
    /// # Errors
    /// When `value` is negative or not finite.
    pub fn constant(value: f64) -> Result<Self, LambdaError> {
        LambdaSchedule::constant(value).map(Self::Schedule)
    }

    /// The schedule, unless it is automatic.
    pub fn schedule(&self) -> Option<&LambdaSchedule> {
        match self {
            Self::Auto(_) => None,
            Self::Schedule(schedule) => Some(schedule),
        }
    }

    /// λ of a run that is `factor` times as long; see [`LambdaSchedule::stretched`]. An automatic λ
    /// adapts to the length by itself.
    ///
    /// # Errors
    /// When `factor` is not above 0 and finite.
    pub fn stretched(&self, factor: f64) -> Result<Self, LambdaError> {
        match self {
            Self::Auto(_) => Ok(self.clone()),
            Self::Schedule(schedule) => schedule.stretched(factor).map(Self::Schedule),
        }
    }
}

impl From<LambdaSchedule> for Lambda {
    fn from(schedule: LambdaSchedule) -> Self {
        Self::Schedule(schedule)
    }
}

impl Serialize for Lambda {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto(rule) => AutoTable { schedule: AUTO, rule: *rule }.serialize(serializer),
            Self::Schedule(schedule) => schedule.serialize(serializer),
        }
    }
}

/// Implemented by hand, because the error of a derived untagged enum would not say what is wrong with
/// the schedule.
impl<'de> Deserialize<'de> for Lambda {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AutoNumberOrTable;

        impl<'de> Visitor<'de> for AutoNumberOrTable {
            type Value = Lambda;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("\"auto\", a number or a schedule")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Lambda, E> {
                match name {
                    AUTO => Ok(Lambda::AUTO),
                    _ => Err(E::custom(format_args!(
                        "unknown choice `{name}`, expected `auto`, a number or a schedule"
                    ))),
                }
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Lambda, E> {
                Lambda::constant(value).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Lambda, E> {
                self.visit_f64(value as f64)
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Lambda, E> {
                self.visit_f64(value as f64)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Lambda, A::Error> {
                let mut table = toml::Table::new();
                while let Some(key) = map.next_key::<String>()? {
                    // An error in the name is reported at the name.
                    let value = match key == "schedule" {
                        true => toml::Value::String(map.next_value::<ScheduleName>()?.0),
                        false => map.next_value()?,
                    };
                    table.insert(key, value);
                }
                if table.get("schedule").and_then(|name| name.as_str()) != Some(AUTO) {
                    let schedule = LambdaSchedule::deserialize(table).map_err(de::Error::custom)?;
                    return Ok(Lambda::Schedule(schedule));
                }
                table.remove("schedule");
                AutoRule::deserialize(table).map(Lambda::Auto).map_err(de::Error::custom)
            }
        }

        deserializer.deserialize_any(AutoNumberOrTable)
    }
}
