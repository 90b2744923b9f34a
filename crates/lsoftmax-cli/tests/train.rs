//! `lsoftmax train` under failures: an interrupted run that is resumed ends with bit-identical results,
//! and a run that cannot be resumed gives an error of one sentence.

#![cfg(unix)]

mod program;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use program::run::{
    Listener, Reference, TINY, checkpoints, done, ended, is_ignored, is_writing, metrics, recipe,
    result, resume, temporary_run, text_of, train,
};
use program::{assert_says, failed, refused};
use tempfile::TempDir;

/// A run that was killed after its last checkpoint, and its checkpoints.
fn unfinished() -> (TempDir, PathBuf, [PathBuf; 2]) {
    let (directory, run) = temporary_run();
    Reference::get().put_unfinished(&run);
    let checkpoints = checkpoints(&run).try_into().expect("the last two are kept");
    (directory, run, checkpoints)
}

#[track_caller]
fn assert_as_undisturbed(run: &Path) {
    assert!(result(run) == Reference::get().result, "the runs differ");
}

/// Reproducible pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// Waits for `reached` or the end of the program; true in the former case.
fn wait_until(child: &mut Child, mut reached: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(60) {
        if reached() {
            return true;
        }
        if child.try_wait().expect("a status").is_some() {
            return false;
        }
        sleep(Duration::from_micros(100));
    }
    panic!("the program hangs");
}

#[test]
fn a_run_killed_repeatedly_ends_with_the_bits_of_an_uninterrupted_one() {
    // On a fast machine a run may finish before it was killed often enough.
    let mut kills = 0;
    while kills < 20 {
        let (directory, run) = temporary_run();
        kills = killed_over_and_over(directory.path(), &run, kills);
        assert_as_undisturbed(&run);
        assert!(!is_writing(&run), "something half written is left");
        assert_eq!(checkpoints(&run).len(), 2);
    }
}

/// Trains, kills and resumes until the run is done. Returns the number of kills, including `before`.
fn killed_over_and_over(directory: &Path, run: &Path, before: u64) -> u64 {
    let out = text_of(run);
    // The interval of checkpoints does not affect the results.
    let text = TINY.replace("checkpoint_every = 4", "checkpoint_every = 2");
    let recipe = recipe(directory, &text);
    let mut random = Random(7 + before);
    let (mut kills, mut at_the_end) = (before, 0);
    loop {
        assert!(kills < before + 200, "the run makes no progress");
        let started = run.join("recipe.toml").is_file();
        let mut command = if started { resume(run) } else { train(&[&recipe, "--out", &out]) };
        let threads = (1 + kills % 3).to_string();
        command.env("RAYON_NUM_THREADS", threads).stderr(Stdio::null());
        let mut child = command.spawn().expect("the program starts");
        let newest = checkpoints(run).pop();
        let last_step = newest.as_ref().is_some_and(|path| path.ends_with("000000120.checkpoint"));
        if last_step && at_the_end == 3 {
            assert!(child.wait().expect("a status").success());
            return kills;
        }
        let alive = if last_step {
            // During the last evaluation, or while the model is written.
            at_the_end += 1;
            sleep(Duration::from_millis(150 + random.below(150)));
            child.try_wait().expect("a status").is_none()
        } else if kills % 5 == 0 {
            // Near the start.
            sleep(Duration::from_millis(random.below(200)));
            true
        } else if kills % 2 == 0 {
            // While a checkpoint is written.
            wait_until(&mut child, || is_writing(run))
        } else {
            // After the next checkpoint.
            let got_on = wait_until(&mut child, || checkpoints(run).pop() != newest);
            sleep(Duration::from_micros(random.below(8_000)));
            got_on
        };
        if alive {
            child.kill().expect("it can be killed");
            kills += 1;
        }
        child.wait().expect("a status");
    }
}

#[test]
fn temporary_files_of_a_killed_run_are_removed() {
    let (_directory, run, _) = unfinished();
    let half = [run.join(".unfinished-a"), run.join("checkpoints/.unfinished-b")];
    half.iter().for_each(|path| fs::write(path, "half").expect("a file"));
    done(resume(&run));
    assert!(half.iter().all(|path| !path.exists()));
    assert_as_undisturbed(&run);
}

