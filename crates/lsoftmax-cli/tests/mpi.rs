//! Training on several ranks: the bits of one process, files, faults and resuming.
//!
//! Needs mpirun; without it, every test says that it is skipped.

mod program;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use program::assert_says;
use program::run::{
    Listener, Result, TINY, checkpoints, done, recipe, result, resume, temporary_run, text_of,
    train, undo_the_end,
};

/// A short run on batches of four blocks, with every kind of state in its checkpoints.
fn small() -> String {
    TINY.replace("batch = 16", "batch = 64")
        .replace("steps = 120", "steps = 24\nkeep = \"best\"\naverage = 0.9")
        .replace("at = [100]", "at = [20]")
}

/// One that is still running when something happens to it.
fn long() -> String {
    small().replace("steps = 24", "steps = 100000")
}

/// Arguments of mpirun for so many ranks on this machine, whatever it has.
fn mpirun(ranks: usize) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "--bind-to", "none", "-n", &ranks.to_string()]);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("RAYON_NUM_THREADS", "1").env_remove("LSOFTMAX_KERNEL");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_lsoftmax");

/// `lsoftmax train` on ranks.
fn train_on(ranks: usize, arguments: &[&str]) -> Command {
    let mut command = mpirun(ranks);
    command.arg(PROGRAM).arg("train").args(arguments);
    command
}

/// Whether the test must be skipped.
fn is_skipped() -> bool {
    let missing = Command::new("mpirun").arg("--version").output().is_err();
    if missing {
        eprintln!("skipped: mpirun is not installed");
    }
    missing
}

/// What one process finds.
fn alone(directory: &Path, text: &str) -> Result {
    let run = directory.join("alone");
    done(train(&[&recipe(directory, text), "--out", &text_of(&run)]));
    result(&run)
}

/// The lines of the program, without those of mpirun.
fn sentences(output: &Output) -> Vec<String> {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let ours = stderr.lines().filter_map(|line| line.strip_prefix("lsoftmax: "));
    ours.map(str::to_owned).collect()
}

/// Fails with a sentence that contains the words, within ten seconds.
#[track_caller]
fn assert_fails(mut command: Command, words: &[&str]) {
    let started = Instant::now();
    let output = command.output().expect("mpirun starts");
    assert!(!output.status.success() && started.elapsed() < Duration::from_secs(10));
    let sentences = sentences(&output);
    assert_says(sentences.first().expect("a sentence"), words);
}

/// The process of a rank below mpirun.
#[track_caller]
fn process_of(mpirun: &Child, rank: usize) -> Option<u32> {
    let children = format!("/proc/{0}/task/{0}/children", mpirun.id());
    let children = fs::read_to_string(children).expect("Linux lists children");
    let wanted = format!("OMPI_COMM_WORLD_RANK={rank}");
    let is_wanted = |process: &&str| {
        let variables = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        variables.split(|byte| *byte == 0).any(|one| one == wanted.as_bytes())
    };
    children.split_whitespace().find(is_wanted).map(|found| found.parse().expect("a number"))
}

fn signal(process: u32, name: &str) {
    assert!(has_signalled(process, name));
}

/// Sends a signal, unless the process has ended.
fn has_signalled(process: u32, name: &str) -> bool {
    let status = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status();
    status.expect("kill runs").success()
}

/// Starts a long run and waits for its first lines.
fn start_long(directory: &Path, run: &Path, more: &[&str]) -> (Child, Listener) {
    let recipe = recipe(directory, &long());
    let out = text_of(run);
    let words = [&[recipe.as_str(), "--out", &out], more].concat();
    let mut child = train_on(3, &words).spawn().expect("mpirun starts");
    let mut listener = Listener::new(&mut child);
    listener.wait_for("step 11: held out");
    (child, listener)
}

/// Ends within seconds, with a code, a sentence with the words and a whole checkpoint, from which one process
/// resumes.
#[track_caller]
fn assert_ends(mut child: Child, listener: Listener, run: &Path, words: &[&str]) {
    let started = Instant::now();
    let said = listener.rest();
    let status = child.wait().expect("it ends");
    assert!(!status.success() && started.elapsed() < Duration::from_secs(15), "{status}: {said}");
    let ours: Vec<_> = said.lines().filter(|line| line.starts_with("lsoftmax: ")).collect();
    assert_eq!(ours.len(), 1, "{said}");
    assert_says(ours[0], words);
    assert!(!checkpoints(run).is_empty());
    // mpirun may end a moment before a rank that it has killed.
    let lock = fs::File::open(run.join(".lock")).expect("a file");
    while lock.try_lock().is_err() {
        assert!(started.elapsed() < Duration::from_secs(15), "a rank is still there");
        sleep(Duration::from_millis(50));
    }
    drop(lock);
    let mut resumed = resume(run).spawn().expect("the program starts");
    let mut listener = Listener::new(&mut resumed);
    listener.wait_for("resuming after step");
    signal(resumed.id(), "KILL");
    resumed.wait().expect("it ends");
}

