//! `.npy` files: valid ones are read as numpy wrote them, invalid ones are rejected with one sentence.
//!
//! The files are assembled byte by byte, so that the reader is not tested against our own writer.

use std::path::PathBuf;

use lsoftmax_data::arrays::{ArrayError, ArrayFile, ArrayProblem, Role, StagedArrays};
use proptest::prelude::*;
use tempfile::TempDir;

/// An `.npy` file of version 1.0 as numpy lays it out.
fn npy(descr: &str, fortran_order: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran_order { "True" } else { "False" };
    let dict = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}");
    with_header(&dict, data)
}

fn with_header(dict: &str, data: &[u8]) -> Vec<u8> {
    let padding = (64 - (10 + dict.len() + 1) % 64) % 64;
    let header = format!("{dict}{}\n", " ".repeat(padding));
    let length = u16::try_from(header.len()).expect("a short header");
    [b"\x93NUMPY\x01\x00", length.to_le_bytes().as_slice(), header.as_bytes(), data].concat()
}

fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("array.npy");
    std::fs::write(&path, bytes).expect("a file");
    (directory, path)
}

fn open(bytes: &[u8], role: Role) -> Result<ArrayFile, ArrayError> {
    ArrayFile::open(file(bytes).1, role)
}

fn floats(bytes: &[u8], role: Role) -> Result<Vec<f32>, ArrayError> {
    let (_directory, path) = file(bytes);
    ArrayFile::open(path, role)?.floats()
}

fn labels(bytes: &[u8], classes: usize) -> Result<Vec<i64>, ArrayError> {
    let (_directory, path) = file(bytes);
    ArrayFile::open(path, Role::Labels)?.labels(classes)
}

#[track_caller]
fn refused<T>(result: Result<T, ArrayError>) -> (ArrayProblem, String) {
    match result {
        Ok(_) => panic!("the array was accepted"),
        Err(error) => {
            let sentence = error.to_string();
            assert!(sentence.contains("array.npy: ") && !sentence.contains('\n'), "{sentence}");
            (error.problem, sentence)
        }
    }
}

/// A 2 x 3 array, and the order of its entries by column.
const VALUES: [f32; 6] = [1.0, -2.5, 0.0, 65504.0, 0.125, -7.0];
const BY_COLUMN: [usize; 6] = [0, 3, 1, 4, 2, 5];

fn half_bits(value: f32) -> u16 {
    npyz::half::f16::from_f32(value).to_bits()
}

#[test]
fn every_float_type_byte_order_and_memory_order_reads_to_the_same_numbers() {
    for fortran_order in [false, true] {
        let stored: Vec<f32> = match fortran_order {
            true => BY_COLUMN.iter().map(|i| VALUES[*i]).collect(),
            false => VALUES.to_vec(),
        };
        let of = |bytes: &dyn Fn(f32) -> Vec<u8>| stored.iter().flat_map(|x| bytes(*x)).collect();
        let cases: [(&str, Vec<u8>); 6] = [
            ("'<f2'", of(&|x| half_bits(x).to_le_bytes().to_vec())),
            ("'>f2'", of(&|x| half_bits(x).to_be_bytes().to_vec())),
            ("'<f4'", of(&|x| x.to_le_bytes().to_vec())),
            ("'>f4'", of(&|x| x.to_be_bytes().to_vec())),
            ("'<f8'", of(&|x| f64::from(x).to_le_bytes().to_vec())),
            ("'>f8'", of(&|x| f64::from(x).to_be_bytes().to_vec())),
        ];
        for (descr, data) in cases {
            let found = floats(&npy(descr, fortran_order, "(2, 3)", &data), Role::Weights);
            assert_eq!(found.expect(descr), VALUES, "{descr}, Fortran order: {fortran_order}");
        }
    }
}