#[test]
fn a_run_stopped_by_a_signal_can_be_resumed() {
    for (signal, number) in [("-INT", 2), ("-TERM", 15), ("-HUP", 1)] {
        // The program would ignore it as well.
        if is_ignored(number) {
            println!("skipped {signal}: the tests were started with `nohup` or in the background");
            continue;
        }
        let (directory, run) = temporary_run();
        let mut child = train(&[&recipe(directory.path(), TINY), "--out", &text_of(&run)])
            .spawn()
            .expect("the program starts");
        let mut listener = Listener::new(&mut child);
        listener.wait_for("step 7: ");
        let id = child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().expect("kill").success());
        let stderr = listener.rest();
        let output = Output { stderr: stderr.into(), ..child.wait_with_output().expect("an end") };
        let (code, sentence) = ended(&output);
        assert_eq!((code, output.stdout.len()), (Some(130), 0), "{sentence}");
        let command = format!("`lsoftmax train --resume {}`", run.display());
        assert_says(&sentence, &["stopped after step", &command]);
        done(resume(&run));
        assert_as_undisturbed(&run);
    }
}

/// The 10,000 test images are many batches, after the last step.
#[test]
fn a_signal_stops_the_evaluation_of_the_test_images() {
    let (directory, run) = temporary_run();
    let mut child = train(&[&recipe(directory.path(), TINY), "--out", &text_of(&run)])
        .spawn()
        .expect("the program starts");
    let mut listener = Listener::new(&mut child);
    listener.wait_for("step 120: held out");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
    let stderr = listener.rest();
    let output = Output { stderr: stderr.into(), ..child.wait_with_output().expect("an end") };
    let (code, sentence) = ended(&output);
    assert_eq!((code, output.stdout.len()), (Some(130), 0), "{sentence}");
    assert_says(&sentence, &["stopped after step 120", "--resume"]);
    assert!(!run.join("test.json").exists() && !run.join("model.json").exists());
    done(resume(&run));
    assert_as_undisturbed(&run);
}

/// As with `nohup`, and as a shell starts background jobs.
#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    for signal in ["HUP", "INT"] {
        let (directory, run) = temporary_run();
        let script = format!("trap '' {signal}; exec \"$0\" \"$@\"");
        let recipe = recipe(directory.path(), TINY);
        let mut child = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_lsoftmax"), "train", &recipe])
            .args(["--out", &text_of(&run)])
            .env_remove("LSOFTMAX_KERNEL")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the shell starts");
        let mut listener = Listener::new(&mut child);
        listener.wait_for("step 7: ");
        let id = child.id().to_string();
        let signal = format!("-{signal}");
        assert!(Command::new("kill").args([&signal, &id]).status().expect("kill").success());
        listener.rest();
        assert!(child.wait().expect("an end").success(), "{signal} ended the run");
        assert_as_undisturbed(&run);
    }
}

#[test]
fn a_plateau_ends_a_run_also_after_a_kill() {
    let (directory, run) = temporary_run();
    let steps = r#"{ schedule = "steps", rate = 0.05, factor = 0.1, at = [100] }"#;
    let plateau = r#"{ schedule = "plateau", rate = 0.3, factor = 0.5, patience = 1, drops = 1 }"#;
    let recipe = recipe(directory.path(), &TINY.replace(steps, plateau));
    done(train(&[&recipe, "--out", &text_of(&run)]));
    let expected = result(&run);
    fs::remove_file(run.join("summary.json")).expect("it was there");
    let output = done(resume(&run));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("step 120"), "it should have ended before: {stderr}");
    assert!(result(&run) == expected, "the runs differ");
}

#[test]
fn a_corrupt_checkpoint_is_skipped_for_the_one_before() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 4] = [
        ("checksum", |bytes| bytes[5_000] ^= 1),
        ("checksum", |bytes| bytes.truncate(10_000)),
        ("truncated", Vec::clear),
        ("not a checkpoint", |bytes| bytes.fill(0x5a)),
    ];
    for (words, damage) in damages {
        let (_directory, run, [_, newest]) = unfinished();
        let mut bytes = fs::read(&newest).expect("a file");
        damage(&mut bytes);
        fs::write(&newest, &bytes).expect("a file");
        let output = done(resume(&run));
        let stderr = String::from_utf8_lossy(&output.stderr);
        let complaint = stderr.lines().next().expect("a line");
        assert_says(complaint, &[&text_of(&newest), words, "an older checkpoint is used"]);
        assert_as_undisturbed(&run);
    }
}

