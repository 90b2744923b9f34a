//! Invalid input gives exit code 2 and an error of one sentence, never a panic.

mod program;

use program::arrays::{LABELS, Layout, PLAIN, file, npy};
use program::{Batch, assert_says, lsoftmax, refused};

/// Replaces one file of a valid batch and returns the resulting error message, which must name the
/// file.
#[track_caller]
fn with(name: &str, bytes: &[u8]) -> String {
    let batch = Batch::new();
    batch.write(name, bytes);
    let more: &[&str] = if name == "b.npy" { &["--bias", "b.npy"] } else { &[] };
    let sentence = refused(batch.loss(more));
    assert!(sentence.contains(name), "{sentence}");
    sentence
}

fn rows(rows: usize, columns: usize) -> Vec<Vec<f64>> {
    vec![vec![0.5; columns]; rows]
}

#[test]
fn arrays_of_the_wrong_rank() {
    assert_says(with("x.npy", &npy(PLAIN, &rows(1, 6), true)), &["two dimensions"]);
    assert_says(with("x.npy", &file("'<f4'", false, "(3, 2, 1)", &[0; 24])), &["two dimensions"]);
    assert_says(with("w.npy", &file("'<f4'", false, "()", &[0; 4])), &["two dimensions"]);
    assert_says(with("y.npy", &npy(LABELS, &rows(3, 1), false)), &[".ravel()"]);
    assert_says(with("b.npy", &npy(PLAIN, &rows(1, 4), false)), &["one dimension"]);
}

#[test]
fn arrays_with_mismatched_sizes() {
    assert_says(with("w.npy", &npy(PLAIN, &rows(4, 3), false)), &["has 2 features per sample"]);
    assert_says(with("y.npy", &npy(LABELS, &rows(1, 4), true)), &["4 labels"]);
    assert_says(with("x.npy", &npy(PLAIN, &rows(2, 2), false)), &["2 samples"]);
    assert_says(with("b.npy", &npy(PLAIN, &rows(1, 3), true)), &["3 values"]);
}

#[test]
fn empty_arrays() {
    assert_says(with("x.npy", &file("'<f4'", false, "(0, 2)", &[])), &["empty"]);
    assert_says(with("w.npy", &file("'<f4'", false, "(4, 0)", &[])), &["empty"]);
    assert_says(with("y.npy", &file("'<i8'", false, "(0,)", &[])), &["empty"]);
    assert_says(with("b.npy", &file("'<f4'", false, "(0,)", &[])), &["empty"]);
}

#[test]
fn labels_out_of_range() {
    let labels = |last: f64| npy(LABELS, &[vec![0.0, 1.0, last]], true);
    assert_says(with("y.npy", &labels(4.0)), &["the label of sample 2 is 4"]);
    assert_says(with("y.npy", &labels(-1.0)), &["the label of sample 2 is -1"]);
    let huge = [u64::MAX, 0, 0].map(u64::to_be_bytes).concat();
    assert_says(
        with("y.npy", &file("'>u8'", false, "(3,)", &huge)),
        &["the label of sample 0 is 18446744073709551615"],
    );
}

#[test]
fn numbers_that_are_not_finite() {
    let values = |bad: f64| vec![vec![0.5, 0.5], vec![0.5, bad], vec![0.5, 0.5], vec![0.5, 0.5]];
    assert_says(
        with("x.npy", &npy(PLAIN, &values(f64::NAN)[..3], false)),
        &["feature 1 of sample 1 is NaN"],
    );
    let fortran = Layout { descr: ">f8", fortran_order: true };
    assert_says(
        with("w.npy", &npy(fortran, &values(f64::INFINITY), false)),
        &["weight 1 of class 1 is inf"],
    );
    assert_says(
        with("b.npy", &npy(PLAIN, &[vec![0.0, 0.0, 0.0, f64::NEG_INFINITY]], true)),
        &["the bias of class 3 is -inf"],
    );
}

#[test]
fn numbers_too_large_for_f32() {
    let wide = Layout { descr: "<f8", fortran_order: false };
    let x = [vec![0.0, 1e39], vec![0.0, 0.0], vec![0.0, 0.0]];
    assert_says(with("x.npy", &npy(wide, &x, false)), &["feature 1 of sample 0 is 1e39"]);
}

#[test]
fn logits_beyond_f32() {
    let batch = Batch::new();
    batch.write("x.npy", &npy(PLAIN, &vec![vec![3e38, 3e38]; 3], false));
    batch.write("w.npy", &npy(PLAIN, &vec![vec![3e38, -3e38]; 4], false));
    refused(batch.loss(&[]));
    refused(batch.loss(&["--grad-dir", "grad/deep"]));
    assert!(!batch.path("grad").exists(), "nothing is left behind");
}

