//! stdout and stderr.

use std::io::{ErrorKind, Write};
use std::path::Path;

use lsoftmax_lab::figures::{FigureError, Picture};

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

/// Writes a picture as PNG or SVG, as the name of the file says.
pub fn write_picture(picture: &Picture, path: &Path) -> Result<(), FigureError> {
    let is_png = path.extension().is_some_and(|ending| ending == "png");
    if is_png { picture.write_png(path, 2.0) } else { picture.write(path) }
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