#[test]
fn every_integer_type_and_byte_order_reads_to_the_same_labels() {
    let y = [0u8, 3, 127, 5];
    let of = |bytes: &dyn Fn(u8) -> Vec<u8>| y.iter().flat_map(|y| bytes(*y)).collect();
    let cases: [(&str, Vec<u8>); 14] = [
        ("'|i1'", of(&|y| vec![y])),
        ("'|u1'", of(&|y| vec![y])),
        ("'<i2'", of(&|y| i16::from(y).to_le_bytes().to_vec())),
        ("'>i2'", of(&|y| i16::from(y).to_be_bytes().to_vec())),
        ("'<u2'", of(&|y| u16::from(y).to_le_bytes().to_vec())),
        ("'>u2'", of(&|y| u16::from(y).to_be_bytes().to_vec())),
        ("'<i4'", of(&|y| i32::from(y).to_le_bytes().to_vec())),
        ("'>i4'", of(&|y| i32::from(y).to_be_bytes().to_vec())),
        ("'<u4'", of(&|y| u32::from(y).to_le_bytes().to_vec())),
        ("'>u4'", of(&|y| u32::from(y).to_be_bytes().to_vec())),
        ("'<i8'", of(&|y| i64::from(y).to_le_bytes().to_vec())),
        ("'>i8'", of(&|y| i64::from(y).to_be_bytes().to_vec())),
        ("'<u8'", of(&|y| u64::from(y).to_le_bytes().to_vec())),
        ("'>u8'", of(&|y| u64::from(y).to_be_bytes().to_vec())),
    ];
    for (descr, data) in cases {
        for fortran_order in [false, true] {
            let found = labels(&npy(descr, fortran_order, "(4,)", &data), 128);
            assert_eq!(found.expect(descr), [0, 3, 127, 5], "{descr}");
        }
    }
}

#[test]
fn headers_of_all_versions_and_spellings_are_read() {
    let dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n";
    let data = [1f32.to_le_bytes(), 2f32.to_le_bytes()].concat();
    for version in [2, 3] {
        let length = (dict.len() as u32).to_le_bytes();
        let bytes = [b"\x93NUMPY", &[version, 0][..], &length, dict.as_bytes(), &data].concat();
        assert_eq!(floats(&bytes, Role::Bias).expect("a header"), [1.0, 2.0]);
    }
    for dict in [
        "{\"shape\": [2], \"fortran_order\": True, \"descr\": \"<f4\"}",
        "{'shape':(2,),'descr':'<f4','fortran_order':False,'more':None}",
    ] {
        assert_eq!(floats(&with_header(dict, &data), Role::Bias).expect(dict), [1.0, 2.0]);
    }
}

#[test]
fn a_file_truncated_anywhere_is_rejected() {
    let data: Vec<u8> = VALUES.iter().flat_map(|x| x.to_le_bytes()).collect();
    let bytes = npy("'<f4'", false, "(2, 3)", &data);
    for length in 0..bytes.len() {
        let (problem, _) = refused(open(&bytes[..length], Role::Features));
        match length {
            0..6 => assert!(matches!(problem, ArrayProblem::NotNpy)),
            6..128 => {
                assert!(matches!(problem, ArrayProblem::HeaderTruncated), "{length}: {problem}")
            }
            _ => assert!(matches!(problem, ArrayProblem::Truncated { .. }), "{length}: {problem}"),
        }
    }
    let longer = [bytes.as_slice(), b"!"].concat();
    assert!(matches!(refused(open(&longer, Role::Features)).0, ArrayProblem::TrailingBytes { .. }));
}

#[test]
fn a_shape_larger_than_the_file_is_rejected_before_memory_is_allocated() {
    for shape in ["(1000000000000, 512)", "(4611686018427387904, 1)", "(1, 1152921504606846975)"] {
        let (problem, sentence) =
            refused(open(&npy("'<f4'", false, shape, &[0; 8]), Role::Weights));
        assert!(
            matches!(problem, ArrayProblem::Truncated { .. } | ArrayProblem::ShapeTooLarge(_)),
            "{sentence}"
        );
    }
    for shape in
        ["(1099511627776, 1099511627776)", "(18446744073709551615, 2)", "(9223372036854775807, 1)"]
    {
        let (problem, sentence) =
            refused(open(&npy("'<f4'", false, shape, &[0; 8]), Role::Weights));
        assert!(matches!(problem, ArrayProblem::ShapeTooLarge(_)), "{sentence}");
    }
    for shape in ["(18446744073709551616, 1)", "(-1, 2)", "(1.5, 2)", "('2', 2)", "7", "None"] {
        let (problem, sentence) =
            refused(open(&npy("'<f4'", false, shape, &[0; 8]), Role::Weights));
        assert!(matches!(problem, ArrayProblem::NpyHeader(_)), "{sentence}");
    }
}

