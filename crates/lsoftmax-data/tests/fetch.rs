//! Fetching from well-behaved and misbehaving servers: the result is either the right files or an error
//! of one sentence, never partial files in the set's directory.

mod server;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flate2::write::GzEncoder;
use lsoftmax_data::fetch::{
    Damage, FetchError, FetchOutcome, FetchReport, Origin, Timeouts, fetch,
};
use lsoftmax_data::{Archive, DataDir, Format, Set, SetFile};
use server::{Reply, Request, Server};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

const NAME: &str = "small.tar.gz";
const FILES: [&str; 2] = ["small/train.bin", "small/test.bin"];

/// The contents of a file: CIFAR-10 records of noise, which is incompressible.
fn contents(file: usize) -> Vec<u8> {
    let mut state = 1 + file as u64;
    let mut noise = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..40 * 3073).map(|i| if i % 3073 == 0 { noise() % 10 } else { noise() }).collect()
}

fn sum(bytes: &[u8]) -> &'static str {
    leak(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("in memory");
    encoder.finish().expect("in memory")
}

/// An entry of an archive: name, type, contents.
type Entry<'a> = (&'a str, tar::EntryType, &'a [u8]);

/// A gzipped tar archive; names are written unchecked, including unsafe ones.
fn tar_gz(entries: &[Entry]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, kind, bytes) in entries {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        if *kind == tar::EntryType::Symlink {
            header.set_link_name("/etc/passwd").expect("a link");
        }
        header.set_cksum();
        tar.append(&header, *bytes).expect("in memory");
    }
    gzip(&tar.into_inner().expect("in memory"))
}

const REGULAR: tar::EntryType = tar::EntryType::Regular;

fn archive() -> Vec<u8> {
    let (train, test) = (contents(0), contents(1));
    tar_gz(&[
        ("small/", tar::EntryType::Directory, &[]),
        ("small/readme.html", REGULAR, b"not part of the set"),
        (FILES[0], REGULAR, &train),
        (FILES[1], REGULAR, &test),
    ])
}

/// A set with the archive above, whose official address is `base`.
fn set(base: &str) -> Set {
    let archive = archive();
    let file = |file: usize| SetFile {
        path: FILES[file],
        bytes: contents(file).len() as u64,
        sha256: sum(&contents(file)),
    };
    Set {
        name: "small",
        about: "a small set",
        home: "nowhere",
        archives: Box::leak(Box::new([Archive {
            base: leak(base.to_owned()),
            name: NAME,
            bytes: archive.len() as u64,
            sha256: sum(&archive),
        }])),
        files: Box::leak(Box::new([file(0), file(1)])),
        format: Format::CIFAR10,
        class_names: &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"],
        built_in: None,
    }
}

/// A data directory into which the set is fetched.
struct FetchDirectory {
    directory: TempDir,
}

impl FetchDirectory {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn part(&self) -> PathBuf {
        self.path(".small.part").join(format!("{NAME}.part"))
    }

    fn fetch_from(&self, set: &Set, origin: &Origin) -> Result<FetchReport, FetchError> {
        let data = DataDir::find(Some(self.directory.path().to_owned())).expect("a directory");
        let timeouts =
            Timeouts { connect: Duration::from_secs(5), stall: Duration::from_millis(400) };
        fetch(set, &data, origin, timeouts, &mut |_| {})
    }

    fn fetch(&self, server: &Server) -> Result<FetchReport, FetchError> {
        self.fetch_from(&set(&server.base()), &Origin::Official)
    }

    /// Asserts that the files are present, and nothing else.
    #[track_caller]
    fn assert_complete(&self) {
        for (number, file) in FILES.iter().enumerate() {
            let found = std::fs::read(self.path("small").join(file)).expect("the file");
            assert!(found == contents(number), "{file}");
        }
        assert_eq!(names(self.directory.path()), ["small"]);
        assert_eq!(names(&self.path("small/small")), ["test.bin", "train.bin"]);
    }

