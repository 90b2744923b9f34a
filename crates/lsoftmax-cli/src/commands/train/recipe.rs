//! From the arguments of `lsoftmax train` to a recipe.

use std::path::Path;

use clap::{Args, Id};
use lsoftmax::Precision;
use lsoftmax_data::{DataDir, DataSource};
use lsoftmax_lab::head::{HeadKind, HeadSettings};
use lsoftmax_lab::recipe::{Lambda, OnDivergence, Recipe};

use crate::argument_groups::bad_head;
use crate::failure::Failure;
use crate::value_parsers::{count, head, lambda_of_run, number, precision, size, whole_number};

// The arguments that choose or change a recipe. A resumed run keeps its own: `--resume` conflicts
// with every argument that is added here. Only its images may have been moved: `--data`.
#[derive(Debug, Args)]
pub struct RecipeArguments {
    /// A recipe: mnist, mnist-2d, cifar10, … (`lsoftmax train --list`), or the path of a .toml file
    #[arg(value_name = "RECIPE", required_unless_present_any = ["resume", "data", "list"])]
    recipe: Option<String>,
    /// Other data than the recipe's: a data set, or a folder with one directory of images per class
    #[arg(long, value_name = "DATA")]
    pub data: Option<DataSource>,
    /// The recipe's variant that takes a minute or two
    #[arg(long)]
    quick: bool,
    /// The head instead of the recipe's, with the margin and the scale of its paper and, for cosface and
    /// arcface, λ = 0
    #[arg(long, value_name = "NAME", value_parser = head())]
    head: Option<HeadKind>,
    /// The margin m: any number from 1 (softmax) to 1000 for l-softmax and a-softmax, from 0 to 2 for
    /// cosface, an angle in radians for arcface
    #[arg(long, value_name = "M", value_parser = number, allow_negative_numbers = true)]
    margin: Option<f64>,
    /// The scale s of cosface, arcface and normsoftmax
    #[arg(long, value_name = "S", value_parser = number, allow_negative_numbers = true)]
    scale: Option<f64>,
    /// Learn the scale, starting at --scale
    #[arg(long)]
    learned_scale: bool,
    /// λ instead of the recipe's: auto, which needs no tuning, or a number for a constant λ
    #[arg(long, value_name = "λ", value_parser = lambda_of_run, allow_negative_numbers = true)]
    lambda: Option<Lambda>,
    /// The seed of initial weights, order and augmentation
    #[arg(long, value_parser = whole_number, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Steps; the schedules are stretched to fit
    #[arg(long, value_name = "COUNT", value_parser = count, allow_negative_numbers = true)]
    steps: Option<u64>,
    /// Do not stretch the schedules to --steps
    #[arg(long, requires = "steps")]
    keep_schedules: bool,
    /// Images per batch
    #[arg(long, value_name = "N", value_parser = size, allow_negative_numbers = true)]
    batch: Option<usize>,
    /// Batches per step, whose gradients are averaged; steps and schedules count optimiser steps
    #[arg(long, value_name = "N", value_parser = whole_number, allow_negative_numbers = true)]
    accumulate: Option<u64>,
    /// Scale the gradients of a step down to this norm if theirs is larger
    #[arg(long, value_name = "NORM", allow_negative_numbers = true)]
    clip_norm: Option<f64>,
    /// Training images held out for validation; 0 trains on all of them
    #[arg(long, value_name = "N", value_parser = size, allow_negative_numbers = true)]
    validation: Option<usize>,
    /// The initial learning rate
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    learning_rate: Option<f64>,
    /// The precision of products; sums, weights and statistics are always f32
    #[arg(long, value_parser = precision())]
    precision: Option<Precision>,
}

impl RecipeArguments {
    /// The ids of the arguments that a resumed run does not have. clap reports a conflict with their
    /// group as one with every argument of the group, and a conflict with these as one with those that
    /// were given.
    pub fn fixed_ids() -> Vec<Id> {
        let command = Self::augment_args(clap::Command::new("recipe"));
        let ids = command.get_arguments().map(|argument| argument.get_id().clone());
        ids.filter(|id| id != "data").collect()
    }

    /// The recipe that was chosen, with the changes that were asked for.
    pub fn build(
        self,
        on_divergence: Option<OnDivergence>,
        data_dir: &DataDir,
    ) -> Result<Recipe, Failure> {
        let mut recipe = self.base(data_dir)?;
        let Self {
            recipe: _,
            data,
            quick: _,
            head,
            margin,
            scale,
            learned_scale,
            lambda,
            seed,
            steps,
            keep_schedules,
            batch,
            accumulate,
            clip_norm,
            validation,
            learning_rate,
            precision,
        } = self;
        let given = [
            ("--head", head.is_some()),
            ("--margin", margin.is_some()),
            ("--scale", scale.is_some()),
            ("--learned-scale", learned_scale),
            ("--lambda", lambda.is_some()),
        ];
        let useless = given.iter().find(|(_, given)| *given && !recipe.loss.uses_margin());
        if let Some((argument, _)) = useless {
            return Err(Failure::bad_input(format!(
                "{} trains the hinge loss, which has no margin: leave {argument} out",
                recipe.name
            )));
        }
        if let Some(steps) = steps {
            recipe = if keep_schedules { recipe.truncated_to(steps) } else { recipe.scaled(steps) };
        }
        if let Some(data) = data.filter(|data| *data != recipe.data) {
            recipe = recipe.with_data(data);
        }
        // The paper's result is not that of another λ, batch size, learning rate or clipping.
        let other_batch = batch.is_some() || accumulate.is_some();
        if lambda.is_some() || other_batch || clip_norm.is_some() || learning_rate.is_some() {
            recipe.expected.clear();
        }
        if let Some(rate) = learning_rate {
            recipe.learning_rate = recipe.learning_rate.with_rate(rate);
        }
        recipe.validation = validation.unwrap_or(recipe.validation);
        let chosen = match head {
            Some(kind) => HeadSettings::new(kind, margin, scale),
            None => recipe.head.with(margin, scale),
        };
        let chosen = chosen.and_then(|head| match learned_scale {
            true => head.with_learned_scale(),
            false => Ok(head),
        });
        recipe = recipe.with_head(chosen.map_err(bad_head)?);
        recipe.lambda = lambda.unwrap_or(recipe.lambda);
        recipe.seed = seed.unwrap_or(recipe.seed);
        recipe.batch = batch.unwrap_or(recipe.batch);
        recipe.accumulate = accumulate.unwrap_or(recipe.accumulate);
        recipe.clip_norm = clip_norm.or(recipe.clip_norm);
        recipe.precision = precision.unwrap_or(recipe.precision);
        recipe.on_divergence = on_divergence.unwrap_or(recipe.on_divergence);
        recipe.check()?;
        Ok(recipe)
    }

    /// The recipe as it was written: a file, a built-in one, or the one for the data.
    fn base(&self, data_dir: &DataDir) -> Result<Recipe, Failure> {
        let Some(name) = &self.recipe else {
            let data = self.data.as_ref().expect("clap requires a recipe or data");
            return Ok(Recipe::for_data(data, self.quick, data_dir)?);
        };
        Ok(match (name.ends_with(".toml"), self.quick) {
            (true, true) => {
                let problem = format!("{name} has no quick variant: give --steps");
                return Err(Failure::bad_input(problem));
            }
            (true, false) => Recipe::from_file(Path::new(name))?,
            (false, true) => Recipe::quick(name)?,
            (false, false) => Recipe::built_in(name)?,
        })
    }
}
