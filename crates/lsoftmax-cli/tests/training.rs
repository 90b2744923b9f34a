//! Arguments and data of `lsoftmax train`, and diverging runs.

mod program;

use std::fs;

use program::run::{TINY, done, ended, metrics, recipe, resume, temporary_run, text_of, train};
use program::{assert_says, failed, lsoftmax, refused};

#[test]
fn divergence_names_the_learning_rate_and_lambda() {
    let (directory, run) = temporary_run();
    let (recipe, out) = (recipe(directory.path(), TINY), text_of(&run));
    let output = train(&[&recipe, "--learning-rate", "1e6", "--out", &out]).output();
    let (code, sentence) = ended(&output.expect("it starts"));
    assert_eq!(code, Some(2));
    assert_says(
        &sentence,
        &["diverged at step", "the learning rate (it is 1000000)", "let λ decay"],
    );
    let other = text_of(&directory.path().join("other"));
    let output = train(&[&recipe, "--learning-rate", "1e300", "--out", &other]).output();
    let output = output.expect("it starts");
    assert_says(ended(&output).1, &["the learning rate (it is 1e300)"]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("00000000"), "{output:?}");
}

/// The last step may spoil the model without any weight being infinite.
#[test]
fn a_run_whose_last_step_spoils_the_model_has_no_result() {
    let (directory, run) = temporary_run();
    let recipe = recipe(directory.path(), TINY);
    let words = ["--validation", "0", "--steps", "1", "--learning-rate", "1e25"];
    let output = train(&[&[&recipe, "--out", &text_of(&run)], &words[..]].concat()).output();
    let (code, sentence) = ended(&output.expect("it starts"));
    assert_eq!(code, Some(2));
    assert_says(&sentence, &["the loss of the test images is not finite", "learning rate"]);
    assert!(!run.join("summary.json").exists() && !run.join("model.json").exists());
}

#[test]
fn arguments_out_of_range_are_named_with_their_range() {
    let (directory, _) = temporary_run();
    let recipe = recipe(directory.path(), TINY);
    let mistakes: [(&[&str], &[&str]); 8] = [
        (&["--steps", "-5"], &["--steps", "-5", "at least 1"]),
        (&["--steps", "0"], &["--steps", "at least 1"]),
        (&["--batch", "-5"], &["--batch", "-5", "at least 0"]),
        (&["--batch", "1"], &["`batch`", "at least 2", "batch norm", "one value per channel"]),
        (&["--accumulate", "-1"], &["--accumulate", "at least 0"]),
        (&["--validation", "-1"], &["--validation", "at least 0"]),
        (&["--learning-rate", "-1"], &["learning_rate.rate", "above 0", "-1"]),
        (&["--seed", "x"], &["--seed", "at least 0"]),
    ];
    for (words, expected) in mistakes {
        let output = train(&[&[recipe.as_str()], words].concat()).output().expect("it starts");
        assert_says(refused(output), expected);
    }
    // Without batch norm in the layer of features, one image has many values per channel.
    let linear =
        TINY.replace("features = { size = 8 }", "features = { size = 8, activation = \"none\" }");
    fs::write(&recipe, linear).expect("a file");
    let out = text_of(&directory.path().join("one"));
    done(train(&[&recipe, "--batch", "1", "--steps", "3", "--out", &out]));
}

#[test]
fn suggested_commands_can_be_pasted() {
    let (directory, _) = temporary_run();
    let (recipe, sets) = (recipe(directory.path(), TINY), directory.path().join("all sets"));
    let (out, sets) = (text_of(&directory.path().join("it's a run")), text_of(&sets));
    let words = [&recipe, "--steps", "3", "--out", &out, "--data-dir", &sets];
    let printed = String::from_utf8(done(train(&words)).stdout).expect("text");
    let command = printed.split('`').nth(1).expect("a command");
    let program = format!("lsoftmax() {{ '{}' \"$@\"; }}", env!("CARGO_BIN_EXE_lsoftmax"));
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &format!("{program}; {command}")]).env_remove("LSOFTMAX_KERNEL");
    let output = shell.output().expect("the shell starts");
    assert!(output.status.success(), "{command}: {output:?}");
    assert!(command.contains("--data-dir"), "{command}");
    let again = refused(train(&words).output().expect("it starts"));
    assert_says(again, &[r"it'\''s a run'`, replace it"]);
}

