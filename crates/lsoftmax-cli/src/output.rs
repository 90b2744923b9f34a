//! stdout and stderr.

use std::io::Write;

/// Prints a result to stdout.
pub fn print(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

/// Prints a line to stderr. A closed stderr is no reason to stop.
pub fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