    #[track_caller]
    fn assert_empty(&self) {
        assert_eq!(names(self.directory.path()), [""; 0]);
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("a name").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    names
}

/// The message of an error, which must be one line with advice after a semicolon.
#[track_caller]
fn sentence<T>(result: Result<T, FetchError>) -> String {
    let text = result.map(|_| ()).expect_err("an error").to_string();
    assert!(!text.contains('\n') && text.contains(';'), "{text}");
    text
}

#[test]
fn a_set_is_downloaded_once() {
    let server = Server::start(|request| Reply::ranged(&archive(), request));
    let directory = FetchDirectory::new();
    assert_eq!(directory.fetch(&server).expect("fetched").outcome, FetchOutcome::Fetched);
    directory.assert_complete();
    assert_eq!(server.requests().len(), 1);
    assert_eq!(directory.fetch(&server).expect("fetched").outcome, FetchOutcome::AlreadyPresent);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_broken_connection_is_resumed() {
    let server = Server::start(|request| {
        let reply = Reply::ranged(&archive(), request);
        if request.number < 3 { reply.cut(60_000) } else { reply }
    });
    let directory = FetchDirectory::new();
    directory.fetch(&server).expect("fetched");
    directory.assert_complete();
    let starts: Vec<_> = server.requests().iter().map(|request| request.start).collect();
    assert_eq!(starts, [None, Some(60_000), Some(120_000), Some(180_000)]);
}

#[test]
fn a_failed_fetch_is_resumed_by_the_next() {
    let directory = FetchDirectory::new();
    let broken = Server::start(|request| match request.number {
        0 => Reply::whole(&archive()).cut(50_000),
        _ => Reply::ranged(&archive(), request).cut(0),
    });
    let text = sentence(directory.fetch(&broken));
    assert!(text.contains("after 50000 bytes"), "{text}");
    assert!(!directory.path("small").exists());
    assert_eq!(std::fs::metadata(directory.part()).expect("a part").len(), 50_000);

    let server = Server::start(|request| Reply::ranged(&archive(), request));
    directory.fetch(&server).expect("fetched");
    directory.assert_complete();
    assert_eq!(server.requests()[0].start, Some(50_000));
}

#[test]
fn without_range_support_the_download_starts_over() {
    let server = Server::start(|request| {
        let reply = Reply::whole(&archive());
        if request.number == 0 { reply.cut(60_000) } else { reply }
    });
    let directory = FetchDirectory::new();
    directory.fetch(&server).expect("fetched");
    directory.assert_complete();
    assert_eq!(server.requests().len(), 2);
}

/// A data directory with a partial download, as from an earlier call.
fn with_part(bytes: &[u8]) -> FetchDirectory {
    let directory = FetchDirectory::new();
    std::fs::create_dir(directory.path(".small.part")).expect("a directory");
    std::fs::write(directory.part(), bytes).expect("a part");
    directory
}

#[test]
fn a_partial_download_of_another_file_is_discarded() {
    let server = Server::start(|request| Reply::ranged(&archive(), request));
    for part in [vec![7; 1_000], vec![7; archive().len()], vec![7; archive().len() + 9]] {
        let directory = with_part(&part);
        directory.fetch(&server).expect("fetched");
        directory.assert_complete();
    }
}

#[test]
fn a_response_with_another_range_is_not_accepted() {
    let server = Server::start(|request| match request.start {
        None => Reply::whole(&archive()),
        Some(start) => {
            let elsewhere = Request { start: Some(start + 5), ..request.clone() };
            Reply::ranged(&archive(), &elsewhere)
        }
    });
    let directory = with_part(&archive()[..1_000]);
    directory.fetch(&server).expect("fetched");
    directory.assert_complete();
}

#[test]
fn a_complete_download_is_not_requested_again() {
    let server = Server::start(|_| Reply::status(404));
    let directory = with_part(&archive());
    directory.fetch(&server).expect("fetched");
    directory.assert_complete();
    assert!(server.requests().is_empty());
}

#[test]
fn corrupt_archives_are_rejected_and_leave_nothing() {
    let server = Server::start(|request| {
        let mut bytes = archive();
        bytes[70_000] ^= 1;
        Reply::ranged(&bytes, request)
    });
    let directory = FetchDirectory::new();
    let result = directory.fetch(&server);
    assert!(matches!(&result, Err(error @ FetchError::Damaged { .. }) if !error.is_bad_input()));
    assert!(sentence(result).contains("SHA-256"));
    directory.assert_empty();
}

#[test]
fn redirects_are_followed_with_their_range_up_to_a_limit() {
    let server = Server::start(|request| match request.path.as_str() {
        "/other" => Reply::ranged(&archive(), request),
        _ => Reply::redirect("/other"),
    });
    let directory = with_part(&archive()[..1_000]);
    directory.fetch(&server).expect("fetched");
    directory.assert_complete();
    assert_eq!(server.requests()[1].start, Some(1_000));

    let circle = Server::start(|_| Reply::redirect("/circle"));
    let directory = FetchDirectory::new();
    assert!(sentence(directory.fetch(&circle)).contains("redirect"));
    directory.assert_empty();
}

#[test]
fn a_stalled_server_times_out() {
    for sent in [0, 10_000] {
        let server = Server::start(move |_| Reply::whole(&archive()).stall(sent));
        let directory = FetchDirectory::new();
        let started = Instant::now();
        let text = sentence(directory.fetch(&server));
        assert!(text.contains("does not answer"), "{text}");
        assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
        assert!(!directory.path("small").exists());
    }
    let mute = Server::start(|_| Reply::mute());
    let directory = FetchDirectory::new();
    assert!(sentence(directory.fetch(&mute)).contains("does not answer"));
    directory.assert_empty();
}

#[test]
fn a_wrong_content_length_is_detected() {
    let directory = FetchDirectory::new();
    let longer = Server::start(|_| Reply::whole(&archive()).length(archive().len() + 10));
    assert!(sentence(directory.fetch(&longer)).contains("closed early"));
    assert!(!directory.path("small").exists());

    let directory = FetchDirectory::new();
    let shorter = Server::start(|_| Reply::whole(&archive()).length(archive().len() - 10));
    assert!(sentence(directory.fetch(&shorter)).contains("SHA-256"));
    directory.assert_empty();
}

#[test]
fn an_oversized_body_is_rejected() {
    let endless = vec![0; 3 * archive().len() + (1 << 20)];
    let server = Server::start(move |_| Reply::whole(&endless));
    let directory = FetchDirectory::new();
    assert!(sentence(directory.fetch(&server)).contains("it is longer than"));
    directory.assert_empty();
}

#[test]
fn an_error_status_is_reported() {
    for status in [403, 404, 500, 503] {
        let server = Server::start(move |_| Reply::status(status));
        let directory = FetchDirectory::new();
        assert!(sentence(directory.fetch(&server)).contains(&format!("status {status}")));
        directory.assert_empty();
    }
}

#[test]
fn an_unreachable_server_is_reported() {
    let directory = FetchDirectory::new();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let set = set(&format!("http://{}/", nobody.expect("an address")));
    assert!(sentence(directory.fetch_from(&set, &Origin::Official)).contains("connection failed"));
    directory.assert_empty();
}

/// Fetches an archive from a mirror, where only the files are verified.
fn from_mirror(archive: Vec<u8>) -> (FetchDirectory, Result<FetchReport, FetchError>) {
    let server = Server::start(move |request| Reply::ranged(&archive, request));
    let directory = FetchDirectory::new();
    let mirror = Origin::parse(&format!("{}sub/", server.base())).expect("an address");
    let result = directory.fetch_from(&set("http://127.0.0.1:1/"), &mirror);
    assert_eq!(server.requests()[0].path, format!("/sub/{NAME}"));
    (directory, result)
}

#[test]
fn a_mirror_may_repack_the_files() {
    let (train, test) = (contents(0), contents(1));
    let repacked = tar_gz(&[(FILES[1], REGULAR, &test), (FILES[0], REGULAR, &train)]);
    let (directory, result) = from_mirror(repacked);
    result.expect("fetched");
    directory.assert_complete();
}

#[test]
fn unsafe_and_incomplete_archives_are_rejected() {
    let (train, test) = (contents(0), contents(1));
    let link = tar::EntryType::Symlink;
    let hard = tar::EntryType::Link;
    let mut other = test.clone();
    other[5_000] ^= 1;
    let cases: [(&[Entry], &str); 7] = [
        (&[("../outside", REGULAR, b"x")], "outside its directory"),
        (&[("/tmp/outside", REGULAR, b"x")], "outside its directory"),
        (&[("small/../../outside", REGULAR, b"x")], "outside its directory"),
        (&[(FILES[0], link, b"")], "is a link"),
        (&[(FILES[0], hard, b"")], "is a link"),
        (&[(FILES[0], REGULAR, &train)], "lacks small/test.bin"),
        (&[(FILES[0], REGULAR, &train), (FILES[1], REGULAR, &other)], "contents of small/test.bin"),
    ];
    for (entries, words) in cases {
        let (directory, result) = from_mirror(tar_gz(entries));
        let text = sentence(result);
        assert!(text.contains(words), "{text}");
        directory.assert_empty();
    }
    for bytes in
        [b"<html>no archive</html>".to_vec(), gzip(b"no tar archive"), archive()[..9_000].to_vec()]
    {
        let (directory, result) = from_mirror(bytes);
        assert!(matches!(&result, Err(FetchError::Damaged { .. })), "{result:?}");
        directory.assert_empty();
    }
    // A decompression bomb.
    let bomb = tar_gz(&[("small/zeros", REGULAR, &vec![0; 30 << 20])]);
    let (directory, result) = from_mirror(bomb);
    assert!(
        matches!(&result, Err(FetchError::Damaged { damage: Damage::Unreadable(_), .. })),
        "{result:?}"
    );
    directory.assert_empty();
}

#[test]
fn archives_are_taken_from_a_directory() {
    let archives = tempfile::tempdir().expect("a directory");
    let origin = Origin::parse(archives.path().to_str().expect("text")).expect("a directory");
    let (directory, set) = (FetchDirectory::new(), set("http://127.0.0.1:1/"));

    let missing = directory.fetch_from(&set, &origin);
    assert!(matches!(&missing, Err(error @ FetchError::Local { .. }) if error.is_bad_input()));
    assert!(sentence(missing).contains(NAME));

    std::fs::write(archives.path().join(NAME), b"nonsense").expect("a file");
    let nonsense = directory.fetch_from(&set, &origin);
    assert!(matches!(&nonsense, Err(error @ FetchError::Damaged { .. }) if error.is_bad_input()));
    sentence(nonsense);
    directory.assert_empty();

    std::fs::write(archives.path().join(NAME), archive()).expect("a file");
    directory.fetch_from(&set, &origin).expect("fetched");
    directory.assert_complete();
    assert_eq!(names(archives.path()), [NAME]);

    assert!(matches!(Origin::parse("no/such/directory"), Err(FetchError::From(_))));
}

#[test]
fn an_incomplete_set_is_repaired_and_other_files_in_its_directory_stay() {
    let server = Server::start(|request| Reply::ranged(&archive(), request));
    let directory = FetchDirectory::new();
    std::fs::create_dir_all(directory.path("small/small")).expect("a directory");
    std::fs::write(directory.path("small/small/train.bin"), b"half").expect("a file");
    // It would be read in the place of the plain file.
    std::fs::write(directory.path("small/small/test.bin.gz"), b"damaged").expect("a file");
    std::fs::write(directory.path("small/mine.txt"), b"mine").expect("a file");
    assert_eq!(directory.fetch(&server).expect("fetched").outcome, FetchOutcome::Fetched);
    assert_eq!(std::fs::read(directory.path("small/mine.txt")).expect("kept"), b"mine");
    std::fs::remove_file(directory.path("small/mine.txt")).expect("removed");
    directory.assert_complete();
}

#[test]
fn idx_files_stay_gzipped() {
    let bytes = gzip(&contents(0));
    let served = bytes.clone();
    let server = Server::start(move |request| Reply::ranged(&served, request));
    let base = set(&server.base());
    let set = Set {
        archives: Box::leak(Box::new([Archive {
            base: base.archives[0].base,
            name: "images.gz",
            bytes: bytes.len() as u64,
            sha256: sum(&bytes),
        }])),
        files: Box::leak(Box::new([SetFile {
            path: "images",
            bytes: 1,
            sha256: sum(&contents(0)),
        }])),
        format: Format::IDX,
        ..base
    };
    let directory = FetchDirectory::new();
    directory.fetch_from(&set, &Origin::Official).expect("fetched");
    assert_eq!(names(&directory.path("small")), ["images.gz"]);
    assert_eq!(std::fs::read(directory.path("small/images.gz")).expect("the file"), bytes);
    let again = directory.fetch_from(&set, &Origin::Official).expect("fetched");
    assert_eq!(again.outcome, FetchOutcome::AlreadyPresent);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported() {
    let server = Server::start(|request| Reply::ranged(&archive(), request));
    let directory = FetchDirectory::new();
    std::fs::create_dir(directory.path(".small.part")).expect("a directory");
    std::os::unix::fs::symlink("/dev/full", directory.part()).expect("a link");
    let result = directory.fetch(&server);
    assert!(matches!(&result, Err(FetchError::Full(_))), "{result:?}");
    assert!(sentence(result).contains("the disk is full"));
    assert!(!directory.path("small").exists());
}

#[test]
fn an_unwritable_data_directory_is_reported() {
    let server = Server::start(|request| Reply::ranged(&archive(), request));
    let directory = FetchDirectory::new();
    std::fs::write(directory.path("file"), b"").expect("a file");
    let data = DataDir::find(Some(directory.path("file/data"))).expect("a directory");
    let set = set(&server.base());
    let result = fetch(&set, &data, &Origin::Official, Timeouts::default(), &mut |_| {});
    assert!(sentence(result).contains("cannot be written"));
    assert!(server.requests().is_empty());
}

#[test]
fn concurrent_fetches_are_excluded_by_a_lock() {
    let server = Server::start(|request| Reply::ranged(&archive(), request));
    let directory = with_part(b"");
    let lock = std::fs::File::create(directory.path(".small.part/lock")).expect("a lock");
    lock.lock().expect("locked");
    assert!(sentence(directory.fetch(&server)).contains("already"));
    drop(lock);
    directory.fetch(&server).expect("fetched");
    directory.assert_complete();
}