#[test]
fn rollback_tries_larger_lambdas_up_to_a_limit() {
    let (directory, run) = temporary_run();
    let (recipe, out) = (recipe(directory.path(), TINY), text_of(&run));
    // It diverges after the first checkpoints.
    let text = fs::read_to_string(&recipe).expect("a file");
    let late = text.replace("factor = 0.1, at = [100]", "factor = 1e9, at = [10]");
    fs::write(&recipe, late).expect("a file");
    let output = train(&[&recipe, "--on-divergence", "rollback", "--out", &out]).output();
    let output = output.expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let (code, sentence) = ended(&output);
    assert_eq!(code, Some(2));
    assert_says(&sentence, &["5 rollbacks", "λ", "learning rate (it is 50000000)"]);
    assert!(!said.contains("--on-divergence"), "that was tried: {said}");
    let log = metrics(&run);
    let rollbacks: Vec<_> = log.iter().filter(|metric| metric["kind"] == "rollback").collect();
    assert_eq!(rollbacks.len(), 5);
    let floors = rollbacks.iter().map(|metric| metric["lambda_floor"].as_f64().expect("a number"));
    let floors: Vec<_> = floors.collect();
    assert!(floors[0] > 27.0, "λ was 27.7 at step 10: {floors:?}");
    assert!(floors.windows(2).all(|two| two[1] > two[0]), "{floors:?}");
    // The last checkpoint, the one before, then the start of the run.
    let to: Vec<_> =
        rollbacks.iter().map(|metric| metric["to"].as_u64().expect("a step")).collect();
    assert!(to[0] >= 8 && to[1] < to[0] && to.windows(2).all(|two| two[1] <= two[0]), "{to:?}");
    // A resumed run knows of them: it diverges once more and does not try again.
    let (code, sentence) = ended(&resume(&run).output().expect("it starts"));
    assert_eq!(code, Some(2));
    assert_says(&sentence, &["5 rollbacks"]);
    let log = metrics(&run);
    assert_eq!(log.iter().filter(|metric| metric["kind"] == "rollback").count(), 5);
}

/// An automatic λ is at most 1000; the bound of a rollback applies on top of it.
#[test]
fn after_a_rollback_an_automatic_lambda_has_a_lower_bound() {
    let (directory, run) = temporary_run();
    let text = TINY.replace("factor = 0.1, at = [100]", "factor = 1e9, at = [10]");
    let recipe = recipe(directory.path(), &text.replace("log_every = 7", "log_every = 1"));
    let words = [&recipe, "--lambda", "auto", "--on-divergence", "rollback"];
    let output = train(&[&words[..], &["--out", &text_of(&run)]].concat()).output();
    let (code, sentence) = ended(&output.expect("it starts"));
    assert_eq!(code, Some(2));
    assert_says(&sentence, &["5 rollbacks"]);
    let log = metrics(&run);
    let last = log.iter().rposition(|metric| metric["kind"] == "rollback").expect("a rollback");
    let floor = log[last]["lambda_floor"].as_f64().expect("a number");
    assert!(floor > 1000.0, "four times as large with each rollback: {floor}");
    let after: Vec<_> = log[last..].iter().filter(|metric| metric["kind"] == "training").collect();
    assert!(!after.is_empty() && after.iter().all(|metric| metric["lambda"] == floor), "{after:?}");
}

