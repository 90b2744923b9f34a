//! Validation of recipes.

use lsoftmax::Margin;
use lsoftmax_nn::NetworkError;

use crate::number_text::number_text;

use super::{LearningRate, Objective, Position, Recipe, RecipeError};

/// The largest batch size accepted.
const MOST_IMAGES: usize = 1 << 16;

/// The largest number of accumulated batches accepted.
const MOST_BATCHES: u64 = 1 << 16;

/// A setting out of range.
pub(super) struct InvalidSetting {
    /// The full path of its key.
    pub key: String,
    /// The constraint, and the value that violates it.
    pub problem: String,
}

impl InvalidSetting {
    fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { key: key.into(), problem: problem.into() }
    }

    /// A network that does not exist, or whose layers do not fit together.
    pub fn network(error: &NetworkError) -> Self {
        Self::new("network", format!("is not a network: {error}"))
    }

    /// Converts this to an error in the recipe `recipe`.
    pub fn into_error(self, recipe: &str, position: Option<Position>) -> RecipeError {
        let Self { key, problem } = self;
        RecipeError::Setting { recipe: recipe.to_owned(), key, position, problem }
    }
}

impl Recipe {
    /// Validates a recipe whose fields were set by the program.
    ///
    /// # Errors
    /// When a setting is out of range, or the layers of the network do not fit together.
    pub fn check(&self) -> Result<(), RecipeError> {
        self.check_settings().map_err(|setting| setting.into_error(&self.name, None))
    }

    /// Checks all settings; the error is the first invalid one.
    pub(super) fn check_settings(&self) -> Result<(), InvalidSetting> {
        if ["", ".", ".."].contains(&self.name.as_str())
            || self.name.contains(['/', '\\'])
            || self.name.contains(char::is_control)
        {
            let problem = format!("must be a valid directory name, but is {:?}", self.name);
            return Err(InvalidSetting::new("name", problem));
        }
        if self.data.is_empty() {
            return Err(InvalidSetting::new(
                "data",
                "must name a data set or a folder, but is empty",
            ));
        }
        if !(1..=MOST_IMAGES).contains(&self.batch) {
            let problem = format!("must be from 1 to {MOST_IMAGES}, but is {}", self.batch);
            return Err(InvalidSetting::new("batch", problem));
        }
        if !(1..=MOST_BATCHES).contains(&self.accumulate) {
            let problem = format!("must be from 1 to {MOST_BATCHES}, but is {}", self.accumulate);
            return Err(InvalidSetting::new("accumulate", problem));
        }
        if let Some(norm) = self.clip_norm {
            number("clip_norm", norm, "above 0 and finite", norm > 0.0)?;
        }
        if let Objective::Contrastive { weight, margin } = self.loss {
            let key = |name: &str| format!("loss.contrastive.{name}");
            number(&key("weight"), weight, "at least 0 and finite", weight >= 0.0)?;
            number(&key("margin"), margin, "above 0 and below 2", margin > 0.0 && margin < 2.0)?;
        }
        if !self.loss.uses_margin() && !self.head.is_free() {
            let problem = format!("must be softmax with the hinge loss, but is {}", self.head);
            return Err(InvalidSetting::new("head", problem));
        }
        above_0("steps", self.steps)?;
        above_0("evaluate_every", self.evaluate_every)?;
        above_0("log_every", self.log_every)?;
        above_0("checkpoint_every", self.checkpoint_every)?;
        self.check_learning_rate()?;
        self.check_sgd()?;
        self.check_expected()?;
        self.check_network()
    }

    fn check_learning_rate(&self) -> Result<(), InvalidSetting> {
        let (LearningRate::Steps { rate, factor, .. } | LearningRate::Plateau { rate, factor, .. }) =
            &self.learning_rate;
        for (key, value) in [("learning_rate.rate", *rate), ("learning_rate.factor", *factor)] {
            number(key, value, "above 0 and finite", value > 0.0)?;
        }
        match &self.learning_rate {
            LearningRate::Steps { at, .. } => {
                let increasing = at.windows(2).all(|two| two[0] < two[1]);
                if !increasing || at.iter().any(|step| !(1..self.steps).contains(step)) {
                    let rule = format!("must be increasing, from 1 to below {}", self.steps);
                    let problem = format!("{rule}, the number of steps, but is {at:?}");
                    return Err(InvalidSetting::new("learning_rate.at", problem));
                }
                Ok(())
            }
            LearningRate::Plateau { patience, .. } => {
                above_0("learning_rate.patience", *patience)?;
                if self.validation == 0 {
                    let problem =
                        "must be at least 1 with a plateau learning-rate schedule, but is 0";
                    return Err(InvalidSetting::new("validation", problem));
                }
                Ok(())
            }
        }
    }

    fn check_sgd(&self) -> Result<(), InvalidSetting> {
        let (momentum, decay) = (self.sgd.momentum, self.sgd.weight_decay);
        let rule = "at least 0 and below 1";
        number("sgd.momentum", momentum, rule, (0.0..1.0).contains(&momentum))?;
        number(
            "sgd.weight_decay",
            decay,
            "at least 0 and finite",
            (decay as f32).is_finite() && decay >= 0.0,
        )
    }

    fn check_expected(&self) -> Result<(), InvalidSetting> {
        for (margin, expected) in &self.expected {
            let key = |name: &str| format!("expected.{margin}.{name}");
            if !margin.parse::<f64>().is_ok_and(|margin| Margin::new(margin).is_ok()) {
                let problem = "is not a margin: results are expected by margin, \"1\" for softmax";
                return Err(InvalidSetting::new(format!("expected.{margin}"), problem));
            }
            let (error, tolerance) = (expected.test_error, expected.tolerance);
            number(&key("test_error"), error, "from 0 to 100", (0.0..=100.0).contains(&error))?;
            number(&key("tolerance"), tolerance, "at least 0 and finite", tolerance >= 0.0)?;
        }
        Ok(())
    }

    fn check_network(&self) -> Result<(), InvalidSetting> {
        let invalid = |error| InvalidSetting::network(&error);
        let config = self.network.config().map_err(invalid)?;
        let stack = config.stack().map_err(invalid)?;
        let is_single = |unit: usize| stack.convolved(unit)[1..] == [1, 1];
        let normed = |unit: usize| stack.units()[unit].norm;
        if self.batch == 1 && (0..stack.units().len()).any(|unit| normed(unit) && is_single(unit)) {
            let problem = "must be at least 2 for this network, but is 1: batch norm would see one value \
                           per channel, which has no variance";
            return Err(InvalidSetting::new("batch", problem));
        }
        let [_, height, width] = config.input;
        let pad = self.augment.pad;
        if pad >= height.min(width) {
            let problem = format!(
                "must be less than the sides of the images, {height} x {width}, but is {pad}"
            );
            return Err(InvalidSetting::new("augment.pad", problem));
        }
        Ok(())
    }
}

fn above_0(key: &str, value: u64) -> Result<(), InvalidSetting> {
    if value > 0 { Ok(()) } else { Err(InvalidSetting::new(key, "must be at least 1, but is 0")) }
}

fn number(key: &str, value: f64, rule: &str, holds: bool) -> Result<(), InvalidSetting> {
    if holds && value.is_finite() {
        return Ok(());
    }
    Err(InvalidSetting::new(key, format!("must be {rule}, but is {}", number_text(value))))
}