#[test]
fn one_to_four_ranks_end_with_the_bits_of_one_process() {
    if is_skipped() {
        return;
    }
    let (directory, run) = temporary_run();
    let expected = alone(directory.path(), &small());
    for ranks in 1..=4 {
        let recipe = recipe(directory.path(), &small());
        let words = [&recipe, "--overwrite", "--out", &text_of(&run)];
        let output = done(train_on(ranks, &words));
        assert!(result(&run) == expected, "{ranks} ranks");
        // One log and one result.
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), output.stderr);
        assert_eq!(stdout.matches("24 steps in").count(), 1, "{stdout}");
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        assert_eq!(stderr.matches("step 14: loss").count(), 1, "{stderr}");
    }
}

/// Losses over all pairs of a batch, sampled classes, accumulation and clipping.
#[test]
fn every_kind_of_step_has_the_bits_of_one_process() {
    if is_skipped() {
        return;
    }
    let short = |text: String| text.replace("steps = 24", "steps = 4").replace("[20]", "[3]");
    let add = |line: &str| short(small()).replace("seed = 3", &format!("seed = 3\n{line}"));
    let sampled = short(small()).replace(
        "margin = 2\n",
        "head = { name = \"cosface\", margin = 0.2, scale = 16, sample_rate = 0.5 }\n",
    );
    for text in [
        add("loss = { contrastive = { weight = 0.1, margin = 1 } }"),
        add("loss = \"hinge\""),
        add("accumulate = 2\nclip_norm = 0.5\nimages_per_class = 8")
            .replace("batch = 64", "batch = 80"),
        sampled,
        add("precision = \"f32\""),
    ] {
        let (directory, run) = temporary_run();
        let expected = alone(directory.path(), &text);
        done(train_on(2, &[&recipe(directory.path(), &text), "--out", &text_of(&run)]));
        assert!(result(&run) == expected, "{text}");
    }
}

/// A short run with a head that is divided by class, in eight shards.
fn sharded(head: &str) -> String {
    let text = TINY.replace("batch = 16", "batch = 64").replace("at = [100]", "at = [8]");
    let text = text.replace("steps = 120", "steps = 12\nshard_classes = true");
    text.replace("margin = 2\n", &format!("head = {head}\n"))
}

#[test]
fn a_divided_head_on_one_to_four_ranks_ends_with_the_bits_of_one_process() {
    if is_skipped() {
        return;
    }
    let learned = "{ name = \"arcface\", margin = 0.2, scale = 16, learned_scale = true }";
    let sampled = "{ name = \"cosface\", margin = 0.2, scale = 16, sample_rate = 0.5 }";
    let clipped =
        sharded("\"l-softmax\"").replace("seed = 3", "seed = 3\naccumulate = 2\nclip_norm = 0.5");
    for text in [sharded("\"l-softmax\""), sharded(learned), sharded(sampled), clipped] {
        let (directory, run) = temporary_run();
        let expected = alone(directory.path(), &text);
        let recipe = recipe(directory.path(), &text);
        for ranks in 1..=4 {
            let words = [&recipe, "--overwrite", "--out", &text_of(&run)];
            let output = done(train_on(ranks, &words));
            assert!(result(&run) == expected, "{ranks} ranks: {text}");
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            if ranks == 3 {
                assert_says(&stderr, &["8 shards; each of 3 ranks has at most 4 classes"]);
            }
        }
        // One process reads the model.
        program::printed(program::lsoftmax(&["eval", &text_of(&run)]));
    }
}

/// Whatever number of ranks wrote the shards, any other goes on with them.
#[test]
fn a_divided_head_resumes_on_another_number_of_ranks_to_the_same_bits() {
    if is_skipped() {
        return;
    }
    let text = sharded("\"a-softmax\"");
    let (directory, run) = temporary_run();
    let expected = alone(directory.path(), &text);
    let recipe = recipe(directory.path(), &text);
    done(train_on(4, &[&recipe, "--out", &text_of(&run)]));
    for ranks in [1, 2, 3, 4, 1] {
        undo_the_end(&run);
        done(train_on(ranks, &["--resume", &text_of(&run)]));
        assert!(result(&run) == expected, "{ranks} ranks");
    }
    // A corrupt shard is named, on several ranks as on one.
    undo_the_end(&run);
    let checkpoint = checkpoints(&run).pop().expect("a checkpoint");
    let shard = checkpoint.with_extension("shards").join("06");
    fs::write(&shard, b"nothing").expect("a file");
    let mut resumed = train_on(3, &["--resume", &text_of(&run)]);
    let output = resumed.output().expect("mpirun starts");
    assert!(!output.status.success());
    assert_says(&sentences(&output)[0], &["no valid checkpoint", "shards/06: is corrupt"]);
}

