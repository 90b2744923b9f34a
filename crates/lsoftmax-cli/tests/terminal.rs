//! Training on a terminal: a pseudo-terminal of `script`, with Ctrl-C typed into it.

#![cfg(unix)]

mod program;

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use program::run::{TINY, is_ignored, recipe, temporary_run, text_of};

const WIDTH: usize = 80;
const SIGINT: u32 = 2;

/// What a terminal shows: as much of one as progress bars need.
#[derive(Default)]
struct Screen {
    lines: Vec<Vec<char>>,
    row: usize,
    column: usize,
}

impl Screen {
    fn of(text: &str) -> Self {
        let mut screen = Self::default();
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            match character {
                '\r' => screen.column = 0,
                '\n' => screen.row += 1,
                '\u{1b}' => {
                    assert_eq!(characters.next(), Some('['), "an unknown sequence");
                    let mut count = String::new();
                    let end = characters.find(|c| {
                        count.push(*c);
                        c.is_ascii_alphabetic()
                    });
                    count.pop();
                    screen.control(end.expect("an end"), &count);
                }
                character => screen.put(character),
            }
        }
        screen
    }

    fn put(&mut self, character: char) {
        // A line that is full is left with the next character.
        if self.column == WIDTH {
            (self.row, self.column) = (self.row + 1, 0);
        }
        self.lines.resize(self.lines.len().max(self.row + 1), Vec::new());
        let line = &mut self.lines[self.row];
        line.resize(line.len().max(self.column + 1), ' ');
        line[self.column] = character;
        self.column += 1;
    }

    fn control(&mut self, end: char, count: &str) {
        let number = count.parse().unwrap_or(1);
        match end {
            'A' => self.row = self.row.saturating_sub(number),
            'B' => self.row += number,
            'K' => {
                let from = if count == "2" { 0 } else { self.column };
                self.lines.get_mut(self.row).into_iter().for_each(|line| line.truncate(from));
            }
            'h' | 'l' | 'm' => {}
            other => panic!("an unknown sequence: {count}{other}"),
        }
    }

    fn text(&self) -> Vec<String> {
        let line = |line: &Vec<char>| line.iter().collect::<String>().trim_end().to_owned();
        self.lines.iter().map(line).filter(|line| !line.is_empty()).collect()
    }
}

#[test]
fn after_ctrl_c_the_evaluations_and_the_last_line_of_the_log_are_left() {
    if is_ignored(SIGINT) {
        return eprintln!("not tested, SIGINT is ignored here");
    }
    let (directory, run) = temporary_run();
    let recipe = recipe(directory.path(), &TINY.replace("log_every = 7", "log_every = 1"));
    let program = env!("CARGO_BIN_EXE_lsoftmax");
    let words = format!("--steps 1000000 --keep-schedules --out {}", text_of(&run));
    let inner = format!("stty cols {WIDTH} rows 24; exec {program} train {recipe} {words}");
    let mut script = Command::new("script");
    script.args(["-qec", &inner, "/dev/null"]).env("TERM", "xterm").env_remove("LSOFTMAX_KERNEL");
    let started = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = started else {
        return eprintln!("not tested, there is no `script`: {started:?}");
    };
    let (mut input, mut output) =
        (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let (mut seen, mut buffer, mut before) = (Vec::new(), [0; 4096], None);
    while let Ok(read @ 1..) = output.read(&mut buffer) {
        seen.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&seen);
        let shown = text.rfind("step 22: held out").map(|at| &text[at..]);
        if before.is_none() && shown.is_some_and(|shown| shown.contains("% right")) {
            before = Some(Screen::of(text.trim_end_matches('\u{fffd}')).text());
            input.write_all(b"\x03").expect("the terminal takes it");
        }
    }
    let status = child.wait().expect("a status");
    let after = Screen::of(&String::from_utf8_lossy(&seen)).text();
    assert_eq!(status.code(), Some(130), "{after:#?}");

    // While it trains: a line per evaluation, one of the log, and a bar.
    let before = before.expect("Ctrl-C was typed");
    assert!(before[0].starts_with("step 11: held out ") && before.len() >= 3, "{before:#?}");
    let is_log = |line: &String| line.starts_with("loss ") && line.contains(" images/s");
    assert_eq!(before.iter().filter(|line| is_log(line)).count(), 1, "{before:#?}");

    assert!(after[0].starts_with("step 11: held out "), "{after:#?}");
    assert!(after.iter().all(|line| !line.contains(" left")), "{after:#?}");
    let stopped = after.iter().position(|line| line.starts_with("lsoftmax: stopped after step "));
    assert!(stopped.is_some_and(|at| is_log(&after[at - 1])), "{after:#?}");
}
