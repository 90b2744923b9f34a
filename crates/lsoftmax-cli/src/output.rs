//! stdout and stderr.

use std::io::{ErrorKind, Write};

use crate::failure::Failure;

/// Prints a result to stdout.
pub fn print_result(text: &str) -> Result<(), Failure> {
    match print(text) {
        Ok(()) => Ok(()),
        // The reader has seen enough, as `head` has.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::failed(format!("the result cannot be printed ({error})"))),
    }
}

fn print(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

/// Prints a line to stderr. A closed stderr is no reason to stop.
pub fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A name on one line, with its control characters escaped, which could otherwise act on the terminal.
pub fn printable(name: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    name.chars().map(escape).collect()
}