#[test]
fn types_that_do_not_fit_the_role() {
    assert_says(with("y.npy", &file("'|b1'", false, "(3,)", &[1; 3])), &["booleans"]);
    assert_says(with("y.npy", &file("'<f8'", false, "(3,)", &[0; 24])), &["integers"]);
    assert_says(with("x.npy", &file("'<i8'", false, "(3, 2)", &[0; 48])), &["float32"]);
    assert_says(with("x.npy", &file("'<c8'", false, "(3, 2)", &[0; 48])), &["complex"]);
    assert_says(
        with("x.npy", &file("'|O'", false, "(3, 2)", b"\x80\x04cos\nsystem\n.")),
        &["unpickled"],
    );
    assert_says(
        with("w.npy", &file("[('a', '<f4'), ('b', '<f4')]", false, "(4,)", &[0; 32])),
        &["structured"],
    );
    assert_says(with("w.npy", &file("'<U2'", false, "(4, 2)", &[0; 64])), &["strings"]);
}

#[test]
fn headers_that_contradict_the_file() {
    assert_says(with("x.npy", &file("'<f4'", false, "(3000000000, 2)", &[0; 24])), &["truncated"]);
    assert_says(
        with("x.npy", &file("'<f4'", false, "(4294967296, 4294967296)", &[0; 24])),
        &["too large for any file"],
    );
    assert_says(
        with("x.npy", &file("'<f4'", false, "(9999999999999999999999, 2)", &[0; 24])),
        &["shape"],
    );
    assert_says(with("x.npy", &file("'<f4'", false, "(-3, 2)", &[0; 24])), &["shape"]);
    assert_says(with("x.npy", &file("'<f4'", false, "(3, 2)", &[0; 23])), &["truncated"]);
    assert_says(with("x.npy", &file("'<f4'", false, "(3, 2)", &[0; 25])), &["one array per file"]);
    assert_says(with("w.npy", &file("[[[[[[[[[[[[", false, "(4, 2)", &[0; 32])), &["header"]);
    let oversized = [b"\x93NUMPY\x02\x00".as_slice(), &u32::MAX.to_le_bytes(), b"{}"].concat();
    assert_says(with("w.npy", &oversized), &["4294967295 bytes"]);
    assert_says(
        with("w.npy", b"\x93NUMPY\x01\x00\x76\x00{'descr"),
        &["truncated inside its header"],
    );
}

#[test]
fn files_that_are_not_arrays() {
    assert_says(with("x.npy", b""), &["not an .npy file"]);
    assert_says(with("x.npy", b"1.0,2.0\n3.0,4.0\n"), &["not an .npy file"]);
    assert_says(with("x.npy", b"PK\x03\x04\x14\x00\x00\x00"), &[".npz"]);
    let batch = Batch::new();
    assert_says(refused(batch.loss(&["--bias", "."])), &["directory"]);
    assert_says(refused(batch.loss(&["--bias", "none.npy"])), &["none.npy: no such file"]);
    assert_says(refused(batch.loss(&["--bias", "x.npy/b.npy"])), &["x.npy/b.npy"]);
    assert_says(refused(batch.loss(&["--bias", "two\nlines\u{1b}[31m.npy"])), &["no such file"]);
    #[cfg(unix)]
    assert_says(refused(batch.loss(&["--bias", "/dev/zero"])), &["regular file"]);
}

#[cfg(unix)]
#[test]
fn files_that_may_not_be_read() {
    use std::os::unix::fs::PermissionsExt;
    let batch = Batch::new();
    let path = batch.path("x.npy");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).expect("set");
    if std::fs::read(&path).is_err() {
        assert_says(refused(batch.loss(&[])), &["x.npy: cannot be read"]);
    } // otherwise this is root, who may read everything
}

#[test]
fn invalid_margins_and_lambdas() {
    let batch = Batch::new();
    for margin in ["0", "0.99", "-4", "1000.5", "nan", "inf", "-inf", "four", "", "1e999"] {
        assert_says(refused(batch.loss(&[&format!("--margin={margin}")])), &["--margin"]);
    }
    for lambda in ["-1", "-0.001", "nan", "inf", "-inf", "five", ""] {
        assert_says(refused(batch.loss(&[&format!("--lambda={lambda}")])), &["--lambda"]);
    }
    refused(batch.loss(&["--margin", "-4"]));
    refused(batch.loss(&["--lambda", "-1"]));
}

