//! General behaviour of the program: help, benchmarks and exit codes.

mod program;

use std::path::Path;
use std::process::Stdio;

use program::{Batch, assert_says, command, failed, json, lsoftmax, printed, refused};

/// All commands; [`the_help_lists_the_commands`] says when one is missing.
const COMMANDS: [&[&str]; 30] = [
    &[],
    &["loss"],
    &["train"],
    &["eval"],
    &["predict"],
    &["embed"],
    &["export"],
    &["faces"],
    &["faces", "align"],
    &["faces", "list"],
    &["verify"],
    &["identify"],
    &["runs"],
    &["compare"],
    &["network"],
    &["plot"],
    &["reproduce"],
    &["record"],
    &["report"],
    &["bench"],
    &["bench", "head"],
    &["bench", "train"],
    &["bench", "faces"],
    &["bench", "scale"],
    &["bench", "shards"],
    &["data"],
    &["data", "list"],
    &["data", "fetch"],
    &["data", "check"],
    &["completions"],
];

#[test]
fn the_recipes_are_listed_with_their_sources() {
    let text = printed(lsoftmax(&["train", "--list"]));
    let sizes = text.lines().map(|line| line.find(" x "));
    assert_eq!(sizes.collect::<std::collections::HashSet<_>>().len(), 1, "not aligned: {text}");
    let line = text.lines().find(|line| line.starts_with("mnist-2d "));
    assert!(line.is_some_and(|line| line.contains("Figure 2")), "{text}");
}

