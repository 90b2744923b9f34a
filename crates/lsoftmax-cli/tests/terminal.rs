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
fn after_ctrl_c_the_evaluations_are_left_and_no_bar() {
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
    let (mut seen, mut buffer, mut typed) = (Vec::new(), [0; 4096], false);
    while let Ok(read @ 1..) = output.read(&mut buffer) {
        seen.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&seen);
        let shown = text.rfind("step 22: held out").map(|at| &text[at..]);
        if !typed && shown.is_some_and(|shown| shown.contains("% right")) {
            input.write_all(b"\x03").expect("the terminal takes it");
            typed = true;
        }
    }
    let status = child.wait().expect("a status");
    let text = String::from_utf8_lossy(&seen);
    assert!(text.contains("/1000000, "), "there was no bar: {text:?}");
    let screen = Screen::of(&text).text();
    assert_eq!(status.code(), Some(130), "{screen:#?}");
    let stopped = screen.iter().position(|line| line.starts_with("lsoftmax: stopped after step "));
    let above = &screen[..stopped.expect("a last sentence")];
    let is_evaluation = |line: &&String| line.starts_with("step ") && line.contains("held out");
    let (evaluations, others): (Vec<_>, Vec<_>) = above.iter().partition(is_evaluation);
    assert!(evaluations.len() >= 2 && evaluations[1].starts_with("step 22: "), "{screen:#?}");
    // The terminal shows ^C in a line of its own, so that the program clears one line less than it has drawn: that of the
    // log, or of an evaluation that was stopped.
    let is_status = |line: &str| {
        let log = line.starts_with("loss ") && line.ends_with(" images/s");
        log || line.starts_with("evaluating the held-out images: ")
    };
    assert!(others.len() <= 1 && others.iter().all(|line| is_status(line)), "{screen:#?}");
}
