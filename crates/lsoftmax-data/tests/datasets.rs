//! Reading data sets: valid files are read correctly, invalid ones are rejected with file and offset.
//!
//! The files are assembled byte by byte.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use flate2::write::GzEncoder;
use image::{GrayImage, ImageFormat, Rgb, RgbImage};
use lsoftmax_data::{
    CIFAR10, CIFAR100, DataDir, DataError, DataProblem, Dataset, FASHION_MNIST, MNIST, Reading,
    Set, SetLocation, SetState, Shape, check, count_folder, files_in, is_among_images, list,
    read_folder, read_folder_watched, read_images, read_readable_images,
};
use tempfile::TempDir;

/// A directory of sets.
struct Sets(TempDir);

impl Sets {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn data(&self) -> DataDir {
        DataDir::find(Some(self.0.path().to_owned())).expect("a data directory")
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, bytes).expect("a file");
    }

    fn read(&self, set: &Set) -> Result<Dataset, DataError> {
        set.read(&self.data())
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }
}

/// The error, which must name `file`, and its message, which must be one line.
#[track_caller]
fn refused<T>(result: Result<T, DataError>, file: &str) -> (DataProblem, String) {
    let error = result.map(|_| ()).expect_err("an error");
    let text = error.to_string();
    assert!(error.path.ends_with(file), "{text}");
    assert!(!text.contains('\n'), "{text}");
    (error.problem, text)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("in memory");
    encoder.finish().expect("in memory")
}

fn idx(magic: u32, sizes: &[u32], data: &[u8]) -> Vec<u8> {
    let numbers = std::iter::once(&magic).chain(sizes);
    numbers.flat_map(|number| number.to_be_bytes()).chain(data.iter().copied()).collect()
}

const TRAIN_IMAGES: &str = "train-images-idx3-ubyte";
const TRAIN_LABELS: &str = "train-labels-idx1-ubyte";