#[test]
fn a_header_length_of_gigabytes_is_rejected() {
    let mut bytes = b"\x93NUMPY\x02\x00".to_vec();
    bytes.extend(u32::MAX.to_le_bytes());
    bytes.extend(b"{'descr'");
    assert!(matches!(refused(open(&bytes, Role::Bias)).0, ArrayProblem::HeaderLength(_)));
}

#[test]
fn a_deeply_nested_header_neither_overflows_the_stack_nor_takes_forever() {
    for (left, right) in [("(", ",)"), ("[", "]"), ("{", "}"), ("{0:", "}")] {
        for depth in [7, 60, 1500] {
            let dict = format!("{}1{}", left.repeat(depth), right.repeat(depth));
            let (problem, sentence) = refused(open(&with_header(&dict, &[]), Role::Bias));
            assert!(matches!(problem, ArrayProblem::NpyHeader(_)), "{sentence}");
        }
    }
    let started = std::time::Instant::now();
    for (left, right) in [("[", "]"), ("{", "}"), ("{0:", "}")] {
        for depth in 1..9 {
            let dict =
                format!("{}{}1{}", left.repeat(depth), "1,".repeat(4_900), right.repeat(depth));
            assert!(matches!(
                refused(open(&with_header(&dict, &[]), Role::Bias)).0,
                ArrayProblem::NpyHeader(_)
            ));
        }
    }
    assert!(started.elapsed().as_secs() < 10);
    let open_only = with_header(&"[".repeat(9_000), &[]);
    assert!(matches!(refused(open(&open_only, Role::Bias)).0, ArrayProblem::NpyHeader(_)));
}

#[test]
fn headers_that_do_not_describe_an_array_are_rejected() {
    for dict in [
        "",
        "[]",
        "{}",
        "{'descr': '<f4', 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
        "{'descr': 'f4', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f3', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': None, 'fortran_order': False, 'shape': (1,)}",
        "__import__('os').system('true')",
    ] {
        let (problem, sentence) = refused(open(&with_header(dict, &[0; 4]), Role::Bias));
        assert!(matches!(problem, ArrayProblem::NpyHeader(_)), "{dict}: {sentence}");
    }
    let version = b"\x93NUMPY\x09\x01\x00\x00".as_slice();
    assert!(matches!(refused(open(version, Role::Bias)).0, ArrayProblem::Version(9, 1)));
    assert!(matches!(refused(open(b"PK\x03\x04 and so on", Role::Bias)).0, ArrayProblem::Npz));
    assert!(matches!(refused(open(b"0.1,0.2,0.3\n", Role::Bias)).0, ArrayProblem::NotNpy));
}

#[test]
fn unsupported_types_are_named() {
    let refused_as = |descr: &str, role, word: &str| {
        let (_, sentence) = refused(open(&npy(descr, false, "(1,)", &[0; 16]), role));
        assert!(sentence.contains(word), "{descr}: {sentence}");
    };
    refused_as("'|b1'", Role::Labels, "booleans");
    refused_as("'<f4'", Role::Labels, "float32");
    refused_as("'<i4'", Role::Bias, "int32");
    refused_as("'|u1'", Role::Bias, "uint8");
    refused_as("'<f16'", Role::Bias, "float128");
    refused_as("'<c16'", Role::Bias, "complex");
    refused_as("'<c8'", Role::Labels, "complex");
    refused_as("'<U5'", Role::Labels, "strings");
    refused_as("'|S9'", Role::Bias, "strings");
    refused_as("'<M8[D]'", Role::Labels, "dates");
    refused_as("'|V2'", Role::Bias, "raw bytes");
    refused_as("'|O'", Role::Bias, "never unpickled");
    refused_as("'|O'", Role::Labels, "never unpickled");
    refused_as("[('a', '<f4'), ('b', '<i4')]", Role::Bias, "structured");
    refused_as("[('a', '|O')]", Role::Labels, "structured");
    refused_as("[('é', [('c', '<f4', (2,))])]", Role::Bias, "structured");
}

