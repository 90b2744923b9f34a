//! Validation of recipes.

use lsoftmax::Margin;
use lsoftmax_data::Shape;
use lsoftmax_nn::NetworkError;

use crate::number_text::number_text;

use crate::optimiser::{AdamW, Sgd};

use super::{AutoRule, Init, Keep, Lambda, LearningRate, Objective, Position, Recipe, RecipeError};

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
        if let Some(count) = self.images_per_class
            && (count == 0 || !self.batch.is_multiple_of(count))
        {
            let problem = format!("must divide the batch of {}, but is {count}", self.batch);
            return Err(InvalidSetting::new("images_per_class", problem));
        }
        if !(1..=MOST_BATCHES).contains(&self.accumulate) {
            let problem = format!("must be from 1 to {MOST_BATCHES}, but is {}", self.accumulate);
            return Err(InvalidSetting::new("accumulate", problem));
        }
        if let Lambda::Auto(AutoRule { keep, end, floor }) = self.lambda {
            let holds = keep > 0.0 && keep <= 1.0;
            number("lambda.keep", keep, "above 0 and at most 1", holds)?;
            let holds = (0.001..=1000.0).contains(&end);
            number("lambda.end", end, "from 0.001 to 1000", holds)?;
            let holds = (0.0..=1000.0).contains(&floor);
            number("lambda.floor", floor, "from 0 to 1000", holds)?;
        }
        if let Some(norm) = self.clip_norm {
            number("clip_norm", norm, "above 0 and finite", norm > 0.0)?;
        }
        if let Objective::Contrastive { weight, margin } = self.loss {
            let key = |name: &str| format!("loss.contrastive.{name}");
            number(&key("weight"), weight, "at least 0 and finite", weight >= 0.0)?;
            number(&key("margin"), margin, "above 0 and below 2", margin > 0.0 && margin < 2.0)?;
        }
        if !self.loss.uses_margin() && (!self.head.is_free() || self.head.is_sampled()) {
            let problem = format!("must be softmax with the hinge loss, but is {}", self.head);
            return Err(InvalidSetting::new("head", problem));
        }
        above_0("steps", self.steps)?;
        above_0("evaluate_every", self.evaluate_every)?;
        above_0("log_every", self.log_every)?;
        above_0("checkpoint_every", self.checkpoint_every)?;
        self.check_selection()?;
        self.check_learning_rate()?;
        self.check_optimiser()?;
        if self.head.is_sampled() && self.optimiser().init_rows().is_none() {
            let problem = "of the head needs SGD with plain momentum: the weights of classes that are not drawn must stay as they are";
            return Err(InvalidSetting::new("head.sample_rate", problem));
        }
        self.check_shards()?;
        self.check_expected()?;
        self.check_network()
    }

    /// What a head that is divided over ranks cannot do.
    fn check_shards(&self) -> Result<(), InvalidSetting> {
        if !self.shard_classes {
            return Ok(());
        }
        let problem = match self {
            _ if !self.loss.uses_margin() => {
                "cannot be used with the hinge loss, which needs all logits of a sample in one place"
            }
            _ if self.keep == Keep::Best => {
                "cannot be used with `keep = \"best\"`, which would take a second copy of the head; keep the last model"
            }
            _ if self.average.is_some() => {
                "cannot be used with `average`, which would take a second copy of the head; leave it out"
            }
            _ if self.head.is_sampled() && self.accumulate > 1 => {
                "cannot be used with `head.sample_rate` and `accumulate`: every batch draws its own classes; use larger batches"
            }
            _ => return Ok(()),
        };
        Err(InvalidSetting::new("shard_classes", problem))
    }

    fn check_selection(&self) -> Result<(), InvalidSetting> {
        if let Some(evaluations) = self.early_stopping {
            above_0("early_stopping", evaluations)?;
        }
        if let Some(decay) = self.average {
            number("average", decay, "above 0 and below 1", decay > 0.0 && decay < 1.0)?;
        }
        let needed = match (self.keep, self.early_stopping) {
            (Keep::Best, _) => "to keep the best model",
            (_, Some(_)) => "to stop early",
            _ => return Ok(()),
        };
        if self.validation == 0 {
            let problem = format!("must be at least 1 {needed}, but is 0");
            return Err(InvalidSetting::new("validation", problem));
        }
        Ok(())
    }

    fn check_learning_rate(&self) -> Result<(), InvalidSetting> {
        let positive = |key, value| number(key, value, "above 0 and finite", value > 0.0);
        let initial = self.learning_rate.rate();
        positive("learning_rate.rate", initial)?;
        match &self.learning_rate {
            LearningRate::Steps { factor, at, .. } => {
                positive("learning_rate.factor", *factor)?;
                let increasing = at.windows(2).all(|two| two[0] < two[1]);
                if !increasing || at.iter().any(|step| !(1..self.steps).contains(step)) {
                    let rule = format!("must be increasing, from 1 to below {}", self.steps);
                    let problem = format!("{rule}, the number of steps, but is {at:?}");
                    return Err(InvalidSetting::new("learning_rate.at", problem));
                }
                Ok(())
            }
            LearningRate::Plateau { factor, patience, .. } => {
                positive("learning_rate.factor", *factor)?;
                above_0("learning_rate.patience", *patience)?;
                if self.validation == 0 {
                    let problem =
                        "must be at least 1 with a plateau learning-rate schedule, but is 0";
                    return Err(InvalidSetting::new("validation", problem));
                }
                Ok(())
            }
            LearningRate::Cosine { min, until, .. } => {
                let rule = format!("at least 0 and at most the rate, {}", number_text(initial));
                number("learning_rate.min", *min, &rule, (0.0..=initial).contains(min))?;
                let end = until.unwrap_or(self.steps);
                if self.warmup >= end {
                    let problem = format!(
                        "must be less than {end}, the end of the cosine, but is {}",
                        self.warmup
                    );
                    return Err(InvalidSetting::new("warmup", problem));
                }
                Ok(())
            }
        }
    }

    fn check_optimiser(&self) -> Result<(), InvalidSetting> {
        let fraction = |key: &str, value: f64| {
            number(key, value, "at least 0 and below 1", value >= 0.0 && (value as f32) < 1.0)
        };
        let decay = |key: &str, value: f64| {
            let holds = (value as f32).is_finite() && value >= 0.0;
            number(key, value, "at least 0 and finite", holds)
        };
        if let Some(Sgd { momentum, nesterov, weight_decay, head_weight_decay }) = self.sgd {
            fraction("sgd.momentum", momentum)?;
            decay("sgd.weight_decay", weight_decay)?;
            decay("sgd.head_weight_decay", head_weight_decay.unwrap_or(weight_decay))?;
            if nesterov && momentum == 0.0 {
                let problem = "needs a momentum above 0, but `sgd.momentum` is 0";
                return Err(InvalidSetting::new("sgd.nesterov", problem));
            }
        }
        let Some(AdamW { beta1, beta2, epsilon, weight_decay }) = self.adamw else { return Ok(()) };
        fraction("adamw.beta1", beta1)?;
        fraction("adamw.beta2", beta2)?;
        let normal = (epsilon as f32).is_normal() && epsilon > 0.0;
        number("adamw.epsilon", epsilon, "above 0, at least 1.2e-38, and finite", normal)?;
        decay("adamw.weight_decay", weight_decay)?;
        if self.sgd.is_some() {
            let problem = "cannot be used with `sgd`: a run has one optimiser";
            return Err(InvalidSetting::new("adamw", problem));
        }
        Ok(())
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
        if let Some(Init { from, freeze, trunk_rate }) = &self.init {
            let units = stack.units().len();
            if from.as_os_str().is_empty() {
                let problem = "must be the directory of a run or a safetensors file, but is empty";
                return Err(InvalidSetting::new("init.from", problem));
            }
            if *freeze > units {
                let problem =
                    format!("must be at most {units}, the units of the network, but is {freeze}");
                return Err(InvalidSetting::new("init.freeze", problem));
            }
            let holds = *trunk_rate > 0.0;
            number("init.trunk_rate", *trunk_rate, "above 0 and finite", holds)?;
        }
        let [channels, height, width] = config.input;
        let problem = self.augment.problem(Shape { channels, height, width });
        problem.map_or(Ok(()), |(setting, problem)| {
            Err(InvalidSetting::new(format!("augment.{setting}"), problem))
        })
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