#[test]
fn a_run_whose_log_was_lost_or_shortened_is_resumed_with_a_note() {
    // Gone, empty, and cut in the middle of a line.
    for length in [None, Some(0), Some(500)] {
        let (_directory, run, [_, newest]) = unfinished();
        fs::remove_file(newest).expect("it was there");
        let log = run.join("metrics.jsonl");
        match length {
            None => fs::remove_file(&log).expect("it was there"),
            Some(length) => {
                let text = fs::read(&log).expect("a file");
                fs::write(&log, &text[..length]).expect("a file");
            }
        }
        let output = done(resume(&run));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_says(stderr.lines().next().expect("a line"), &["metrics.jsonl", "lost", "step 116"]);
        // Every line of the log is complete, and the rest is as if nothing had happened.
        assert!(!metrics(&run).is_empty());
        let undisturbed = Reference::get().result.clone().without_metrics();
        assert!(result(&run).without_metrics() == undisturbed, "the runs differ");
    }
}

#[test]
fn a_run_that_lost_its_environment_is_resumed_with_a_note() {
    for contents in [None, Some("{")] {
        let (_directory, run, _) = unfinished();
        let environment = run.join("environment.json");
        match contents {
            None => fs::remove_file(&environment).expect("it was there"),
            Some(text) => fs::write(&environment, text).expect("a file"),
        }
        let output = done(resume(&run));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_says(stderr.lines().next().expect("a line"), &["environment.json", "written anew"]);
        assert_says(fs::read_to_string(&environment).expect("a file"), &["\"cpu\"", "\"path\""]);
        assert_as_undisturbed(&run);
    }
}

#[test]
fn a_run_without_valid_checkpoint_is_an_error() {
    let (_directory, run, checkpoints) = unfinished();
    checkpoints.iter().for_each(|path| fs::write(path, "").expect("a file"));
    let sentence = refused(resume(&run).output().expect("it starts"));
    assert_says(
        &sentence,
        &["has no valid checkpoint", &text_of(&checkpoints[0]), "start a new run"],
    );
}

#[test]
fn a_checkpoint_of_another_version_or_network_is_an_error() {
    let (_directory, run, checkpoints) = unfinished();
    let good = checkpoints.clone().map(|path| fs::read(path).expect("a file"));
    for (path, bytes) in checkpoints.iter().zip(&good) {
        let mut bytes = bytes.clone();
        bytes[14] = b'9';
        fs::write(path, bytes).expect("a file");
    }
    let sentence = refused(resume(&run).output().expect("it starts"));
    assert_says(&sentence, &["not a checkpoint of this version of the program"]);

    for (path, bytes) in checkpoints.iter().zip(&good) {
        fs::write(path, bytes).expect("a file");
    }
    let kept = run.join("recipe.toml");
    let text = fs::read_to_string(&kept).expect("a file");
    let log = fs::read(run.join("metrics.jsonl")).expect("a file");
    for (from, to) in [("size = 8", "size = 9"), ("filters = 8", "filters = 16")] {
        assert!(text.contains(from), "{text}");
        fs::write(&kept, text.replace(from, to)).expect("a file");
        let sentence = refused(resume(&run).output().expect("it starts"));
        assert_says(&sentence, &["another network", "restore the recipe"]);
    }
    assert_eq!(fs::read(run.join("metrics.jsonl")).expect("a file"), log, "the log is cut");
    fs::write(&kept, text).expect("a file");
    done(resume(&run));
    assert_as_undisturbed(&run);
}

