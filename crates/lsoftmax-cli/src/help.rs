//! The help: how it is wrapped, and sections that several commands end with.

use std::iter::once;

use clap::Command;
use terminal_size::{Width, terminal_size};

pub const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  the machine failed, for example a result could not be written
  2  the input or the arguments are wrong; one sentence on stderr says what and where";

/// The exit codes of commands that take long.
pub const WATCHED_EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    the machine failed, for example a result could not be written
  2    the input or the arguments are wrong; one sentence on stderr says what and where
  130  stopped by Ctrl-C";

/// The exit codes of commands that train.
pub const TRAIN_EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    the machine failed, for example a checkpoint could not be written
  2    the arguments or the data are wrong, or training diverged; one sentence on stderr says what
  130  stopped by Ctrl-C; the run is kept and can be resumed";

/// The environment variables that choose kernels and threads.
pub const KERNELS: &str = "\
LSOFTMAX_KERNEL=portable|neon|avx2|avx512|avx512-bf16|amx limits the instruction set, and
RAYON_NUM_THREADS the number of threads.";

/// The width where there is no terminal, as clap's.
const DEFAULT_WIDTH: usize = 100;

/// The command with its help wrapped to the terminal. clap wraps arguments well, but lets the rest of a
/// long example begin where the next example does.
pub fn wrapped(command: Command) -> Command {
    let terminal = terminal_size().map(|(Width(width), _)| usize::from(width));
    let variable = || std::env::var("COLUMNS").ok().and_then(|width| width.parse().ok());
    wrapped_to(terminal.or_else(variable).unwrap_or(DEFAULT_WIDTH), command)
}

fn wrapped_to(width: usize, command: Command) -> Command {
    let ending = command.get_after_help().map(|text| wrap(&text.to_string(), width));
    let command = match ending {
        Some(ending) => command.after_help(ending),
        None => command,
    };
    command.term_width(width).mut_subcommands(|inner| wrapped_to(width, inner))
}

/// Wraps examples, lists and paragraphs. The rest of an indented line begins where its last column does, or
/// deeper than the line itself if it has one column; lines that are not indented are one paragraph.
fn wrap(text: &str, width: usize) -> String {
    let mut paragraphs: Vec<String> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        let continues = open && !line.is_empty() && !line.starts_with(' ');
        match paragraphs.last_mut().filter(|_| continues) {
            Some(paragraph) => *paragraph = format!("{paragraph} {line}"),
            None => paragraphs.push(line.to_owned()),
        }
        open = !line.is_empty() && !line.starts_with(' ');
    }
    paragraphs.iter().map(|line| wrap_line(line, width)).collect::<Vec<_>>().join("\n")
}

fn wrap_line(line: &str, width: usize) -> String {
    let text = line.trim_start();
    let indent = line.len() - text.len();
    let hanging = match text.rfind("  ") {
        Some(gap) => {
            let (first, last) = line.split_at(indent + gap + 2);
            let column = first.chars().count();
            if column + width / 4 > width {
                let below = format!("{}{last}", " ".repeat(indent + 4));
                return format!(
                    "{}\n{}",
                    wrap_line(first.trim_end(), width),
                    wrap_line(&below, width)
                );
            }
            column
        }
        None if indent == 0 => 0,
        None => indent + 4,
    };
    let (mut lines, mut words) = (Vec::new(), line.split(' '));
    let mut current = words.next().unwrap_or_default().to_owned();
    for word in words {
        // Blanks between columns are empty words.
        if current.chars().count() + 1 + word.chars().count() <= width {
            current = format!("{current} {word}");
        } else if !word.is_empty() {
            lines.push(current.trim_end().to_owned());
            current = format!("{}{word}", " ".repeat(hanging));
        }
    }
    lines.into_iter().chain(once(current)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn the_rest_of_an_example_does_not_look_like_the_next_one() {
        let text = "Examples:\n  run a    what this does here\n  run a long command\n\nSome prose\nthat is long.";
        let expected = "Examples:\n  run a    what this\n           does here\n  run a long command\n\nSome prose that is\nlong.";
        assert_eq!(wrap(text, 20), expected);
        assert_eq!(wrap("  run a long command", 12), "  run a long\n      command");
        assert_eq!(
            wrap("  run a command   what it does", 20),
            "  run a command\n      what it does"
        );
    }
}
