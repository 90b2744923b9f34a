//! Arguments that clap refused.

use std::ffi::OsString;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::commands::Arguments;
use crate::failure::Failure;

/// Whether the error is a request for help or the version, which succeeds.
pub fn is_help(error: &clap::Error) -> bool {
    matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
}

/// clap's sentence without its usage lines, with what may have been meant, and the help to read. `words` are the program's own
/// arguments, its name first.
pub fn failure(error: &clap::Error, words: impl IntoIterator<Item = OsString>) -> Failure {
    let text = error.render().to_string();
    let sentence: Vec<_> =
        text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
    let sentence = sentence.join(" ");
    let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
    let meant = suggestion(error).map(|word| format!(" (did you mean {word}?)"));
    let meant = meant.unwrap_or_default();
    let command = command_name(words.into_iter().skip(1));
    Failure::bad_input(format!("{sentence}{meant}; try `{command} --help`"))
}

/// The argument, value or command that is most like the one that clap does not know.
fn suggestion(error: &clap::Error) -> Option<&str> {
    let kinds =
        [ContextKind::SuggestedArg, ContextKind::SuggestedValue, ContextKind::SuggestedSubcommand];
    match kinds.into_iter().find_map(|kind| error.get(kind))? {
        ContextValue::String(word) => Some(word),
        ContextValue::Strings(words) => words.first().map(String::as_str),
        _ => None,
    }
}

/// The innermost command that the words name, such as `lsoftmax data fetch`.
fn command_name(words: impl Iterator<Item = OsString>) -> String {
    let root = Arguments::command();
    let mut name = root.get_name().to_owned();
    let mut command = &root;
    for word in words {
        let Some(inner) = command.find_subcommand(&word) else { break };
        name = format!("{name} {}", inner.get_name());
        command = inner;
    }
    name
}