/// Ten times a random rank is killed at a random moment, and the run goes on with another number of ranks.
#[test]
fn a_run_whose_ranks_are_killed_ten_times_ends_with_the_same_bits() {
    if is_skipped() {
        return;
    }
    let (directory, run) = temporary_run();
    let text = small().replace("steps = 24", "steps = 60").replace("[20]", "[50]");
    let expected = alone(directory.path(), &text);
    let recipe = recipe(directory.path(), &text);
    let mut random = lsoftmax_testing::SplitMix(7);
    // How long ranks need until they train depends on the machine.
    let mut startup = Duration::ZERO;
    for _ in 0..10 {
        let ranks = 2 + random.below(3);
        let words = match run.join("recipe.toml").is_file() {
            true => vec!["--resume".to_owned(), text_of(&run)],
            false => vec![recipe.clone(), "--out".into(), text_of(&run)],
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let started = Instant::now();
        let mut child =
            train_on(ranks, &words).stderr(Stdio::null()).spawn().expect("mpirun starts");
        let mut is_running = || child.try_wait().expect("its state").is_none();
        if startup.is_zero() {
            while !run.join("recipe.toml").is_file() {
                assert!(is_running() && started.elapsed() < Duration::from_secs(60), "no run");
                sleep(Duration::from_millis(10));
            }
            startup = started.elapsed();
        } else {
            sleep(startup);
        }
        sleep(Duration::from_millis(random.below(700) as u64));
        let rank = random.below(ranks);
        if is_running()
            && let Some(rank) = process_of(&child, rank)
        {
            // It may have ended just now.
            has_signalled(rank, "KILL");
        }
        child.wait().expect("it ends");
    }
    done(train_on(3, &["--resume", &text_of(&run)]));
    assert!(result(&run) == expected);
}

#[test]
fn a_killed_rank_is_named_and_the_run_can_be_resumed() {
    if is_skipped() {
        return;
    }
    let (directory, run) = temporary_run();
    let (child, listener) = start_long(directory.path(), &run, &[]);
    signal(process_of(&child, 2).expect("the rank runs"), "KILL");
    assert_ends(child, listener, &run, &["rank 2 has ended", "says rank 0", "train --resume"]);
}

#[test]
fn a_rank_that_stops_answering_is_named_and_the_run_can_be_resumed() {
    if is_skipped() {
        return;
    }
    let (directory, run) = temporary_run();
    let (child, listener) = start_long(directory.path(), &run, &["--rank-timeout", "2"]);
    signal(process_of(&child, 1).expect("the rank runs"), "STOP");
    let words = ["rank 1 has not answered for 2 s", "says rank 0", "train --resume"];
    assert_ends(child, listener, &run, &words);
}

#[test]
fn mpirun_is_interrupted_and_the_run_is_saved() {
    if is_skipped() {
        return;
    }
    for name in ["INT", "USR1"] {
        let (directory, run) = temporary_run();
        let (child, listener) = start_long(directory.path(), &run, &[]);
        signal(child.id(), name);
        assert_ends(child, listener, &run, &["stopped after step", "train --resume"]);
    }
}

/// Makes the folder `mine` with images of two classes; returns its line of a recipe.
fn two_classes(directory: &tempfile::TempDir) -> String {
    let mine = directory.path().join("mine");
    for (class, value) in [("a", 10), ("b", 200)] {
        let folder = mine.join(class);
        fs::create_dir_all(&folder).expect("a directory");
        for index in 0..20u8 {
            let image = image::GrayImage::from_pixel(28, 28, image::Luma([value + index]));
            image.save(folder.join(format!("{index}.png"))).expect("a file");
        }
    }
    format!("data = {:?}", text_of(&mine))
}

#[test]
fn ranks_that_differ_are_refused() {
    if is_skipped() {
        return;
    }
    let (directory, run) = temporary_run();
    let text = recipe(directory.path(), &small());
    let out = text_of(&run);
    let second = |more: &[&str], before: &[&str]| {
        let mut command = train_on(1, &[&text, "--out", &out]);
        command.args([":", "-n", "1"]).args(before).args([PROGRAM, "train"]).args(more);
        command
    };
    let same = [text.as_str(), "--out", &out];
    assert_fails(
        second(&[&same[..], &["--seed", "9"]].concat(), &[]),
        &["rank 1 differs from rank 0 in its recipe"],
    );
    let path = ["-x", "LSOFTMAX_KERNEL=portable"];
    assert_fails(second(&same, &path), &["its kernel path", "portable", "--different-kernels"]);
    assert_fails(second(&["mnist-3d"], &[]), &["rank 1: there is no recipe called"]);
    assert!(!run.join("recipe.toml").exists());
    // Other images.
    two_classes(&directory);
    let mine = directory.path().join("mine");
    let theirs = directory.path().join("theirs");
    fs::create_dir_all(theirs.join("a")).expect("a directory");
    fs::create_dir_all(theirs.join("b")).expect("a directory");
    for entry in ["a/0.png", "a/1.png", "a/2.png", "b/0.png", "b/1.png", "b/2.png"] {
        fs::copy(mine.join(entry), theirs.join(entry)).expect("a file");
    }
    let with = |folder: &Path| {
        let data = format!("data = {:?}", text_of(folder));
        small().replace("data = \"mnist\"", &data).replace("validation = 200", "validation = 2")
    };
    let first = recipe(directory.path(), &with(&mine));
    let other = directory.path().join("other.toml");
    fs::write(&other, with(&theirs)).expect("a file");
    let mut command = train_on(1, &[&first, "--out", &out]);
    command.args([":", "-n", "1", PROGRAM, "train"]).args([&text_of(&other), "--out", &out]);
    assert_fails(command, &["rank 1 differs from rank 0 in its images"]);
}

#[test]
fn ranks_on_different_kernels_keep_one_model_if_that_is_allowed() {
    if is_skipped() {
        return;
    }
    let (directory, run) = temporary_run();
    let text = recipe(directory.path(), &small());
    let out = text_of(&run);
    let words = ["train", &text, "--out", &out, "--different-kernels"];
    let mut command = mpirun(1);
    command.arg(PROGRAM).args(words);
    command.args([":", "-n", "1", "-x", "LSOFTMAX_KERNEL=portable", PROGRAM]).args(words);
    done(command);
    assert!(run.join("model.safetensors").is_file());
}

#[test]
fn what_ranks_cannot_do_is_refused_with_a_sentence() {
    if is_skipped() {
        return;
    }
    let (directory, run) = temporary_run();
    let text = recipe(directory.path(), TINY);
    let out = text_of(&run);
    assert_fails(
        train_on(2, &[&text, "--out", &out]),
        &["a batch of 16 images is 1 blocks of sixteen", "2 ranks"],
    );
    let mut other = mpirun(2);
    other.args([PROGRAM, "runs"]);
    assert_fails(other, &["does not run on several ranks"]);
    assert_fails(train_on(2, &["--nonsense"]), &["--nonsense"]);
    let few = sharded("\"l-softmax\"").replace("data = \"mnist\"", &two_classes(&directory));
    let few = recipe(directory.path(), &few.replace("validation = 200", "validation = 2"));
    assert_fails(
        train_on(3, &[&few, "--out", &out]),
        &["2 classes are divided into 2 shards", "3 ranks"],
    );
}

/// Evaluation and embedding share the images; what they find is that of one process.
#[test]
fn evaluation_and_embedding_on_ranks_find_what_one_process_finds() {
    if is_skipped() {
        return;
    }
    let (directory, run) = temporary_run();
    let text = small().replace("steps = 24", "steps = 4").replace("[20]", "[3]");
    done(train(&[&recipe(directory.path(), &text), "--out", &text_of(&run)]));
    let out = text_of(&run);
    let on_ranks = |words: &[&str]| {
        let mut command = mpirun(3);
        command.arg(PROGRAM).args(words);
        done(command)
    };
    let words = ["eval", &out, "--json"];
    let one = program::json(program::lsoftmax(&words));
    let several: serde_json::Value =
        serde_json::from_slice(&on_ranks(&words).stdout).expect("one JSON object");
    assert_eq!(several, one);
    let file = |name: &str| text_of(&directory.path().join(name));
    let (alone, shared) = (file("alone.npy"), file("shared.npy"));
    program::printed(program::lsoftmax(&["embed", &out, "mnist", "--out", &alone]));
    on_ranks(&["embed", &out, "mnist", "--out", &shared]);
    assert!(fs::read(alone).expect("a file") == fs::read(shared).expect("a file"));
}