#[test]
fn a_run_at_chance_starts_over_with_a_larger_lambda_and_learns() {
    let (directory, run) = temporary_run();
    // With the full margin of 4 from the first step, a short run does not learn.
    let lambda = r#"lambda = { schedule = "power", base = 100, gamma = 0.1, power = 2, min = 1 }"#;
    let text = TINY.replace("margin = 2", "margin = 4\non_divergence = \"rollback\"");
    let text = text.replace(lambda, r#"lambda = { schedule = "constant", value = 0 }"#);
    let output = done(train(&[&recipe(directory.path(), &text), "--out", &text_of(&run)]));
    let said = String::from_utf8_lossy(&output.stderr);
    let log = metrics(&run);
    let rollbacks: Vec<_> = log.iter().filter(|metric| metric["kind"] == "rollback").collect();
    assert!(!rollbacks.is_empty(), "{said}");
    assert!(rollbacks.iter().all(|metric| metric["to"] == 0), "{said}");
    let last = log.iter().rfind(|metric| metric["kind"] == "validation").expect("an evaluation");
    assert!(last["error"].as_f64().expect("a number") < 60.0, "{said}");
}

#[test]
fn the_divergence_option_is_stored_in_the_recipe() {
    let (directory, run) = temporary_run();
    let (recipe, out) = (recipe(directory.path(), TINY), text_of(&run));
    let words = [&recipe, "--on-divergence", "rollback", "--steps", "3", "--out", &out];
    done(train(&words));
    let kept = fs::read_to_string(run.join("recipe.toml")).expect("a file");
    assert!(kept.contains("on_divergence = \"rollback\""), "{kept}");
}

#[test]
fn a_run_whose_images_have_changed_is_not_resumed() {
    let (directory, run) = temporary_run();
    let (images, out) = (directory.path().join("images"), text_of(&run));
    for (class, grey) in [("dark", 10), ("light", 200)] {
        fs::create_dir_all(images.join(class)).expect("a directory");
        for number in 0..12 {
            let image = image::GrayImage::from_pixel(8, 8, image::Luma([grey + number]));
            image.save(images.join(class).join(format!("{number}.png"))).expect("a file");
        }
    }
    let data = text_of(&images);
    let words = ["--data", &data, "--steps", "2", "--batch", "4", "--out", &out];
    done(train(&words));
    fs::remove_file(run.join("summary.json")).expect("it was there");
    fs::remove_file(images.join("dark/3.png")).expect("it was there");
    let (code, sentence) = ended(&resume(&run).output().expect("it starts"));
    assert_eq!(code, Some(2));
    assert_says(&sentence, &["images", "not those that the run", "--out"]);
    let sentence = failed(lsoftmax(&["eval", &out]), 2);
    assert_says(&sentence, &["have changed since the run", "--data"]);
}

#[test]
fn arguments_override_the_recipe_and_remove_its_expected_results() {
    let (directory, _) = temporary_run();
    let recipe = recipe(directory.path(), TINY);
    let expected = "\n[expected]\n2 = { test_error = 1, tolerance = 1 }\n";
    fs::write(&recipe, format!("{TINY}{expected}")).expect("a file");
    let kept = |name: &str, words: &[&str]| {
        let out = text_of(&directory.path().join(name));
        done(train(&[&[recipe.as_str()], words, &["--out", &out]].concat()));
        fs::read_to_string(directory.path().join(name).join("recipe.toml")).expect("a file")
    };
    // Unchanged schedules: the drop of the learning rate at step 100 is not reached.
    let cut = kept("cut", &["--steps", "3", "--keep-schedules", "--validation", "150"]);
    for text in ["steps = 3", "at = []", "evaluate_every = 11", "validation = 150"] {
        assert!(cut.contains(text), "{cut}");
    }
    assert!(!cut.contains("[expected"), "{cut}");
    let other = kept("other", &["--steps", "3", "--batch", "8"]);
    assert!(other.contains("batch = 8") && !other.contains("[expected"), "{other}");
    let constant = kept("constant", &["--steps", "120", "--lambda", "5"]);
    assert_says(&constant, &["[lambda]\nschedule = \"constant\"\nvalue = 5.0"]);
    assert!(!constant.contains("[expected"), "{constant}");
    let auto = kept("auto", &["--steps", "3", "--lambda", "auto"]);
    assert_says(&auto, &["[lambda]\nschedule = \"auto\"\nkeep = 0.97\nend = 2.0\nfloor = 1.0"]);
    let words = ["--steps", "3", "--optimiser", "nesterov", "--weight-decay", "0.25"];
    let nesterov = kept("nesterov", &words);
    assert_says(&nesterov, &["[sgd]\nmomentum = 0.9\nnesterov = true\nweight_decay = 0.25\n"]);
    assert!(!nesterov.contains("[expected"), "{nesterov}");
}

#[test]
fn a_run_with_an_edited_recipe_is_not_resumed() {
    let (directory, run) = temporary_run();
    done(train(&[&recipe(directory.path(), TINY), "--out", &text_of(&run), "--steps", "3"]));
    fs::remove_file(run.join("summary.json")).expect("it was there");
    let kept = fs::read_to_string(run.join("recipe.toml")).expect("a file");
    let edited = kept.replace("margin = 2.0", "margin = 3.0");
    assert_ne!(kept, edited);
    fs::write(run.join("recipe.toml"), edited).expect("a file");
    let (code, sentence) = ended(&resume(&run).output().expect("it starts"));
    assert_eq!(code, Some(2));
    assert_says(&sentence, &["recipe", "not the one that the run started with"]);
    // With the original recipe, however it is written, the missing files are written again.
    fs::write(run.join("recipe.toml"), format!("accumulate = 1 # the default\n{kept}"))
        .expect("a file");
    fs::remove_file(run.join("model.safetensors")).expect("it was there");
    done(resume(&run));
    assert!(run.join("summary.json").is_file() && run.join("model.safetensors").is_file());
}

#[test]
fn the_hinge_loss_trains_and_has_no_margin() {
    let (directory, run) = temporary_run();
    let text = TINY.replace("margin = 2", "margin = 1\nloss = \"hinge\"");
    let (recipe, out) = (recipe(directory.path(), &text), text_of(&run));
    let (code, sentence) =
        ended(&train(&[&recipe, "--margin", "2", "--out", &out]).output().expect("it starts"));
    assert_eq!(code, Some(2));
    assert_says(&sentence, &["hinge", "no margin", "--margin"]);
    let (code, sentence) =
        ended(&train(&[&recipe, "--lambda", "auto", "--out", &out]).output().expect("it starts"));
    assert_eq!(code, Some(2));
    assert_says(&sentence, &["hinge", "no margin", "--lambda"]);
    done(train(&[&recipe, "--out", &out]));
    let log = metrics(&run);
    let last = log.iter().rfind(|metric| metric["kind"] == "validation").expect("an evaluation");
    assert!(last["error"].as_f64().expect("a number") < 50.0, "{last}");
}

#[test]
fn a_single_class_is_rejected() {
    let (directory, run) = temporary_run();
    fs::create_dir_all(directory.path().join("images/only")).expect("a directory");
    let image = image::GrayImage::from_pixel(8, 8, image::Luma([7]));
    image.save(directory.path().join("images/only/a.png")).expect("a file");
    let data = text_of(&directory.path().join("images"));
    let output = train(&["--data", &data, "--out", &text_of(&run)]).output().expect("it starts");
    let (code, sentence) = ended(&output);
    assert_eq!(code, Some(2));
    assert_says(&sentence, &["one class", "two"]);
    assert!(!run.exists());
}

#[test]
fn a_resumed_run_keeps_its_recipe() {
    let changes: [&[&str]; 23] = [
        &["mnist"],
        &["--quick"],
        &["--margin", "2"],
        &["--lambda", "auto"],
        &["--seed", "1"],
        &["--accumulate", "2"],
        &["--clip-norm", "1"],
        &["--batch", "1"],
        &["--validation", "1"],
        &["--learning-rate", "1"],
        &["--cosine"],
        &["--warmup", "1"],
        &["--optimiser", "adamw"],
        &["--weight-decay", "0"],
        &["--init", "other"],
        &["--freeze", "1"],
        &["--trunk-rate", "1"],
        &["--keep", "best"],
        &["--early-stopping", "1"],
        &["--average", "0.9"],
        &["--overwrite"],
        &["--precision", "f32"],
        &["--out", "other"],
    ];
    for change in changes {
        for words in [[&["--resume", "run"], change], [change, &["--resume", "run"]]] {
            let sentence = refused(train(&words.concat()).output().expect("it starts"));
            let given = change[0];
            let name = if given == "mnist" { "[RECIPE]" } else { given };
            assert_says(&sentence, &["--resume", "cannot be used with", name, "train --help"]);
            // Only the given arguments are named.
            let others = ["--data", "--quick", "--margin", "--seed", "--batch", "--out"];
            let others = others.into_iter().filter(|other| *other != given);
            assert!(others.into_iter().all(|other| !sentence.contains(other)), "{sentence}");
        }
    }
}

#[test]
fn the_paper_result_is_shown_next_to_that_of_the_run() {
    let (directory, run) = temporary_run();
    let text = format!("{TINY}\n[expected]\n2 = {{ test_error = 0.31, tolerance = 0.12 }}\n");
    let (recipe, out) = (recipe(directory.path(), &text), text_of(&run));
    let line = "\nthe paper: 0.31 % wrong (a run within 0.12 of it counts as reproduced)\n";
    let printed = |output: std::process::Output| String::from_utf8(output.stdout).expect("text");
    assert_says(printed(done(train(&[&recipe, "--out", &out]))), &["\ntest: ", line]);
    assert_says(printed(done(resume(&run))), &["\ntest: ", line]);
    // The paper has no result for this margin.
    let other = text_of(&directory.path().join("other"));
    let output = done(train(&[&recipe, "--margin", "3", "--out", &other]));
    assert!(!printed(output).contains("the paper"));
}

/// The rate of every step is in the log; a killed run would have to know it from the step alone.
#[test]
fn adamw_with_a_warmup_and_a_cosine_learns() {
    let (directory, run) = temporary_run();
    let recipe = recipe(directory.path(), &TINY.replace("log_every = 7", "log_every = 1"));
    let words = [&recipe, "--optimiser", "adamw", "--cosine", "--warmup", "20"];
    let sentence = refused(train(&words).output().expect("it starts"));
    assert_says(sentence, &["for another optimiser", "--learning-rate", "0.001"]);
    done(train(&[&words[..], &["--learning-rate", "0.01", "--out", &text_of(&run)]].concat()));
    let kept = fs::read_to_string(run.join("recipe.toml")).expect("a file");
    assert_says(&kept, &["warmup = 20", "[adamw]\nbeta1 = 0.9\n", "schedule = \"cosine\""]);
    assert!(!kept.contains("[sgd]"), "{kept}");
    let log = metrics(&run);
    let rates = log.iter().filter_map(|metric| metric["learning_rate"].as_f64());
    for (step, rate) in rates.enumerate() {
        let expected = match step as f64 {
            step if step < 20.0 => 0.01 * (step + 1.0) / 20.0,
            step => 0.005 * (1.0 + (std::f64::consts::PI * (step - 20.0) / 100.0).cos()),
        };
        assert!((rate - expected).abs() < 1e-12, "step {step}: {rate}, not {expected}");
    }
    let last = log.iter().rfind(|metric| metric["kind"] == "validation").expect("an evaluation");
    assert!(last["error"].as_f64().expect("a number") < 40.0, "{last}");
}
