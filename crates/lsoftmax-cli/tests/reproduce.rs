//! `lsoftmax reproduce`, `record` and `report`, on the built program.

mod program;

use std::fs;

use program::run::{Reference, ended, temporary_run, text_of};
use program::{assert_says, command, json, lsoftmax_in, printed, refused};

#[test]
fn a_queue_that_runs_out_of_time_is_resumed_by_the_same_command() {
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = ["reproduce", "fig2", "--seeds", "1", "--scale", "1/18"];
    let plan = |more: &[&str]| {
        json(lsoftmax_in(
            directory.path(),
            &[&arguments[..], &["--dry-run", "--json"], more].concat(),
        ))
    };
    let runs = plan(&[]);
    let runs = runs.as_array().expect("a list");
    assert_eq!(runs.len(), 4);
    assert_eq!(runs[0]["id"], "mnist-2d-m1-1000-s1");
    assert_eq!((&runs[0]["recorded"], &runs[0]["interrupted"]), (&false.into(), &false.into()));
    assert!(runs[0]["seconds"].as_f64().expect("a number") > 1.0);

    let some = plan(&["--only", "m4-1000", "--only", "m2"]);
    let some: Vec<_> = some.as_array().expect("a list").iter().map(|run| &run["id"]).collect();
    assert_eq!(some, ["mnist-2d-m2-1000-s1", "mnist-2d-m4-1000-s1"]);
    let none = [&arguments[..], &["--only", "m5", "--only", "x"]].concat();
    assert_says(refused(lsoftmax_in(directory.path(), &none)), &["m5 or x", "--dry-run"]);

    let stopped = lsoftmax_in(directory.path(), &[&arguments[..], &["--budget", "1s"]].concat());
    let (code, sentence) = ended(&stopped);
    assert_eq!(code, Some(130));
    assert_says(&sentence, &["stopped", "0 runs recorded", "the same command resumes"]);
    let stderr = String::from_utf8_lossy(&stopped.stderr);
    assert_says(
        &stderr,
        &["run 1 of 4: two features, softmax: 1000 steps, seed 1", "left in the queue"],
    );

    let runs = plan(&[]);
    assert_eq!(runs[0]["interrupted"], true);
    let text = printed(lsoftmax_in(directory.path(), &[&arguments[..], &["--dry-run"]].concat()));
    assert_says(&text, &["interrupted", "missing: 4 runs, about "]);
}

#[test]
fn a_recorded_run_is_in_the_report_and_the_documents_are_checked() {
    let (directory, run) = temporary_run();
    Reference::get().put(&run);
    let at = |arguments: &[&str]| lsoftmax_in(directory.path(), arguments);
    let text = printed(at(&["record", "run"]));
    assert_says(&text, &["recorded records/runs/tiny-m2-120-s3"]);
    assert_says(refused(at(&["record", "run"])), &["tiny-m2-120-s3", "already exists"]);
    let again = refused(at(&["record", "run", "--name", "another"]));
    assert_says(again, &["tiny-m2-120-s3 already records this experiment with seed 3"]);
    for name in ["../x", ".hidden", "a b", "a|b", ""] {
        assert_says(
            refused(at(&["record", "run", "--name", name])),
            &["--name must be of letters"],
        );
    }
    assert!(!directory.path().join("records/runs/tiny-m2-120-s3/model.safetensors").exists());
    for option in ["--records", "--documents"] {
        for more in [&[][..], &["--check"]] {
            let mistyped = at(&[&["report", option, "typo"], more].concat());
            assert_says(refused(mistyped), &["no directory typo", option]);
        }
    }

    let readme = directory.path().join("README.md");
    fs::write(&readme, "<!-- report:table2 -->\n<!-- /report:table2 -->\n").expect("a file");
    let differs = command(&["report", "--check"]).current_dir(directory.path()).output();
    let (code, sentence) = ended(&differs.expect("the program starts"));
    assert_eq!(code, Some(1));
    assert_says(&sentence, &["README.md differs from the records", "`lsoftmax report`"]);
    let text = printed(at(&["report"]));
    assert_says(&text, &["report/index.html: 1 record,", "updated ./README.md"]);
    assert_says(printed(at(&["report", "--check"])), &["tables and figures are those of 1 record"]);
    assert_eq!(json(at(&["report", "--check", "--json"])), serde_json::json!({ "records": 1 }));
    let page = fs::read_to_string(directory.path().join("report/index.html")).expect("a page");
    assert_says(&page, &["<svg", "Figure 4"]);
}

#[test]
fn an_unfinished_run_is_not_recorded() {
    let (directory, run) = temporary_run();
    Reference::get().put_unfinished(&run);
    let sentence = refused(lsoftmax_in(directory.path(), &["record", &text_of(&run)]));
    assert_says(&sentence, &["has not finished", "lsoftmax train --resume"]);
    let sentence = refused(lsoftmax_in(directory.path(), &["record", "nowhere"]));
    assert_says(&sentence, &["nowhere"]);
}

#[test]
fn a_broken_record_or_marker_is_named() {
    let (directory, run) = temporary_run();
    Reference::get().put(&run);
    printed(lsoftmax_in(directory.path(), &["record", "run"]));
    let file = directory.path().join("records/runs/tiny-m2-120-s3/summary.json");
    let summary = fs::read_to_string(&file).expect("a file");
    fs::write(&file, "{").expect("a file");
    assert_says(refused(lsoftmax_in(directory.path(), &["report"])), &["summary.json", "invalid"]);
    fs::write(&file, summary).expect("a file");
    fs::write(directory.path().join("README.md"), "<!-- report:table9 -->").expect("a file");
    assert_says(refused(lsoftmax_in(directory.path(), &["report"])), &["README.md", "table9"]);
}

#[test]
fn arguments_out_of_range_are_refused() {
    for arguments in [
        ["--scale", "0"],
        ["--scale", "2"],
        ["--scale", "1/0"],
        ["--scale", "x"],
        ["--budget", "8"],
        ["--budget", "0h"],
        ["--budget", "h"],
        ["--budget", "99999999999999999999h"],
        ["--seeds", "0"],
    ] {
        let sentence =
            refused(command(&["reproduce", "table2"]).args(arguments).output().expect("it starts"));
        assert!(sentence.contains(arguments[0].trim_start_matches('-')), "{sentence}");
    }
    assert_says(
        refused(command(&["reproduce", "table9"]).output().expect("it starts")),
        &["table9"],
    );
}