#[test]
fn the_rank_must_match_the_role() {
    let refused_as = |descr, shape, role, word: &str| {
        let (problem, sentence) = refused(open(&npy(descr, false, shape, &[0; 32]), role));
        assert!(
            matches!(problem, ArrayProblem::Rank { .. }) && sentence.contains(word),
            "{sentence}"
        );
    };
    refused_as("'<f4'", "(8,)", Role::Features, "samples x features");
    refused_as("'<f4'", "(2, 2, 2)", Role::Weights, "classes x features");
    refused_as("'<f4'", "()", Role::Bias, "()");
    refused_as("'<i8'", "(4, 1)", Role::Labels, ".ravel()");
    for shape in ["(0, 3)", "(3, 0)", "(0, 0)"] {
        let (problem, _) = refused(open(&npy("'<f4'", false, shape, &[]), Role::Features));
        assert!(matches!(problem, ArrayProblem::Empty(_)));
    }
    assert!(matches!(
        refused(labels(&npy("'<i8'", false, "(0,)", &[]), 3)).0,
        ArrayProblem::Empty(_)
    ));
}

#[test]
fn a_number_that_is_not_finite_is_located_in_any_memory_order() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut values = VALUES;
        // Row 1, columns 0 and 2: the first of them is named.
        (values[3], values[5]) = (bad, bad);
        let rows: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let columns: Vec<u8> =
            BY_COLUMN.iter().flat_map(|i| f64::from(values[*i]).to_be_bytes()).collect();
        for bytes in [npy("'<f4'", false, "(2, 3)", &rows), npy("'>f8'", true, "(2, 3)", &columns)]
        {
            let (_, sentence) = refused(floats(&bytes, Role::Features));
            assert!(sentence.contains("feature 0 of sample 1 is "), "{sentence}");
            let (_, sentence) = refused(floats(&bytes, Role::Weights));
            assert!(sentence.contains("weight 0 of class 1 is "), "{sentence}");
        }
    }
}

#[test]
fn a_number_beyond_f32_is_named_and_one_below_it_is_rounded() {
    let bytes = |x: f64| npy("'<f8'", false, "(1,)", &x.to_le_bytes());
    let (problem, sentence) = refused(floats(&bytes(-1e300), Role::Bias));
    assert!(matches!(problem, ArrayProblem::TooLarge { .. }), "{sentence}");
    assert!(sentence.contains("the bias of class 0 is -1e300"), "{sentence}");
    assert_eq!(floats(&bytes(1e-300), Role::Bias).expect("small"), [0.0]);
    assert_eq!(floats(&bytes(f32::MAX.into()), Role::Bias).expect("large"), [f32::MAX]);
    assert_eq!(floats(&bytes(1.0 / 3.0), Role::Bias).expect("a third"), [1.0f32 / 3.0]);
}

#[test]
fn a_label_out_of_range_is_named_in_full() {
    for (descr, bytes, word) in [
        ("'<i8'", (-1i64).to_le_bytes(), "sample 0 is -1,"),
        ("'<i8'", 10i64.to_le_bytes(), "sample 0 is 10,"),
        ("'<u8'", u64::MAX.to_le_bytes(), "sample 0 is 18446744073709551615,"),
        ("'>i8'", i64::MIN.to_be_bytes(), "sample 0 is -9223372036854775808,"),
    ] {
        let (problem, sentence) = refused(labels(&npy(descr, false, "(1,)", &bytes), 10));
        assert!(matches!(problem, ArrayProblem::Label { .. }), "{sentence}");
        assert!(sentence.contains(word) && sentence.contains("0 to 9"), "{sentence}");
    }
}

