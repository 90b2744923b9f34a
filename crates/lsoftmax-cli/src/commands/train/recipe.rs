//! From the arguments of `lsoftmax train` to a recipe.

use std::path::{Path, PathBuf};

use clap::{Args, Id};
use lsoftmax::{Precision, SampleRate};
use lsoftmax_data::{DataDir, DataSource};
use lsoftmax_lab::head::{HeadKind, HeadSettings};
use lsoftmax_lab::model_file::ModelDescription;
use lsoftmax_lab::optimiser::{AdamW, Optimiser, Sgd};
use lsoftmax_lab::recipe::{Init, Keep, Lambda, LearningRate, NetworkChoice, OnDivergence, Recipe};

use crate::argument_groups::bad_head;
use crate::failure::Failure;
use crate::value_parsers::{
    count, head, image_size, keep, lambda_of_run, number, optimiser, precision, sample_rate, size,
    whole_number,
};

// The arguments that choose or change a recipe. A resumed run keeps its own: `--resume` conflicts
// with every argument that is added here. Only its images may have been moved (`--data`), and its length
// may be another (`--steps`).
#[derive(Debug, Args)]
pub struct RecipeArguments {
    /// A recipe: mnist, mnist-2d, cifar10, … (`lsoftmax train --list`), or the path of a .toml file
    #[arg(value_name = "RECIPE")]
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
    /// The share of the classes that a step uses besides those of its images, for very many classes
    #[arg(long, value_name = "R", value_parser = sample_rate, allow_negative_numbers = true)]
    sample_rate: Option<SampleRate>,
    /// Divide the classes of the head over the ranks under mpirun, so that each has the weights of its own
    /// alone, for more classes than fit into one machine
    #[arg(long)]
    shard_classes: bool,
    /// λ instead of the recipe's: auto, which follows the accuracy under the margin, or a number for a constant λ
    #[arg(long, value_name = "λ", value_parser = lambda_of_run, allow_negative_numbers = true)]
    lambda: Option<Lambda>,
    /// The seed of initial weights, order and augmentation
    #[arg(long, value_parser = whole_number, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Steps; the schedules are stretched to fit
    #[arg(long, value_name = "COUNT", value_parser = count, allow_negative_numbers = true)]
    pub steps: Option<u64>,
    /// Do not stretch the schedules to --steps
    #[arg(long, requires = "steps")]
    pub keep_schedules: bool,
    /// The size of the network's images instead of the recipe's, width x height
    #[arg(long, value_name = "WxH", value_parser = image_size)]
    image_size: Option<(u32, u32)>,
    /// Images of each class in a batch, as the contrastive loss needs; the batch is a multiple
    #[arg(long, value_name = "K", value_parser = size, allow_negative_numbers = true)]
    images_per_class: Option<usize>,
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
    /// Let the learning rate fall to 0 by half a cosine, instead of by the recipe's schedule
    #[arg(long)]
    cosine: bool,
    /// First steps in which the learning rate rises linearly
    #[arg(long, value_name = "STEPS", value_parser = whole_number, allow_negative_numbers = true)]
    warmup: Option<u64>,
    /// The optimiser: sgd or nesterov with the recipe's momentum, or adamw, which needs a --learning-rate
    #[arg(long, value_parser = optimiser())]
    optimiser: Option<Optimiser>,
    /// The optimiser's weight decay
    #[arg(long, value_name = "DECAY", allow_negative_numbers = true)]
    weight_decay: Option<f64>,
    /// Start from a trained model: a finished run, or a safetensors file with the recipe's network. Without a
    /// recipe, the network is that of the run
    #[arg(long, value_name = "RUN|FILE")]
    init: Option<PathBuf>,
    /// Leave the first N units as they are in --init
    #[arg(long, value_name = "N", value_parser = size, allow_negative_numbers = true)]
    freeze: Option<usize>,
    /// Multiply the learning rate of all but the head, after --init
    #[arg(long, value_name = "FACTOR", allow_negative_numbers = true)]
    trunk_rate: Option<f64>,
    /// The model to keep: the last one, or the best on the held-out images
    #[arg(long, value_parser = keep())]
    keep: Option<Keep>,
    /// End the run after N evaluations on the held-out images without improvement
    #[arg(long, value_name = "N", value_parser = whole_number, allow_negative_numbers = true)]
    early_stopping: Option<u64>,
    /// Evaluate and keep an exponential moving average of the weights, with this decay
    #[arg(long, value_name = "DECAY", allow_negative_numbers = true)]
    average: Option<f64>,
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
        ids.filter(|id| !["data", "steps", "keep_schedules"].contains(&id.as_str())).collect()
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
            sample_rate,
            shard_classes,
            lambda,
            seed,
            steps,
            keep_schedules,
            image_size,
            images_per_class,
            batch,
            accumulate,
            clip_norm,
            validation,
            learning_rate,
            cosine,
            warmup,
            optimiser,
            weight_decay,
            init,
            freeze,
            trunk_rate,
            keep,
            early_stopping,
            average,
            precision,
        } = self;
        let given = [
            ("--head", head.is_some()),
            ("--margin", margin.is_some()),
            ("--scale", scale.is_some()),
            ("--learned-scale", learned_scale),
            ("--sample-rate", sample_rate.is_some()),
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
            recipe = if keep_schedules { recipe.with_steps(steps) } else { recipe.scaled(steps) };
        }
        if let Some(data) = data.filter(|data| *data != recipe.data) {
            recipe = recipe.with_data(data);
        }
        // The paper's result is not that of another λ, batch size, optimiser or learning rate.
        let other_batch = batch.is_some() || accumulate.is_some() || images_per_class.is_some();
        let other_rate = learning_rate.is_some() || cosine || warmup.is_some();
        let other_optimiser = optimiser.is_some() || weight_decay.is_some() || clip_norm.is_some();
        let other_model = init.is_some() || average.is_some();
        if lambda.is_some() || other_batch || other_rate || other_optimiser || other_model {
            recipe.expected.clear();
        }
        recipe = with_optimiser(recipe, optimiser, weight_decay, learning_rate.is_some())?;
        if let Some(rate) = learning_rate {
            recipe.learning_rate = recipe.learning_rate.with_rate(rate);
        }
        if cosine {
            let rate = recipe.learning_rate.rate();
            recipe.learning_rate = LearningRate::Cosine { rate, min: 0.0, until: None };
        }
        recipe.warmup = warmup.unwrap_or(recipe.warmup);
        recipe.init = init.map(Init::new).or(recipe.init);
        match &mut recipe.init {
            Some(init) => {
                init.freeze = freeze.unwrap_or(init.freeze);
                init.trunk_rate = trunk_rate.unwrap_or(init.trunk_rate);
            }
            None if freeze.is_some() || trunk_rate.is_some() => {
                let problem = "--freeze and --trunk-rate are for a trained model: give --init";
                return Err(Failure::bad_input(problem));
            }
            None => {}
        }
        recipe.shard_classes |= shard_classes;
        recipe.keep = keep.unwrap_or(recipe.keep);
        recipe.early_stopping = early_stopping.or(recipe.early_stopping);
        recipe.average = average.or(recipe.average);
        if let Some((width, height)) = image_size {
            let mut network = recipe.network_config()?;
            network.input = [network.input[0], height as usize, width as usize];
            recipe.network = NetworkChoice::Described(network);
            recipe.expected.clear();
        }
        recipe.images_per_class = images_per_class.or(recipe.images_per_class);
        recipe.validation = validation.unwrap_or(recipe.validation);
        let chosen = match head {
            Some(kind) => HeadSettings::new(kind, margin, scale),
            None => recipe.head.with(margin, scale),
        };
        let chosen = chosen.and_then(|head| match learned_scale {
            true => head.with_learned_scale(),
            false => Ok(head),
        });
        let chosen = chosen.map_err(bad_head)?;
        recipe = recipe.with_head(match sample_rate {
            Some(rate) => chosen.with_sample_rate(rate),
            None => chosen,
        });
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
            let data = self.data.as_ref().ok_or_else(nothing_to_train)?;
            let recipe = Recipe::for_data(data, self.quick, data_dir)?;
            return Ok(match self.init.as_ref().filter(|init| init.is_dir()) {
                Some(run) => recipe.with_network(ModelDescription::read(run)?.network),
                None => recipe,
            });
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

