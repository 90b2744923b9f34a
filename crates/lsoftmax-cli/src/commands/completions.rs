//! `lsoftmax completions`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Arguments;
use crate::failure::Failure;

/// Print a shell completion script
#[derive(Debug, Args)]
pub struct CompletionsCommand {
    /// The shell
    shell: Shell,
}

impl CompletionsCommand {
    pub fn run(self) -> Result<String, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "lsoftmax", &mut script);
        String::from_utf8(script)
            .map_err(|error| Failure::failed(format!("the script is not UTF-8 ({error})")))
    }
}
