//! What a recipe must hold to before it is run.

use lsoftmax::Margin;
use lsoftmax_nn::NetworkError;

use super::{LearningRate, Objective, Position, Recipe, RecipeError};

/// The largest batch; a larger one is surely a mistake.
const MOST_IMAGES: usize = 1 << 16;

/// The most batches per step; more are surely a mistake.
const MOST_BATCHES: u64 = 1 << 16;

/// A setting that no run can have.
pub(super) struct Fault {
    /// Its key, after those of the tables that it is in.
    pub key: String,
    /// What it must be, and what it is.
    pub problem: String,
}

impl Fault {
    fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { key: key.into(), problem: problem.into() }
    }

    /// A network that does not exist, or whose layers do not fit together.
    pub fn network(error: &NetworkError) -> Self {
        Self::new("network", format!("is not a network: {error}"))
    }

    /// The error about the recipe called `recipe`.
    pub fn of(self, recipe: &str, place: Option<Position>) -> RecipeError {
        let Self { key, problem } = self;
        RecipeError::Setting { recipe: recipe.to_owned(), key, place, problem }
    }
}

impl Recipe {
    /// Whether this recipe can be run: for one whose fields were set.
    ///
    /// # Errors
    /// When a setting is out of its range, or the network does not fit together.
    pub fn check(&self) -> Result<(), RecipeError> {
        self.faults().map_err(|fault| fault.of(&self.name, None))
    }

    /// The first setting that no run can have.
    pub(super) fn faults(&self) -> Result<(), Fault> {
        if ["", ".", ".."].contains(&self.name.as_str())
            || self.name.contains(['/', '\\'])
            || self.name.contains(char::is_control)
        {
            let problem =
                format!("must be a word that can name a directory, but is {:?}", self.name);
            return Err(Fault::new("name", problem));
        }
        if self.data.is_empty() {
            return Err(Fault::new("data", "must name a data set or a folder, but is empty"));
        }
        if !(1..=MOST_IMAGES).contains(&self.batch) {
            let problem = format!("must be from 1 to {MOST_IMAGES}, but is {}", self.batch);
            return Err(Fault::new("batch", problem));
        }
        if !(1..=MOST_BATCHES).contains(&self.accumulate) {
            let problem = format!("must be from 1 to {MOST_BATCHES}, but is {}", self.accumulate);
            return Err(Fault::new("accumulate", problem));
        }
        if let Some(norm) = self.clip_norm {
            number("clip_norm", norm, "above 0 and finite", norm > 0.0)?;
        }
        if let Objective::Contrastive { weight, margin } = self.loss {
            let key = |name: &str| format!("loss.contrastive.{name}");
            number(&key("weight"), weight, "at least 0 and finite", weight >= 0.0)?;
            number(&key("margin"), margin, "above 0 and below 2", margin > 0.0 && margin < 2.0)?;
        }
        above_0("steps", self.steps)?;
        above_0("evaluate_every", self.evaluate_every)?;
        above_0("log_every", self.log_every)?;
        above_0("checkpoint_every", self.checkpoint_every)?;
        self.learning_rate_faults()?;
        self.sgd_faults()?;
        self.expected_faults()?;
        self.network_faults()
    }

    fn learning_rate_faults(&self) -> Result<(), Fault> {
        let (LearningRate::Steps { rate, factor, .. } | LearningRate::Plateau { rate, factor, .. }) =
            &self.learning_rate;
        for (key, value) in [("learning_rate.rate", *rate), ("learning_rate.factor", *factor)] {
            number(key, value, "above 0 and finite", value > 0.0)?;
        }
        match &self.learning_rate {
            LearningRate::Steps { at, .. } => {
                let rising = at.windows(2).all(|two| two[0] < two[1]);
                if !rising || at.iter().any(|step| !(1..self.steps).contains(step)) {
                    let rule = format!("must rise, from 1 to below the {} steps", self.steps);
                    let problem = format!("{rule} of the run, but is {at:?}");
                    return Err(Fault::new("learning_rate.at", problem));
                }
                Ok(())
            }
            LearningRate::Plateau { patience, .. } => {
                above_0("learning_rate.patience", *patience)?;
                if self.validation == 0 {
                    let problem =
                        "must be at least 1 where the learning rate waits for a plateau, but is 0";
                    return Err(Fault::new("validation", problem));
                }
                Ok(())
            }
        }
    }

    fn sgd_faults(&self) -> Result<(), Fault> {
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

    fn expected_faults(&self) -> Result<(), Fault> {
        for (margin, expected) in &self.expected {
            let key = |name: &str| format!("expected.{margin}.{name}");
            if !margin.parse::<f64>().is_ok_and(|margin| Margin::new(margin).is_ok()) {
                let problem = "is not a margin: results are expected by margin, \"1\" for softmax";
                return Err(Fault::new(format!("expected.{margin}"), problem));
            }
            let (error, tolerance) = (expected.test_error, expected.tolerance);
            number(&key("test_error"), error, "from 0 to 100", (0.0..=100.0).contains(&error))?;
            number(&key("tolerance"), tolerance, "at least 0 and finite", tolerance >= 0.0)?;
        }
        Ok(())
    }

    fn network_faults(&self) -> Result<(), Fault> {
        let fault = |error| Fault::network(&error);
        let config = self.network.config().map_err(fault)?;
        config.stack().map_err(fault)?;
        let [_, height, width] = config.input;
        let pad = self.augment.pad;
        if pad >= height.min(width) {
            let problem = format!(
                "must be less than the sides of the images, {height} x {width}, but is {pad}"
            );
            return Err(Fault::new("augment.pad", problem));
        }
        Ok(())
    }
}

fn above_0(key: &str, value: u64) -> Result<(), Fault> {
    if value > 0 { Ok(()) } else { Err(Fault::new(key, "must be at least 1, but is 0")) }
}

fn number(key: &str, value: f64, rule: &str, holds: bool) -> Result<(), Fault> {
    if holds && value.is_finite() {
        return Ok(());
    }
    Err(Fault::new(key, format!("must be {rule}, but is {value}")))
}
