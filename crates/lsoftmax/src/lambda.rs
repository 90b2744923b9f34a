//! λ, the weight of the plain cosine in the label's logit, which introduces the margin gradually.
//!
//! With λ the label's logit is `|W||x| (λ cos θ + ψ(θ)) / (1 + λ)`: a large λ gives softmax, 0 the full
//! margin. A schedule is a function of the optimiser step only, so that it is not affected by resuming a
//! run, gradient accumulation or evaluations.

use serde::{Deserialize, Serialize};

/// λ by optimiser step.
///
/// ```
/// use lsoftmax::LambdaSchedule;
/// // The authors' schedule for MNIST.
/// let lambda = LambdaSchedule::power(1000.0, 2.5e-5, 35.0, 0.0)?;
/// assert_eq!(lambda.at(0), 1000.0);
/// assert!(lambda.at(20_000) < 1e-3);
/// # Ok::<(), lsoftmax::LambdaError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Formula", into = "Formula")]
pub struct LambdaSchedule(Formula);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "schedule", rename_all = "kebab-case", deny_unknown_fields)]
enum Formula {
    Constant {
        value: f64,
    },
    Power {
        base: f64,
        gamma: f64,
        power: f64,
        #[serde(default)]
        min: f64,
    },
    Exponential {
        base: f64,
        decay: f64,
        #[serde(default)]
        min: f64,
    },
    Staged {
        stages: Vec<Stage>,
    },
}

/// A value of λ and the step from which it applies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// The first step of the stage.
    pub from: u64,
    /// λ in the stage.
    pub value: f64,
}

/// Why a λ or a schedule is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LambdaError {
    /// An invalid λ.
    #[error("λ must be a finite number of at least 0, but is {0}")]
    Value(f64),
    /// An invalid parameter of a schedule.
    #[error("{name} of the λ schedule must be {rule}, but is {value}")]
    Parameter {
        /// The parameter.
        name: &'static str,
        /// The valid range.
        rule: &'static str,
        /// The value.
        value: f64,
    },
    /// Stages that do not start at step 0 or are out of order.
    #[error(
        "the stages of the λ schedule must start at step 0 and be in increasing order of `from`"
    )]
    Stages,
}

/// Checks that λ is finite and at least 0.
pub(crate) fn checked(lambda: f64) -> Result<f64, LambdaError> {
    if lambda.is_finite() && lambda >= 0.0 { Ok(lambda) } else { Err(LambdaError::Value(lambda)) }
}

/// The weights of the plain term and of the margin term, λ/(1+λ) and 1/(1+λ), which do not overflow for
/// a large λ.
pub(crate) fn shares(lambda: f64) -> (f64, f64) {
    (lambda / (1.0 + lambda), 1.0 / (1.0 + lambda))
}

impl LambdaSchedule {
    /// A constant λ.
    ///
    /// # Errors
    /// When `value` is negative or not finite.
    pub fn constant(value: f64) -> Result<Self, LambdaError> {
        Formula::Constant { value }.try_into()
    }

    /// The authors' schedule, `max(min, base · (1 + gamma · step)^−power)`.
    ///
    /// # Errors
    /// When a parameter is negative or not finite.
    pub fn power(base: f64, gamma: f64, power: f64, min: f64) -> Result<Self, LambdaError> {
        Formula::Power { base, gamma, power, min }.try_into()
    }

    /// `max(min, base · decay^step)`.
    ///
    /// # Errors
    /// When `base` or `min` is negative or not finite, or `decay` not in (0, 1].
    pub fn exponential(base: f64, decay: f64, min: f64) -> Result<Self, LambdaError> {
        Formula::Exponential { base, decay, min }.try_into()
    }

    /// A value for each stage.
    ///
    /// # Errors
    /// When the first stage does not start at step 0, stages are out of order, or a value is not a valid λ.
    pub fn staged(stages: Vec<Stage>) -> Result<Self, LambdaError> {
        Formula::Staged { stages }.try_into()
    }

