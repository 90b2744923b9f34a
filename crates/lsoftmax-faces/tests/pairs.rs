//! LFW's `pairs.txt`.

use lsoftmax_faces::{Pair, Pairs};

fn read(text: &str) -> Result<Pairs, String> {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), text).expect("the file is written");
    Pairs::read_lfw(file.path()).map_err(|error| error.to_string())
}

#[test]
fn every_fold_has_pairs_of_the_same_person_and_then_of_two() {
    let pairs = read("2\t1\nAda\t1\t2\nAda\t2\tBob\t1\nBob\t1\t3\nBob\t3\tAda\t1\n").unwrap();
    let pair = |left, right, same, fold| Pair { left, right, same, fold };
    let expected =
        [pair(0, 1, true, 0), pair(1, 2, false, 0), pair(2, 3, true, 1), pair(3, 0, false, 1)];
    assert_eq!(pairs.pairs, expected);
    assert_eq!(pairs.images[3].to_str(), Some("Bob/Bob_0003"));
}

#[test]
fn a_first_line_without_a_number_of_pairs_is_refused() {
    // 2^63 pairs of a fold are 0 in the arithmetic of 64 bits, and a file without any line would have all of them.
    for header in ["", "ten", "0 300", "10 0", "9223372036854775808", "10 9223372036854775808"] {
        let error = read(header).unwrap_err();
        assert!(error.contains("numbers of folds and of pairs"), "{header}: {error}");
    }
}

#[test]
fn a_file_that_ends_early_says_how_many_pairs_are_missing() {
    let error = read("10 300\nAda 1 2\n").unwrap_err();
    assert!(error.contains("ends after 1 of 6000 pairs"), "{error}");
}
