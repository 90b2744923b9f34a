//! The `lsoftmax` program.
//!
//! Three layers: [`commands`] declares the arguments as clap parses them and turns them into the
//! checked types of `lsoftmax-lab`; the lab does the work; the command makes its result a text. What
//! goes wrong on the way is a [`failure::Failure`]: an exit code and one sentence.
//!
//! A new command is a file in `commands`, with its arguments, its examples and its `run`, and a
//! variant of [`commands::Command`].

mod argument_groups;
mod commands;
mod failure;
mod help;
mod output;
mod progress;
mod ranks;
mod signals;
mod text_table;
mod usage;
mod value_parsers;

use std::alloc::System;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use peakmem_alloc::{INSTRUMENTED_SYSTEM, PeakMemAlloc};

use commands::Arguments;

/// Counts the heap for `bench`. It passes zeroed and resized allocations on as such; a counter that
/// does not makes the steps of a large head slower than they are.
#[global_allocator]
static HEAP: &PeakMemAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    let given = help::wrapped(Arguments::command()).try_get_matches();
    let arguments = match given.and_then(|given| Arguments::from_arg_matches(&given)) {
        Ok(arguments) => arguments,
        Err(error) if usage::is_help(&error) => {
            if ranks::is_first() {
                let _ = error.print();
            }
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            return ranks::report_at_start(usage::failure(&error, std::env::args_os()));
        }
    };
    let session = match ranks::session() {
        Ok(session) => session,
        Err(failure) => return ranks::report_at_start(failure),
    };
    let print = |text: String| if ranks::is_first() { output::print_result(&text) } else { Ok(()) };
    match arguments.run(&session).and_then(print) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => ranks::report(&session, failure),
    }
}