fn nothing_to_train() -> Failure {
    Failure::bad_input(
        "give a recipe, as in `lsoftmax train mnist --quick` (`lsoftmax train --list` shows all), or a folder of images with --data",
    )
}

/// The recipe with the optimiser and weight decay that were asked for.
fn with_optimiser(
    recipe: Recipe,
    choice: Option<Optimiser>,
    weight_decay: Option<f64>,
    has_rate: bool,
) -> Result<Recipe, Failure> {
    let mut optimiser = recipe.optimiser();
    match (choice, &mut optimiser) {
        (None, _) | (Some(Optimiser::AdamW(_)), Optimiser::AdamW(_)) => {}
        (Some(Optimiser::Sgd(chosen)), Optimiser::Sgd(sgd)) => sgd.nesterov = chosen.nesterov,
        (Some(_), _) if !has_rate => {
            return Err(Failure::bad_input(format!(
                "the learning rate of {} is for another optimiser: give --learning-rate, which is about 0.001 for adamw and 0.1 for sgd",
                recipe.name
            )));
        }
        (Some(chosen), _) => optimiser = chosen,
    }
    if let Some(decay) = weight_decay {
        let (Optimiser::Sgd(Sgd { weight_decay, .. })
        | Optimiser::AdamW(AdamW { weight_decay, .. })) = &mut optimiser;
        *weight_decay = decay;
    }
    Ok(recipe.with_optimiser(optimiser))
}