#[test]
fn invalid_arguments() {
    let batch = Batch::new();
    assert_says(
        refused(lsoftmax(&["loss"])),
        &["--features <FILE> --weights <FILE> --labels <FILE>"],
    );
    refused(lsoftmax(&["loss", "--features"]));
    refused(lsoftmax(&["lose"]));
    refused(lsoftmax(&["--loss"]));
    assert_says(refused(lsoftmax(&["bench"])), &["head"]);
    refused(batch.loss(&["--precision", "f64"]));
    refused(batch.loss(&["--reduction", "sum"]));
    refused(batch.loss(&["--margin", "2", "--margin", "3"]));
}

#[test]
fn unknown_kernel_paths() {
    let output = program::command(&[]).env("LSOFTMAX_KERNEL", "gpu").output().expect("it starts");
    assert_says(refused(output), &["no kernel path called \"gpu\""]);
    let batch = Batch::new();
    let files = ["loss", "--features", "x.npy", "--weights", "w.npy", "--labels", "y.npy"];
    let mut command = program::command(&files);
    command.current_dir(batch.directory.path()).env("LSOFTMAX_KERNEL", "gpu");
    assert_says(refused(command.output().expect("it starts")), &["gpu"]);
    let mut command = program::command(&["bench", "head", "--steps", "1"]);
    assert_says(
        refused(command.env("LSOFTMAX_KERNEL", "gpu").output().expect("it starts")),
        &["gpu"],
    );
}

#[cfg(unix)]
#[test]
fn a_kernel_path_that_is_not_utf8_is_rejected_and_an_empty_one_is_ignored() {
    use std::os::unix::ffi::OsStrExt;
    let broken = std::ffi::OsStr::from_bytes(b"\xff");
    let run = |path: &std::ffi::OsStr| {
        let mut command = program::command(&["bench", "head", "--classes", "10", "--steps", "1"]);
        command.env("LSOFTMAX_KERNEL", path).output().expect("it starts")
    };
    assert_says(refused(run(broken)), &["no kernel path called"]);
    program::printed(run("".as_ref()));
}

#[cfg(target_os = "linux")]
#[test]
fn more_threads_than_the_system_allows() {
    let batch = Batch::new();
    let files = "--features x.npy --weights w.npy --labels y.npy";
    for arguments in [&format!("loss {files}")[..], "bench head --steps 1"] {
        let program = env!("CARGO_BIN_EXE_lsoftmax");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!("ulimit -v 1000000; exec '{program}' {arguments}")]);
        shell.current_dir(batch.directory.path()).env("RAYON_NUM_THREADS", "1000");
        assert_says(refused(shell.output().expect("it starts")), &["threads could not be started"]);
    }
}

#[test]
fn a_number_of_threads_that_is_not_one() {
    for number in ["100000", "abc", "-1", "1.5", "1025"] {
        for arguments in [&["data", "list"][..], &["bench", "head", "--steps", "1"]] {
            let mut command = program::command(arguments);
            let output = command.env("RAYON_NUM_THREADS", number).output().expect("it starts");
            assert_says(refused(output), &["RAYON_NUM_THREADS", "from 1 to 1024", number]);
        }
    }
    for number in ["", "0", "2"] {
        let mut command = program::command(&["data", "list"]);
        let output = command.env("RAYON_NUM_THREADS", number).output().expect("it starts");
        program::printed(output);
    }
    let output = lsoftmax(&["bench", "head", "--threads", "60000", "--steps", "1"]);
    assert_says(refused(output), &["60000", "1024"]);
}

#[test]
fn benchmarks_with_zero_or_huge_sizes() {
    let head = |more: &[&str]| refused(lsoftmax(&[&["bench", "head"], more].concat()));
    for size in ["--samples", "--features", "--classes", "--steps", "--threads", "--seconds"] {
        assert_says(head(&[size, "0"]), &[size.trim_start_matches('-')]);
        head(&[size, "-1"]);
        head(&[size, "many"]);
        head(&[size, "99999999999999999999999"]);
    }
    for size in
        ["18446744073709551615", "9223372036854775807", "36028797018963967", "99999999999999"]
    {
        assert_says(head(&["--samples", size]), &["memory"]);
        assert_says(head(&["--features", size]), &["memory"]);
        assert_says(head(&["--classes", size]), &["memory"]);
        head(&["--classes", size, "--features", size, "--samples", size]);
    }
    head(&["--steps", "1", "--seconds", "1"]);
    head(&["--seconds", "nan"]);
    head(&["--margin", "0"]);
    head(&["--lambda", "-1"]);
}
