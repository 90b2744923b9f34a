//! The `lsoftmax` program: arguments in, a call to the lab, a printed result out.

mod arguments;
mod bench;
mod data;
mod demo;
mod loss;
mod train;
mod using;

use std::alloc::System;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::error::ErrorKind as UsageKind;
use clap::{CommandFactory, Parser};
use lsoftmax_lab::bench::BenchError;
use lsoftmax_lab::data::{DataError, fetch::FetchError};
use lsoftmax_lab::demo::DemoError;
use lsoftmax_lab::loss::LossError;
use lsoftmax_lab::recipe::RecipeError;
use lsoftmax_lab::threads::ThreadsError;
use lsoftmax_lab::train::TrainError;
use lsoftmax_lab::using::UseError;
use lsoftmax_nn::NetworkError;
use peakmem_alloc::{INSTRUMENTED_SYSTEM, PeakMemAlloc};

use arguments::{Arguments, Command};

/// Counts the heap for `bench`. It passes zeroed and resized allocations on as such; a counter that
/// does not makes the steps of a large head slower than they are.
#[global_allocator]
static HEAP: &PeakMemAlloc<System> = &INSTRUMENTED_SYSTEM;

const FAILED: u8 = 1;
const BAD_INPUT: u8 = 2;
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let text = match run(arguments) {
        Ok(text) => text,
        Err(error) => return fail(exit_code(&error), &format!("{error}")),
    };
    match print(&text) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the output has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, &format!("the result cannot be printed ({error})")),
    }
}

fn run(arguments: Arguments) -> anyhow::Result<String> {
    // A benchmark starts as many threads as it is told to.
    if !matches!(arguments.command, Some(Command::Bench { .. } | Command::Completions { .. })) {
        lsoftmax_lab::threads::start()?;
    }
    match arguments.command {
        None => demo::run(),
        Some(Command::Loss(arguments)) => loss::run(arguments),
        Some(Command::Train(arguments)) => train::run(*arguments),
        Some(Command::Eval(arguments)) => using::eval(arguments),
        Some(Command::Predict(arguments)) => using::predict(arguments),
        Some(Command::Embed(arguments)) => using::embed(arguments),
        Some(Command::Export(arguments)) => using::export(arguments),
        Some(Command::Completions { shell }) => completions(shell),
        Some(Command::Bench { bench }) => bench::run(bench),
        Some(Command::Data { data }) => data::run(data),
    }
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<String> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "lsoftmax", &mut script);
    String::from_utf8(script).context("the script is not text")
}

fn print(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

/// 2 when other input would help, 130 when the program was told to stop, else 1.
fn exit_code(error: &anyhow::Error) -> u8 {
    let code = |bad_input: bool| if bad_input { BAD_INPUT } else { FAILED };
    if error.is::<train::Interrupted>() || error.is::<demo::Interrupted>() {
        INTERRUPTED
    } else if let Some(error) = error.downcast_ref::<FetchError>() {
        code(error.is_bad_input())
    } else if let Some(error) = error.downcast_ref::<LossError>() {
        code(error.is_bad_input())
    } else if let Some(error) = error.downcast_ref::<TrainError>() {
        code(error.is_bad_input())
    } else if let Some(error) = error.downcast_ref::<UseError>() {
        code(error.is_bad_input())
    } else if let Some(error) = error.downcast_ref::<DemoError>() {
        code(error.is_bad_input())
    } else {
        code(
            error.is::<BenchError>()
                || error.is::<NetworkError>()
                || error.is::<RecipeError>()
                || error.is::<DataError>()
                || error.is::<ThreadsError>()
                || error.is::<train::Contradiction>(),
        )
    }
}

/// A line on stderr, if anybody listens.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// One line on stderr. What came out of a file or a name may hold line breaks or escape codes.
fn fail(code: u8, sentence: &str) -> ExitCode {
    let line: String = sentence.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    tell(&format!("lsoftmax: {line}"));
    ExitCode::from(code)
}

/// Help and version as they are; of what was wrong with the arguments only the sentence.
fn usage(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), UsageKind::DisplayHelp | UsageKind::DisplayVersion) {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    let sentence: Vec<_> =
        text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim).collect();
    let sentence = sentence.join(" ");
    let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
    let words: Vec<_> = std::env::args_os().skip(1).take(2).collect();
    let word = |index: usize| words.get(index).and_then(|word| word.to_str());
    let help = match word(0) {
        Some("loss") => "lsoftmax loss --help",
        Some("bench") => match word(1) {
            Some("train") => "lsoftmax bench train --help",
            _ => "lsoftmax bench head --help",
        },
        Some("data") => "lsoftmax data --help",
        Some("train") => "lsoftmax train --help",
        Some("eval") => "lsoftmax eval --help",
        Some("predict") => "lsoftmax predict --help",
        Some("embed") => "lsoftmax embed --help",
        Some("export") => "lsoftmax export --help",
        _ => "lsoftmax --help",
    };
    fail(BAD_INPUT, &format!("{sentence}; try `{help}`"))
}

/// A result as one line of JSON.
fn json(result: &impl serde::Serialize) -> anyhow::Result<String> {
    serde_json::to_string(result).context("the result cannot be written as JSON")
}
