//! `lsoftmax network`.

use std::path::Path;

use clap::Args;
use lsoftmax_lab::recipe::Recipe;
use lsoftmax_lab::run::RECIPE;
use lsoftmax_nn::NetworkConfig;

use crate::argument_groups::OutputArguments;
use crate::failure::Failure;
use crate::help::EXIT_CODES;

const EXAMPLES: &str = "\
Examples:
  lsoftmax network resnet20
  lsoftmax network my.toml
  lsoftmax network runs/my-photos-m4-s1 --json";

/// Print the layers of a network: sizes, parameters and multiply-adds
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct NetworkCommand {
    /// A network (mnist-2d, mnist, cifar10, cifar100, lfw, resnet20, sphereface20), a recipe that ends in .toml, or a run
    #[arg(value_name = "NETWORK|FILE|RUN")]
    network: String,
    #[command(flatten)]
    output: OutputArguments,
}

impl NetworkCommand {
    pub fn run(self) -> Result<String, Failure> {
        let path = Path::new(&self.network);
        let recipe = path.join(RECIPE);
        let network = if recipe.is_file() {
            Recipe::from_file(&recipe)?.network_config()?
        } else if self.network.ends_with(".toml") {
            Recipe::from_file(path)?.network_config()?
        } else {
            NetworkConfig::named(&self.network)?
        };
        self.output.render(&network.summary()?, |summary| summary.to_string())
    }
}