/// Three training images of 2 x 2 and one test image; some files plain, some gzipped.
fn digits(directory: &str) -> Sets {
    let sets = Sets::new();
    let file = |name: &str| format!("{directory}/{name}");
    sets.write(
        &file(TRAIN_IMAGES),
        &idx(0x803, &[3, 2, 2], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
    );
    sets.write(&file("train-labels-idx1-ubyte.gz"), &gzip(&idx(0x801, &[3], &[9, 0, 4])));
    sets.write(&file("t10k-images-idx3-ubyte.gz"), &gzip(&idx(0x803, &[1, 2, 2], &[255, 0, 0, 7])));
    sets.write(&file("t10k-labels-idx1-ubyte"), &idx(0x801, &[1], &[3]));
    sets
}

#[test]
fn idx_files_are_read_plain_and_gzipped() {
    for set in [&MNIST, &FASHION_MNIST] {
        let digits = digits(set.name).read(set).expect("digits");
        assert_eq!(digits.train.shape(), Shape { channels: 1, height: 2, width: 2 });
        assert_eq!(digits.train.pixels(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(digits.train.labels(), [9, 0, 4]);
        let test = digits.test.expect("a test set");
        assert_eq!((test.image(0), test.labels()), (&[255, 0, 0, 7][..], &[3][..]));
        assert_eq!(digits.classes, 10);
    }
}

/// Replaces a file of a valid set and returns the resulting error.
#[track_caller]
fn with_idx(name: &str, bytes: &[u8]) -> (DataProblem, String) {
    let sets = digits("mnist");
    let _ = std::fs::remove_file(sets.path(&format!("mnist/{}.gz", name.trim_end_matches(".gz"))));
    sets.write(&format!("mnist/{name}"), bytes);
    refused(sets.read(&MNIST), name)
}

#[test]
fn invalid_idx_files_are_rejected_with_the_offset() {
    let pixels = [0; 12];
    let (problem, _) = with_idx(TRAIN_IMAGES, &idx(0x801, &[3], &[1, 2, 3]));
    assert!(matches!(problem, DataProblem::Magic { expected: 0x803, found: 0x801, .. }));
    let (_, text) = with_idx(TRAIN_IMAGES, b"<html>");
    assert!(text.contains("byte 0") && text.contains("0x3c68746d"), "{text}");
    let (problem, text) = with_idx(TRAIN_IMAGES, &idx(0x803, &[3, 2, 2], &pixels[..11]));
    assert!(matches!(problem, DataProblem::Truncated { offset: 27, expected: 28 }), "{text}");
    let (problem, _) = with_idx(TRAIN_IMAGES, &idx(0x803, &[3, 2], &[]));
    assert!(matches!(problem, DataProblem::Truncated { offset: 12, expected: 16 }));
    let (problem, _) = with_idx(TRAIN_IMAGES, &[]);
    assert!(matches!(problem, DataProblem::Truncated { offset: 0, .. }));
    let (problem, _) = with_idx(TRAIN_IMAGES, &idx(0x803, &[3, 2, 2], &[0; 13]));
    assert!(matches!(problem, DataProblem::Trailing { offset: 28 }));
    for sizes in [[u32::MAX; 3], [0, 2, 2], [3, 0, 2], [1 << 30, 2, 2]] {
        let (problem, text) = with_idx(TRAIN_IMAGES, &idx(0x803, &sizes, &pixels));
        assert!(matches!(problem, DataProblem::Header { offset: 4, .. }), "{text}");
    }
    let (problem, text) = with_idx(TRAIN_LABELS, &idx(0x801, &[2], &[1, 2]));
    assert!(matches!(problem, DataProblem::Counts { labels: 2, images: 3, .. }));
    assert!(text.contains(TRAIN_IMAGES), "{text}");
    let (problem, _) = with_idx(TRAIN_LABELS, &idx(0x801, &[3], &[1, 2, 10]));
    assert!(matches!(problem, DataProblem::Label { offset: 10, image: 2, label: 10, classes: 10 }));
    let (problem, _) = with_idx(TRAIN_LABELS, &idx(0x801, &[3], &[1, 2]));
    assert!(matches!(problem, DataProblem::Truncated { offset: 10, expected: 11 }));
    let (problem, _) = with_idx("t10k-images-idx3-ubyte.gz", &idx(0x803, &[1, 1, 4], &[0; 4]));
    assert!(matches!(problem, DataProblem::Shapes { .. }));
}

#[test]
fn corrupt_gzip_streams_are_rejected() {
    let name = "train-labels-idx1-ubyte.gz";
    let good = gzip(&idx(0x801, &[3], &[9, 0, 4]));
    let (problem, text) = with_idx(name, &good[..good.len() - 9]);
    assert!(matches!(problem, DataProblem::Gzip { .. }) && text.contains("too early"), "{text}");
    let mut wrong = good.clone();
    let checksum = wrong.len() - 6;
    wrong[checksum] ^= 1;
    assert!(matches!(with_idx(name, &wrong).0, DataProblem::Gzip { .. }));
    let trailing = [&good[..], b"more"].concat();
    assert!(matches!(with_idx(name, &trailing).0, DataProblem::Gzip { .. }));
    assert!(matches!(with_idx(name, &[0x1f, 0x8b, 1]).0, DataProblem::Gzip { offset: 0, .. }));
}

#[test]
fn missing_sets_and_files_are_reported() {
    let sets = Sets::new();
    let (problem, text) = refused(sets.read(&CIFAR10), "cifar10");
    assert!(matches!(problem, DataProblem::NoSet { name: "cifar10", .. }));
    let command = format!("`lsoftmax data fetch cifar10 --data-dir {}`", sets.0.path().display());
    assert!(text.contains(&command) && text.contains("--data-dir or"), "{text}");

    let sets = digits("mnist");
    std::fs::remove_file(sets.path("mnist").join(TRAIN_IMAGES)).expect("removed");
    let (problem, _) = refused(sets.read(&MNIST), "train-images-idx3-ubyte.gz");
    assert!(matches!(problem, DataProblem::Missing));
    std::fs::create_dir(sets.path("mnist").join(TRAIN_IMAGES)).expect("a directory");
    assert!(matches!(refused(sets.read(&MNIST), TRAIN_IMAGES).0, DataProblem::NotRegular));
}

fn record(front: &[u8], colour: u8) -> Vec<u8> {
    let plane = |plane: u8| vec![colour + plane; 1024];
    [front, &plane(0), &plane(1), &plane(2)].concat()
}

#[test]
fn cifar_files_are_read_with_their_planes_and_fine_labels() {
    let sets = Sets::new();
    for batch in 1..=5 {
        let name = format!("cifar10/cifar-10-batches-bin/data_batch_{batch}.bin");
        sets.write(&name, &[record(&[batch], 10 * batch), record(&[0], 0)].concat());
    }
    sets.write("cifar10/cifar-10-batches-bin/test_batch.bin", &record(&[9], 200));
    let set = sets.read(&CIFAR10).expect("a set");
    assert_eq!(set.train.labels(), [1, 0, 2, 0, 3, 0, 4, 0, 5, 0]);
    assert_eq!(set.train.shape(), Shape { channels: 3, height: 32, width: 32 });
    let image = set.train.image(2);
    assert_eq!((image[0], image[1024], image[2048], image[3071]), (20, 21, 22, 22));
    assert_eq!(set.test.expect("a test set").labels(), [9]);

    sets.write("cifar100/cifar-100-binary/train.bin", &record(&[19, 99], 5));
    sets.write("cifar100/cifar-100-binary/test.bin", &record(&[0, 42], 6));
    let set = sets.read(&CIFAR100).expect("a set");
    assert_eq!((set.train.labels(), set.train.image(0)[0]), (&[99][..], 5));
    assert_eq!(set.test.expect("a test set").labels(), [42]);
    assert_eq!(set.class_names[99], "worm");
}

#[test]
fn invalid_cifar_files_are_rejected_with_the_offset() {
    let train = |bytes: &[u8]| {
        let sets = Sets::new();
        sets.write("cifar100/cifar-100-binary/train.bin", bytes);
        sets.write("cifar100/cifar-100-binary/test.bin", &record(&[0, 0], 0));
        refused(sets.read(&CIFAR100), "train.bin").0
    };
    let two = [record(&[1, 2], 0), record(&[3, 4], 0)].concat();
    assert!(matches!(train(&two[..6000]), DataProblem::Truncated { offset: 6000, expected: 6148 }));
    assert!(matches!(train(&[]), DataProblem::Empty));
    let fine = [record(&[1, 2], 0), record(&[3, 100], 0)].concat();
    assert!(matches!(train(&fine), DataProblem::Label { offset: 3075, image: 1, label: 100, .. }));
    let coarse = record(&[20, 0], 0);
    assert!(matches!(train(&coarse), DataProblem::Label { offset: 0, label: 20, classes: 20, .. }));
}

#[test]
fn mnist_is_built_in_and_complete() {
    let sets = Sets::new();
    assert_eq!(MNIST.location(&sets.data()), SetLocation::BuiltIn);
    let checked = check(&MNIST, &sets.data()).expect("complete");
    assert_eq!((checked.train, checked.test, checked.classes), (60_000, 10_000, 10));
    // The published number of training images per digit.
    let counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949];
    assert_eq!(checked.train_of_class, counts);
    let digits = sets.read(&MNIST).expect("digits");
    assert_eq!(digits.train.labels()[..10], [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]);
    assert_eq!(digits.test.expect("a test set").labels()[..5], [7, 2, 1, 0, 4]);
}

#[test]
fn check_rejects_wrong_checksums_and_list_reports_the_state() {
    let sets = digits("mnist");
    let (problem, text) = refused(check(&MNIST, &sets.data()), TRAIN_IMAGES);
    assert!(matches!(problem, DataProblem::Checksum { .. }) && text.contains("ba891046"), "{text}");
    sets.write("cifar100/cifar-100-binary/train.bin", b"x");
    // Whole files, a truncated one, and one whose gzip stream is truncated.
    let whole = Sets::new();
    let write = |name: &str, bytes: &[u8]| whole.write(&format!("mnist/{name}"), bytes);
    let archives = || MNIST.archives.iter().zip(MNIST.built_in.expect("it is built in"));
    let state = || list(&whole.data())[0].state;
    archives().for_each(|(archive, bytes)| write(archive.name, bytes));
    assert_eq!(state(), SetState::Present);
    write("t10k-images-idx3-ubyte.gz", &archives().nth(2).expect("an archive").1[..9000]);
    assert_eq!(state(), SetState::Incomplete);
    std::fs::remove_file(whole.path("mnist/t10k-images-idx3-ubyte.gz")).expect("removed");
    write("t10k-images-idx3-ubyte", &vec![0; 7_840_015]);
    assert_eq!(state(), SetState::Incomplete);
    write("t10k-images-idx3-ubyte", &vec![0; 7_840_016]);
    assert_eq!(state(), SetState::Present, "only `check` reads the contents");
    let states: Vec<_> = list(&sets.data()).iter().map(|set| (set.name, set.state)).collect();
    let expected = [
        ("mnist", SetState::Incomplete),
        ("fashion-mnist", SetState::Missing),
        ("cifar10", SetState::Missing),
        ("cifar100", SetState::Incomplete),
    ];
    assert_eq!(states, expected);
    assert_eq!(list(&Sets::new().data())[0].state, SetState::BuiltIn);
}

/// A folder of two classes in every format, all of one colour each.
fn photos() -> Sets {
    let sets = Sets::new();
    for class in ["cats", "dogs"] {
        std::fs::create_dir(sets.path(class)).expect("a directory");
    }
    let colour = |rgb| RgbImage::from_pixel(8, 6, Rgb(rgb));
    let save = |path: &str, image: RgbImage| image.save(sets.path(path)).expect("saved");
    save("dogs/b.png", colour([10, 20, 30]));
    save("dogs/a.webp", colour([200, 100, 50]));
    save("cats/z.jpg", colour([128, 128, 128]));
    // The format is detected from the contents, not from the file name.
    GrayImage::from_pixel(9, 9, image::Luma([77]))
        .save_with_format(sets.path("cats/a.jpg"), ImageFormat::Png)
        .expect("saved");
    sets.write("cats/.hidden", b"not an image");
    std::fs::create_dir(sets.path(".git")).expect("a directory");
    sets
}

const SMALL: Shape = Shape { channels: 3, height: 4, width: 4 };

#[test]
fn a_folder_is_read_in_name_order() {
    let sets = photos();
    let set = read_folder(sets.0.path(), SMALL).expect("a set");
    assert_eq!(set.class_names, ["cats", "dogs"]);
    assert_eq!((set.classes, set.train.labels()), (2, &[0, 0, 1, 1][..]));
    assert!(set.test.is_none());
    let colours: Vec<[u8; 3]> =
        (0..4).map(|i| set.train.image(i)).map(|image| [image[0], image[16], image[32]]).collect();
    assert_eq!(colours[0], [77; 3]);
    assert!(colours[1].iter().all(|value| value.abs_diff(128) <= 2), "{colours:?}");
    assert_eq!(colours[2..], [[200, 100, 50], [10, 20, 30]]);
    let grey = read_folder(sets.0.path(), Shape { channels: 1, ..SMALL }).expect("a set");
    assert_eq!(grey.train.image(0), [77; 16]);
}

#[test]
fn the_runs_in_a_folder_are_not_classes() {
    let sets = photos();
    let before = read_folder(sets.0.path(), SMALL).expect("a set");
    for run in ["runs/photos-m4-s1", "runs/reproduce/a", "a-run"] {
        std::fs::create_dir_all(sets.path(run).join("checkpoints")).expect("a directory");
        sets.write(&format!("{run}/recipe.toml"), b"");
        sets.write(&format!("{run}/metrics.jsonl"), b"");
    }
    let after = read_folder(sets.0.path(), SMALL).expect("a set");
    assert_eq!(after.digest(), before.digest());
    assert_eq!(count_folder(sets.0.path()).expect("a folder"), (2, 4));
    assert_eq!(files_in(sets.0.path()).expect("a folder").len(), 4);
    // A class called `runs` is one.
    std::fs::create_dir(sets.path("runs/images")).expect("a directory");
    let (problem, _) = refused(read_folder(sets.0.path(), SMALL), "runs");
    let DataProblem::Files { errors, .. } = problem else { panic!("{problem}") };
    let nested = |error: &DataError| matches!(error.problem, DataProblem::NestedDirectory);
    assert!(errors.len() == 3 && errors.iter().all(nested), "{errors:?}");
}

#[test]
fn all_bad_files_are_named_in_one_message() {
    let sets = photos();
    for number in 0..30 {
        sets.write(&format!("cats/bad{number:02}.png"), b"no image");
    }
    sets.write("dogs/worse.jpg", b"");
    let error = read_folder(sets.0.path(), SMALL).expect_err("it is refused");
    assert_eq!(error.path, sets.0.path());
    let text = error.to_string();
    for words in [
        "31 files cannot be read, of 35 in all",
        "cats/bad00.png: this is not a JPEG",
        "bad19",
        "and 11 more",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    assert!(!text.contains("bad20"), "{text}");

    let files = files_in(sets.0.path()).expect("a folder");
    let (images, errors) = read_readable_images(&files, SMALL).expect("memory");
    assert_eq!((images.len(), errors.len()), (4, 31));
    let good: Vec<_> = (0..4).map(|index| images.file(index).expect("a file")).collect();
    assert!(good.iter().all(|file| !errors.iter().any(|error| error.path == **file)), "{good:?}");
    let alone = read_images(&[good[1].to_owned()], SMALL).expect("an image");
    assert_eq!(alone.pixels(), images.image(1));
}

#[cfg(unix)]
#[test]
fn links_in_a_circle_are_followed_once() {
    let sets = photos();
    let expected = files_in(sets.0.path()).expect("a folder");
    for link in ["cats/all", "dogs/all", "dogs/again"] {
        std::os::unix::fs::symlink("..", sets.path(link)).expect("a link");
    }
    assert_eq!(files_in(sets.0.path()).expect("a folder"), expected);
    // A link to a directory elsewhere is not in a circle.
    std::fs::create_dir(sets.path("elsewhere")).expect("a directory");
    std::os::unix::fs::symlink("../cats", sets.path("elsewhere/cats")).expect("a link");
    let linked = files_in(&sets.path("elsewhere")).expect("a folder");
    assert!(
        !linked.is_empty() && linked.len() >= files_in(&sets.path("cats")).expect("a folder").len()
    );
}

#[test]
fn the_reason_of_a_truncated_image_is_one_line() {
    let sets = photos();
    let mut jpeg = std::io::Cursor::new(Vec::new());
    let image = image::RgbImage::from_fn(40, 40, |x, y| image::Rgb([x as u8 * 6, y as u8 * 6, 9]));
    image.write_to(&mut jpeg, image::ImageFormat::Jpeg).expect("memory");
    for length in [30, 200, 400, 600] {
        sets.write("cats/cut.jpg", &jpeg.get_ref()[..length]);
        let text = read_folder(sets.0.path(), SMALL).unwrap_err().to_string();
        assert!(text.contains("cut.jpg") && text.contains("truncated"), "{text:?}");
        assert!(!text.contains('\n') && !text.contains(" )"), "{text:?}");
    }
}

/// Two names that are not text would be the same text.
#[cfg(unix)]
#[test]
fn a_class_whose_name_is_not_text_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let sets = photos();
    let class = sets.0.path().join(std::ffi::OsStr::from_bytes(b"\xff"));
    std::fs::rename(sets.path("cats"), &class).expect("a directory");
    let text = read_folder(sets.0.path(), SMALL).unwrap_err().to_string();
    assert!(text.contains("not valid UTF-8"), "{text}");
}

#[test]
fn a_run_may_be_next_to_the_classes_but_not_among_the_images() {
    let sets = photos();
    let among = |folder: &str, run: &str| is_among_images(&sets.path(folder), &sets.path(run));
    assert!(among("", "") && among("", "cats") && among("", "cats/runs/new"));
    assert!(among("dogs/..", "cats/../dogs/run"));
    assert!(!among("", "runs/new") && !among("", "new") && !among("", "../elsewhere"));
    for class in ["cats", "dogs"] {
        for part in ["divided/train", "divided/test"] {
            std::fs::create_dir_all(sets.path(part).join(class)).expect("a directory");
        }
    }
    assert!(among("divided", "divided/test") && among("divided", "divided/train/cats/new"));
    assert!(!among("divided", "divided/runs") && !among("divided", "divided/train/runs/new"));
}

#[test]
fn reading_can_be_watched_and_stopped() {
    let sets = photos();
    let mut told = Vec::new();
    let read = read_folder_watched(sets.0.path(), SMALL, &mut |reading: Reading| {
        told.push((reading.read, reading.total));
        ControlFlow::Continue(())
    });
    assert!(read.is_ok());
    assert_eq!(told, [(0, 4)]);
    let stopped = read_folder_watched(sets.0.path(), SMALL, &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped.expect_err("stopped").problem, DataProblem::Interrupted));
}

/// A PNG with this size in its header, and the pixels of another image.
fn png_of_size(png: &[u8], width: u32, height: u32) -> Vec<u8> {
    let mut png = png.to_vec();
    png[16..24].copy_from_slice(&[width.to_be_bytes(), height.to_be_bytes()].concat());
    let mut checksum = flate2::Crc::new();
    checksum.update(&png[12..29]);
    png[29..33].copy_from_slice(&checksum.sum().to_be_bytes());
    png
}

#[test]
fn an_image_with_too_many_pixels_is_rejected_before_it_is_decoded() {
    let sets = photos();
    let png = std::fs::read(sets.path("dogs/b.png")).expect("the image");
    for (width, height) in [(20_000, 20_000), (32_000, 4_001)] {
        sets.write("dogs/large.png", &png_of_size(&png, width, height));
        let (problem, text) = refused(read_folder(sets.0.path(), SMALL), "dogs/large.png");
        assert!(matches!(problem, DataProblem::ImageSize { .. }), "{text}");
        assert!(text.contains(&format!("{width} x {height}")) && text.contains("scale"), "{text}");
    }
    sets.write("dogs/large.png", &png_of_size(&png, 9, 6));
    let (problem, _) = refused(read_folder(sets.0.path(), SMALL), "dogs/large.png");
    assert!(matches!(problem, DataProblem::Image(_)), "its size is fine, its pixels are not");
}

#[test]
fn train_and_test_folders_share_their_labels() {
    let sets = Sets::new();
    for path in ["train/a", "train/b", "train/c", "test/c", "test/a"] {
        std::fs::create_dir_all(sets.path(path)).expect("a directory");
        RgbImage::new(4, 4).save(sets.path(path).join("x.png")).expect("saved");
    }
    let set = read_folder(sets.0.path(), SMALL).expect("a set");
    assert_eq!(set.train.labels(), [0, 1, 2]);
    assert_eq!(set.test.expect("a test set").labels(), [0, 2]);
    std::fs::create_dir(sets.path("test/d")).expect("a directory");
    let (problem, _) = refused(read_folder(sets.0.path(), SMALL), "test/d");
    assert!(matches!(problem, DataProblem::UnknownClass));
}

#[test]
fn images_are_center_cropped_and_resized() {
    let sets = Sets::new();
    std::fs::create_dir(sets.path("a")).expect("a directory");
    // Black, white in the middle 4 columns of 12; the middle 6 x 6 are 1 + 4 + 1 columns.
    let wide = RgbImage::from_fn(12, 6, |x, _| Rgb([if (4..8).contains(&x) { 255 } else { 0 }; 3]));
    wide.save(sets.path("a/wide.png")).expect("saved");
    let as_is = Shape { channels: 1, height: 6, width: 6 };
    let set = read_folder(sets.0.path(), as_is).expect("a set");
    let row = [0, 255, 255, 255, 255, 0];
    assert_eq!(set.train.image(0), row.repeat(6));
    // The same aspect ratio at twice the size: nothing is cropped, and each pixel becomes about four.
    let twice = Shape { channels: 1, height: 12, width: 24 };
    let set = read_folder(sets.0.path(), twice).expect("a set");
    let row = &set.train.image(0)[..24];
    assert!(row[..6].iter().chain(&row[18..]).all(|x| *x < 16), "{row:?}");
    assert!(row[10..14].iter().all(|x| *x > 239), "{row:?}");
    // An extreme aspect ratio needs no additional memory.
    RgbImage::from_pixel(1, 30_000, Rgb([9; 3])).save(sets.path("a/line.png")).expect("saved");
    let wide = Shape { channels: 1, height: 64, width: 2_000 };
    let set = read_folder(sets.0.path(), wide).expect("a set");
    assert!(set.train.image(0).iter().all(|x| *x == 9));
}

#[test]
fn the_exif_orientation_is_applied() {
    let sets = Sets::new();
    std::fs::create_dir(sets.path("a")).expect("a directory");
    let half = RgbImage::from_fn(16, 16, |x, _| Rgb([if x < 8 { 0 } else { 255 }; 3]));
    half.save(sets.path("a/plain.jpg")).expect("saved");
    let plain = std::fs::read(sets.path("a/plain.jpg")).expect("the image");
    // An EXIF segment with one entry: orientation (0x0112), type short, one value, 6 (rotate 90° clockwise).
    let entry = [0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0];
    let tiff = [b"II*\0\x08\0\0\0\x01\0".as_slice(), &entry, &[0; 4]].concat();
    let length = (2 + 6 + tiff.len() as u16).to_be_bytes();
    let segment = [b"\xff\xe1".as_slice(), &length, b"Exif\0\0", &tiff].concat();
    sets.write("a/turned.jpg", &[&plain[..2], &segment, &plain[2..]].concat());
    let shape = Shape { channels: 1, height: 16, width: 16 };
    let set = read_folder(sets.0.path(), shape).expect("a set");
    let (plain, turned) = (set.train.image(0), set.train.image(1));
    for (y, x) in [(2, 2), (2, 13), (13, 2), (13, 13)] {
        assert_eq!(turned[y * 16 + x] > 127, plain[x * 16 + y] > 127, "row {y}, column {x}");
        assert_eq!(plain[y * 16 + x] > 127, x > 8);
    }
}

#[test]
fn invalid_folders_are_rejected_with_the_file() {
    let with = |path: &str, bytes: &[u8]| {
        let sets = photos();
        sets.write(path, bytes);
        refused(read_folder(sets.0.path(), SMALL), path).0
    };
    assert!(matches!(with("cats/notes.txt", b"meow"), DataProblem::NotImage));
    assert!(matches!(with("cats/empty.png", b""), DataProblem::NotImage));
    assert!(matches!(with("loose.png", b""), DataProblem::StrayFile));
    let png = {
        let path = photos();
        std::fs::read(path.path("dogs/b.png")).expect("the image")
    };
    assert!(matches!(with("dogs/cut.png", &png[..png.len() - 20]), DataProblem::Image(_)));
    assert!(matches!(with("dogs/cut.png", &png[..10]), DataProblem::Image(_)));
    // A header that claims a height and width of 2^31 - 1 pixels.
    let mut huge = png.clone();
    huge[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
    assert!(matches!(with("dogs/huge.png", &huge), DataProblem::Image(_)));
    let gif = b"GIF89a\x01\x00\x01\x00\x00\x00\x00;";
    assert!(matches!(with("dogs/moving.gif", gif), DataProblem::NotImage));

    let sets = photos();
    std::fs::create_dir(sets.path("cats/kittens")).expect("a directory");
    let (problem, _) = refused(read_folder(sets.0.path(), SMALL), "cats/kittens");
    assert!(matches!(problem, DataProblem::NestedDirectory));
    let sets = photos();
    std::fs::create_dir(sets.path("birds")).expect("a directory");
    let (problem, _) = refused(read_folder(sets.0.path(), SMALL), "birds");
    assert!(matches!(problem, DataProblem::EmptyClass));
    let empty = Sets::new();
    assert!(matches!(
        read_folder(empty.0.path(), SMALL).expect_err("empty").problem,
        DataProblem::NoClasses
    ));
    let missing = read_folder(Path::new("no/such/folder"), SMALL).expect_err("missing");
    assert!(matches!(missing.problem, DataProblem::NoFile));
    let large = Shape { channels: 2, height: 4, width: 4 };
    assert!(matches!(
        read_folder(empty.0.path(), large).expect_err("shape").problem,
        DataProblem::Shape(_)
    ));
}