#[test]
fn a_directory_has_one_run_and_is_used_by_one_process() {
    let (directory, run) = temporary_run();
    let (recipe, out) = (recipe(directory.path(), TINY), text_of(&run));
    let mut first = train(&[&recipe, "--out", &out]).spawn().expect("the program starts");
    let mut listener = Listener::new(&mut first);
    listener.wait_for("step 7: ");
    // Suspended, so that it does not end before the others have started.
    let id = first.id().to_string();
    let signal = |name: &str| Command::new("kill").args([name, &id]).status().expect("kill");
    assert!(signal("-STOP").success());
    let second = resume(&run).output();
    let third = train(&[&recipe, "--out", &out]).output();
    assert!(signal("-CONT").success());
    assert_says(refused(second.expect("it starts")), &["another process is using", &out]);
    assert_says(refused(third.expect("it starts")), &["another process is using", &out]);
    listener.rest();
    assert!(first.wait().expect("a status").success());
    assert_as_undisturbed(&run);

    let again = refused(train(&[&recipe, "--out", &out]).output().expect("it starts"));
    assert_says(&again, &["already contains a run", &format!("`lsoftmax train --resume {out}`")]);
    let nothing = refused(resume(directory.path()).output().expect("it starts"));
    assert_says(&nothing, &["does not contain a run", "recipe.toml"]);
}

#[test]
fn a_run_that_is_done_prints_its_summary_again() {
    let (_directory, run) = temporary_run();
    Reference::get().put(&run);
    let mut command = resume(&run);
    let printed: serde_json::Value =
        serde_json::from_slice(&done_quietly(command.arg("--json")).stdout).expect("JSON");
    let text = fs::read_to_string(run.join("summary.json")).expect("a file");
    let kept: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&printed["test"]["wrong"], &printed["steps"]),
        (&kept["test"]["wrong"], &120.into())
    );
    assert_eq!(printed["environment"], kept["environment"]);
    assert!(String::from_utf8_lossy(&done_quietly(&mut resume(&run)).stdout).contains("120 steps"));
    assert_as_undisturbed(&run);
}

#[test]
fn the_details_of_the_test_images_match_the_summary() {
    let (_directory, run) = temporary_run();
    Reference::get().put(&run);
    let json = |name: &str| -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(run.join(name)).expect("a file")).expect("JSON")
    };
    let (details, summary) = (json("test.json"), json("summary.json"));
    let wrong = details["wrong"].as_array().expect("a list");
    let wrong: Vec<u64> = wrong.iter().map(|index| index.as_u64().expect("an index")).collect();
    assert_eq!(wrong.len() as u64, summary["test"]["wrong"].as_u64().expect("a number"));
    assert!(wrong.is_sorted_by(|a, b| a < b) && wrong.iter().all(|index| *index < 10_000));
    let rows = details["cosines"].as_array().expect("a table");
    let number = |i: usize, j: usize| rows[i][j].as_f64().expect("a number");
    assert_eq!((rows.len(), rows[9].as_array().map(Vec::len)), (10, Some(10)));
    for i in 0..10 {
        for j in 0..10 {
            assert_eq!(number(i, j), number(j, i));
            assert!(i == j || number(i, j) < number(i, i), "classes {i} and {j}");
        }
    }
    assert!(details.get("plane").is_none(), "the network has eight features");
    // A finished run of an older version of the program has no such file.
    fs::remove_file(run.join("test.json")).expect("it was there");
    done_quietly(&mut resume(&run));
    assert!(!run.join("test.json").exists());
}

#[track_caller]
fn done_quietly(command: &mut Command) -> Output {
    let output = command.output().expect("the program starts");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    output
}

/// The program, started by a shell after `before`.
fn after(before: &str, arguments: &[&str]) -> Output {
    let script = format!("{before} && exec \"$0\" \"$@\"");
    let program = env!("CARGO_BIN_EXE_lsoftmax");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, program, "train"]).args(arguments).stdin(Stdio::null());
    shell.env_remove("LSOFTMAX_KERNEL");
    shell.output().expect("the shell starts")
}

#[test]
fn a_file_size_limit_ends_the_run_without_damage() {
    let (_directory, run, [older, newest]) = unfinished();
    fs::remove_file(newest).expect("it was there");
    let before = fs::read(&older).expect("a file");
    // Blocks are of 512 or 1024 bytes: the log fits, a checkpoint does not.
    let output = after("trap '' XFSZ && ulimit -f 24", &["--resume", &text_of(&run)]);
    let (code, sentence) = ended(&output);
    assert_eq!(code, Some(1), "{sentence}");
    assert_says(&sentence, &["000000120.checkpoint", "cannot be written", "space left"]);
    let run_name = text_of(&run);
    assert_says(
        &sentence,
        &[&format!("resume after step 116 with `lsoftmax train --resume {run_name}`")],
    );
    assert_eq!(checkpoints(&run), std::slice::from_ref(&older));
    assert!(!is_writing(&run));
    assert_eq!(fs::read(&older).expect("a file"), before);
    done(resume(&run));
    assert_as_undisturbed(&run);
}