#[test]
fn paths_that_are_not_files_are_rejected() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = |path: PathBuf| ArrayFile::open(path, Role::Bias).expect_err("no array").problem;
    assert!(matches!(open(directory.path().to_owned()), ArrayProblem::Directory));
    assert!(matches!(open(directory.path().join("none.npy")), ArrayProblem::Missing));
    assert!(matches!(open(PathBuf::new()), ArrayProblem::Missing));
    let file = directory.path().join("file");
    std::fs::write(&file, "").expect("a file");
    assert!(matches!(open(file.join("in.npy")), ArrayProblem::Read(_)));
    assert!(matches!(open(file), ArrayProblem::NotNpy));
    #[cfg(unix)]
    assert!(matches!(open("/dev/zero".into()), ArrayProblem::NotRegular));
}

#[test]
fn staged_arrays_appear_together_or_not_at_all() {
    let directory = tempfile::tempdir().expect("a directory");
    let names = || {
        let entries = std::fs::read_dir(directory.path().join("new/deep")).expect("it exists");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
        names.sort();
        names
    };
    let stage = || {
        let mut staged = StagedArrays::new(directory.path().join("new/deep")).expect("created");
        staged.add("a.npy", &[2, 3], &VALUES).expect("written");
        staged.add("b.npy", &[6], &VALUES).expect("written");
        staged
    };
    drop(stage());
    assert!(names().is_empty());
    stage().commit().expect("renamed");
    stage().commit().expect("renamed over the old");
    assert_eq!(names(), ["a.npy", "b.npy"]);
    let bytes = std::fs::read(directory.path().join("new/deep/a.npy")).expect("readable");
    let data: Vec<u8> = VALUES.iter().flat_map(|x| x.to_le_bytes()).collect();
    assert!(bytes.starts_with(b"\x93NUMPY") && bytes.ends_with(&data) && bytes.len() == 128 + 24);
    assert_eq!(floats(&bytes, Role::Features).expect("an array"), VALUES);
}

/// Characters that occur in headers.
const HEADER_LETTERS: &[u8] = b"-{}()[]'\",: 0123456789abcdefABCDEFTrueFalsedescrshape_order.\\+";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_written_is_read_back(
        rows in 1usize..7,
        columns in 1usize..7,
        seed in proptest::collection::vec(-1e30f32..1e30, 49),
    ) {
        let values = &seed[..rows * columns];
        let directory = tempfile::tempdir().expect("a directory");
        let mut staged = StagedArrays::new(directory.path()).expect("staged");
        staged.add("x.npy", &[rows, columns], values).expect("added");
        staged.commit().expect("written");
        let file = ArrayFile::open(directory.path().join("x.npy"), Role::Features).expect("an array");
        prop_assert_eq!((file.rows(), file.columns()), (rows, columns));
        prop_assert_eq!(file.floats().expect("floats"), values);
    }

    #[test]
    fn fortran_order_is_converted(
        rows in 1usize..7,
        columns in 1usize..7,
        seed in proptest::collection::vec(-1e30f64..1e30, 49),
    ) {
        let at = |row: usize, column: usize| seed[row * columns + column];
        let mut data = Vec::new();
        for column in 0..columns {
            for row in 0..rows {
                data.extend(at(row, column).to_be_bytes());
            }
        }
        let bytes = npy("'>f8'", true, &format!("({rows}, {columns})"), &data);
        let found = floats(&bytes, Role::Weights).expect("an array");
        let expected: Vec<_> = seed[..rows * columns].iter().map(|x| *x as f32).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn a_damaged_file_never_panics(
        damage in proptest::collection::vec((0usize..160, any::<u8>()), 1..4),
    ) {
        let data: Vec<u8> = VALUES.iter().flat_map(|x| x.to_le_bytes()).collect();
        let mut bytes = npy("'<f4'", false, "(2, 3)", &data);
        for (offset, byte) in damage {
            let length = bytes.len();
            bytes[offset % length] = byte;
        }
        if let Err(error) = floats(&bytes, Role::Features) {
            prop_assert!(error.to_string().contains(": "));
        }
    }

    #[test]
    fn a_random_header_is_rejected(
        letters in proptest::collection::vec(0..HEADER_LETTERS.len(), 0..=200),
    ) {
        let letters = letters.into_iter().map(|letter| char::from(HEADER_LETTERS[letter]));
        let text: String = letters.collect();
        prop_assert!(open(&with_header(&text, &[0; 8]), Role::Bias).is_err());
    }
}