    /// λ at an optimiser step, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        let t = step as f64;
        match &self.0 {
            Formula::Constant { value } => *value,
            Formula::Power { base, gamma, power, min } => {
                (base * (1.0 + gamma * t).powf(-power)).max(*min)
            }
            Formula::Exponential { base, decay, min } => (base * decay.powf(t)).max(*min),
            Formula::Staged { stages } => {
                let stage = stages.partition_point(|stage| stage.from <= step);
                stages[stage - 1].value
            }
        }
    }

    /// The schedule of a run that is `factor` times as long: its λ at a step is that of this schedule at
    /// step / factor.
    ///
    /// ```
    /// use lsoftmax::LambdaSchedule;
    /// let lambda = LambdaSchedule::power(1000.0, 2e-5, 45.0, 0.0)?;
    /// let short = lambda.stretched(0.5)?;
    /// assert_eq!(short.at(9_000), lambda.at(18_000));
    /// # Ok::<(), lsoftmax::LambdaError>(())
    /// ```
    ///
    /// # Errors
    /// When `factor` is not above 0 and finite.
    pub fn stretched(&self, factor: f64) -> Result<Self, LambdaError> {
        if !(factor > 0.0 && factor.is_finite()) {
            let rule = "above 0 and finite";
            return Err(LambdaError::Parameter { name: "the stretch", rule, value: factor });
        }
        let formula = match self.0.clone() {
            Formula::Constant { value } => Formula::Constant { value },
            Formula::Power { base, gamma, power, min } => {
                Formula::Power { base, gamma: (gamma / factor).min(f64::MAX), power, min }
            }
            Formula::Exponential { base, decay, min } => {
                let decay = decay.powf(factor.recip()).max(f64::MIN_POSITIVE);
                Formula::Exponential { base, decay, min }
            }
            Formula::Staged { stages } => {
                let mut moved: Vec<Stage> = Vec::with_capacity(stages.len());
                for Stage { from, value } in stages {
                    let from = first_step(from, factor);
                    // If two stages start at the same step, the later one applies.
                    moved.pop_if(|last| last.from == from);
                    moved.push(Stage { from, value });
                }
                Formula::Staged { stages: moved }
            }
        };
        Ok(Self(formula))
    }
}

/// The first step at which step / factor is at least `from`. A product that differs from an integer
/// only by rounding is treated as that integer.
fn first_step(from: u64, factor: f64) -> u64 {
    let step = from as f64 * factor;
    let nearest = step.round();
    let is_integer = (step - nearest).abs() <= 2.0 * f64::EPSILON * step;
    (if is_integer { nearest } else { step.ceil() }) as u64
}

impl TryFrom<Formula> for LambdaSchedule {
    type Error = LambdaError;

    fn try_from(formula: Formula) -> Result<Self, LambdaError> {
        let at_least_0 = |name, value: f64| match value.is_finite() && value >= 0.0 {
            true => Ok(()),
            false => Err(LambdaError::Parameter { name, rule: "at least 0 and finite", value }),
        };
        match &formula {
            Formula::Constant { value } => checked(*value).map(|_| ())?,
            Formula::Power { base, gamma, power, min } => {
                at_least_0("base", *base)?;
                at_least_0("gamma", *gamma)?;
                at_least_0("power", *power)?;
                at_least_0("min", *min)?;
            }
            Formula::Exponential { base, decay, min } => {
                at_least_0("base", *base)?;
                at_least_0("min", *min)?;
                if !(*decay > 0.0 && *decay <= 1.0) {
                    let rule = "above 0 and at most 1";
                    return Err(LambdaError::Parameter { name: "decay", rule, value: *decay });
                }
            }
            Formula::Staged { stages } => {
                let increasing = stages.windows(2).all(|two| two[0].from < two[1].from);
                if stages.first().is_none_or(|first| first.from != 0) || !increasing {
                    return Err(LambdaError::Stages);
                }
                stages.iter().try_for_each(|stage| checked(stage.value).map(|_| ()))?;
            }
        }
        Ok(Self(formula))
    }
}

impl From<LambdaSchedule> for Formula {
    fn from(schedule: LambdaSchedule) -> Formula {
        schedule.0
    }
}