/// Uses a separate mount, which is removed when the shell exits.
#[test]
fn a_full_disk_ends_the_run_without_damage() {
    let (directory, run, [_, newest]) = unfinished();
    fs::remove_file(newest).expect("it was there");
    fs::create_dir(directory.path().join("disk")).expect("a directory");
    let script = r#"
        cd "$1" || exit 97
        mount -t tmpfs -o size=80k lsoftmax-test disk 2>/dev/null || exit 99
        cp -r run disk/run || exit 98
        "$0" train --resume disk/run 2>full.txt
        echo $? >full.code
        ls disk/run/checkpoints >full.list
        mount -o remount,size=10m disk || exit 96
        "$0" train --resume disk/run || exit 95
        rm -r run && cp -r disk/run run"#;
    let program = env!("CARGO_BIN_EXE_lsoftmax");
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-c", script, program, &text_of(directory.path())]);
    shell.env_remove("LSOFTMAX_KERNEL");
    match shell.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) if output.status.code().is_some_and(|code| (95..99).contains(&code)) => {
            panic!("{output:?}")
        }
        other => return eprintln!("not tested, a file system cannot be mounted here: {other:?}"),
    }
    let text = |name: &str| fs::read_to_string(directory.path().join(name)).expect("a file");
    assert_eq!(text("full.code"), "1\n");
    assert_eq!(text("full.list"), "000000116.checkpoint\n");
    let said = text("full.txt");
    assert_says(
        said.lines().last().expect("a line"),
        &["lsoftmax: ", "cannot be written", "space"],
    );
    assert_as_undisturbed(&run);
}

#[test]
fn an_unwritable_directory_is_an_error() {
    let (directory, run, _) = unfinished();
    let recipe = recipe(directory.path(), TINY);
    let closed = directory.path().join("closed");
    fs::create_dir(&closed).expect("a directory");
    let set = |path: &Path, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    set(&closed, 0o555);
    // Root may write everywhere, unless the capability is dropped.
    let is_root = fs::write(closed.join("probe"), "").is_ok();
    let _ = fs::remove_file(closed.join("probe"));
    let start = |arguments: &[&str]| -> Output {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-dac_override", env!("CARGO_BIN_EXE_lsoftmax"), "train"]);
        if is_root {
            command.args(arguments).output().expect("it starts")
        } else {
            train(arguments).output().expect("it starts")
        }
    };
    let probe = ["--bounding-set=-dac_override", "true"];
    let can_give_up = Command::new("setpriv").args(probe).output();
    if is_root && !can_give_up.is_ok_and(|output| output.status.success()) {
        return eprintln!("not tested: root may write everywhere, and setpriv cannot forbid it");
    }
    let out = text_of(&closed.join("run"));
    let sentence = failed(start(&[&recipe, "--out", &out]), 1);
    assert_says(&sentence, &[&out, "cannot be created", "permissions"]);

    let folder = run.join("checkpoints");
    fs::remove_file(checkpoints(&run).pop().expect("two")).expect("it was there");
    set(&folder, 0o555);
    let (code, sentence) = ended(&start(&["--resume", &text_of(&run)]));
    assert_eq!(code, Some(1), "{sentence}");
    assert_says(&sentence, &["000000120.checkpoint", "cannot be written", "permissions"]);
    set(&folder, 0o755);
    done(resume(&run));
    assert_as_undisturbed(&run);
}

#[test]
fn a_closed_stderr_does_not_end_a_run() {
    let (directory, run) = temporary_run();
    let mut child = train(&[&recipe(directory.path(), TINY), "--out", &text_of(&run)])
        .spawn()
        .expect("the program starts");
    drop(child.stderr.take());
    assert!(child.wait().expect("a status").success());
    assert_as_undisturbed(&run);
}