#[test]
fn help_and_version_are_complete() {
    let help = printed(lsoftmax(&["--help"]));
    assert!(help.contains("Exit codes") && help.contains("Examples"), "{help}");
    let help = printed(lsoftmax(&["loss", "--help"]));
    for word in ["--features", "--bias", "--grad-dir", "numpy.save", "Exit codes", "[default: 4]"] {
        assert!(help.contains(word), "{word} in {help}");
    }
    assert!(printed(lsoftmax(&["bench", "head", "--help"])).contains("RAYON_NUM_THREADS"));
    assert_eq!(
        printed(lsoftmax(&["--version"])),
        format!("lsoftmax {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_usage_error_names_the_help_of_its_own_command() {
    for command in COMMANDS {
        let sentence = refused(lsoftmax(&[command, &["--no-such-option"]].concat()));
        let help = [&["`lsoftmax"], command, &["--help`"]].concat().join(" ");
        assert!(sentence.ends_with(&format!("; try {help}")), "{sentence}");
        printed(lsoftmax(&[command, &["--help"]].concat()));
    }
}

#[test]
fn help_is_wrapped_to_the_width_of_the_terminal() {
    for width in [60, 90] {
        let mut command = program::command(&["train", "--help"]);
        let help = printed(command.env("COLUMNS", width.to_string()).output().expect("it starts"));
        let longest = help.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(longest <= width && longest > width / 2, "{longest} for {width}");
    }
}

#[test]
fn every_example_is_a_line_of_its_own_on_a_narrow_terminal() {
    for words in COMMANDS {
        let mut command = program::command(&[words, &["--help"]].concat());
        let help = printed(command.env("COLUMNS", "80").output().expect("it starts"));
        // clap does not wrap the usage.
        let lines = help.lines().filter(|line| !line.starts_with("Usage:"));
        let too_long: Vec<&str> = lines.filter(|line| line.chars().count() > 80).collect();
        assert!(too_long.is_empty(), "{words:?}: {too_long:?}");
        let examples = help.lines().skip_while(|line| *line != "Examples:").skip(1);
        for line in examples.take_while(|line| !line.is_empty()) {
            let text = line.trim_start();
            let is_start = line.len() - text.len() == 2;
            let starts = ["lsoftmax", "mpirun", "curl"];
            let is_heading = text.ends_with(':');
            assert!(
                !is_start || is_heading || starts.iter().any(|start| text.starts_with(start)),
                "{line:?}"
            );
        }
    }
}

#[test]
fn misspelt_words_are_recognised() {
    let mistakes: [(&[&str], &str); 4] = [
        (&["train", "mnist", "--margn", "3"], "did you mean --margin?"),
        (&["trian", "mnist"], "did you mean train?"),
        (&["train", "mnist", "--head", "arcfce"], "did you mean arcface?"),
        (&["data", "fetch", "cifar"], "did you mean cifar10"),
    ];
    for (words, expected) in mistakes {
        assert_says(refused(lsoftmax(words)), &[expected]);
    }
    assert_says(refused(lsoftmax(&["train"])), &["train mnist --quick", "--list", "--data"]);
}

/// Checks the list of commands in the help, so that the tests above cover all of them.
#[test]
fn the_help_lists_the_commands() {
    let listed = |command: &[&str]| -> Vec<String> {
        let words = [command, &["--help"]].concat();
        let wide = program::command(&words).env("COLUMNS", "300").output().expect("it starts");
        let help = printed(wide);
        let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let lines = lines.take_while(|line| !line.is_empty());
        lines.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
    };
    for group in [&[][..], &["faces"], &["bench"], &["data"]] {
        let inner = COMMANDS.iter().filter_map(|command| command.strip_prefix(group));
        let inner = inner.filter(|rest| rest.len() == 1).map(|rest| rest[0]);
        assert_eq!(listed(group), inner.chain(["help"]).collect::<Vec<_>>());
    }
}

const SMALL: [&str; 8] = ["bench", "head", "--samples", "8", "--features", "16", "--classes", "40"];

#[test]
fn a_benchmark_reports_its_results_and_settings() {
    let more = ["--margin", "2", "--lambda", "1", "--bias", "--steps", "5", "--threads", "1"];
    let result = json(lsoftmax(&[&SMALL[..], &more, &["--json"]].concat()));
    for (name, value) in
        [("samples", 8), ("features", 16), ("classes", 40), ("steps", 5), ("threads", 1)]
    {
        assert_eq!(result[name], value, "{name}");
    }
    assert_eq!((result["margin"].as_f64(), result["lambda"].as_f64()), (Some(2.0), Some(1.0)));
    assert_eq!(result["bias"], true);
    assert_eq!(result["precision"], "f32");
    assert!(result["kernel"].is_string());
    let number = |name: &str| result[name].as_f64().unwrap_or_else(|| panic!("{name}"));
    assert!(number("milliseconds") >= number("fastest_milliseconds"));
    assert!(number("fastest_milliseconds") > 0.0);
    let flops = 6.0 * 8.0 * 16.0 * 40.0 / (number("milliseconds") / 1e3);
    assert!((number("gflops") * 1e9 / flops - 1.0).abs() < 1e-9);
    // A small head needs little memory besides the gradients, but some.
    assert!((1.0..4e6).contains(&number("peak_bytes")), "{result}");
}

#[test]
fn a_benchmark_by_time_takes_three_steps_at_least() {
    let more = ["--seconds", "0.000001", "--precision", "bf16", "--json"];
    let result = json(lsoftmax(&[&SMALL[..], &more].concat()));
    assert!(result["steps"].as_u64() >= Some(3));
    assert_eq!(result["precision"], "bf16");
}

#[test]
fn a_benchmark_honours_rayons_variable_and_prints_two_lines() {
    let mut command = command(&[&SMALL[..], &["--steps", "2"]].concat());
    let text = printed(command.env("RAYON_NUM_THREADS", "3").output().expect("it starts"));
    assert!(text.contains("3 threads") && text.lines().count() == 2, "{text}");
}

#[test]
fn the_head_does_not_materialise_all_logits() {
    let sizes = ["bench", "head", "--samples", "512", "--features", "8", "--classes", "60000"];
    let result = json(lsoftmax(&[&sizes[..], &["--steps", "1", "--json"]].concat()));
    assert!(result["peak_bytes"].as_u64() < Some(512 * 60_000 * 4 / 2), "{result}");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let batch = Batch::new();
    let files = ["loss", "--features", "x.npy", "--weights", "w.npy", "--labels", "y.npy"];
    let small = [&SMALL[..], &["--steps", "1"]].concat();
    for arguments in [&["data", "list"][..], &files, &["--help"], &small] {
        let mut child = command(arguments)
            .current_dir(batch.directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stderr.is_empty(), "{arguments:?}: {stderr}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_a_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let child =
        command(&["data", "list"]).stdout(full).stderr(Stdio::piped()).spawn().expect("it starts");
    let output = child.wait_with_output().expect("it ends");
    assert!(failed(output, 1).contains("cannot be printed"));
}

#[test]
fn the_tests_that_the_document_on_reliability_names_exist() {
    let document = include_str!("../../../docs/reliability.md");
    let rows = document.lines().skip_while(|line| !line.starts_with("| when |")).skip(2);
    let last_cells = rows
        .take_while(|line| line.starts_with('|'))
        .filter_map(|row| row.trim_end_matches(" |").rsplit(" | ").next());
    let names: Vec<&str> = last_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert!(names.len() > 20, "{names:?}");
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut tests = String::new();
    add_code(&crates, &mut tests);
    for name in names {
        assert!(tests.contains(&format!("#[test]fn{name}()")), "there is no test {name}");
    }
}

/// Adds the Rust code below a directory, without its white space.
fn add_code(directory: &Path, code: &mut String) {
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            add_code(&path, code);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            code.extend(std::fs::read_to_string(path).expect("a file").split_whitespace());
        }
    }
}

#[cfg(not(feature = "mpi"))]
#[test]
fn several_ranks_of_a_program_without_mpi_are_refused_by_one_sentence() {
    let rank = |rank: &str| {
        let mut command = command(&["train", "mnist", "--quick"]);
        command.env("OMPI_COMM_WORLD_SIZE", "4").env("OMPI_COMM_WORLD_RANK", rank);
        command.output().expect("the program starts")
    };
    let sentence = refused(rank("0"));
    assert!(sentence.contains("4 ranks") && sentence.contains("--features mpi"), "{sentence}");
    let other = rank("3");
    assert!(other.status.code() == Some(2) && other.stderr.is_empty(), "{other:?}");
}
