//! Fetching from servers of every character: it ends in the right files or in one sentence, and
//! nothing half-written is left in the set's place.

mod server;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flate2::write::GzEncoder;
use lsoftmax_data::fetch::{Damage, FetchError, FetchOutcome, Fetched, Origin, Timeouts, fetch};
use lsoftmax_data::{Archive, DataDir, Format, Set, SetFile};
use server::{Reply, Request, Server};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

const NAME: &str = "small.tar.gz";
const FILES: [&str; 2] = ["small/train.bin", "small/test.bin"];

/// The contents of a file: CIFAR-10's records of noise, so that they do not get smaller when packed.
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

/// What an archive holds: its name, what it is, its bytes.
type Entry<'a> = (&'a str, tar::EntryType, &'a [u8]);

/// A tar archive, gzipped; the names are written as they are, safe or not.
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
        ("small/readme.html", REGULAR, b"not asked for"),
        (FILES[0], REGULAR, &train),
        (FILES[1], REGULAR, &test),
    ])
}

/// A set of the archive above, officially at `base`.
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

/// A place for the set, and how it is fetched there.
struct SetLocation {
    directory: TempDir,
}

impl SetLocation {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn part(&self) -> PathBuf {
        self.path(".small.part").join(format!("{NAME}.part"))
    }

    fn fetch_from(&self, set: &Set, origin: &Origin) -> Result<Fetched, FetchError> {
        let data = DataDir::find(Some(self.directory.path().to_owned())).expect("a place");
        let timeouts =
            Timeouts { connect: Duration::from_secs(5), stall: Duration::from_millis(400) };
        fetch(set, &data, origin, timeouts, &mut |_| {})
    }

    fn fetch(&self, server: &Server) -> Result<Fetched, FetchError> {
        self.fetch_from(&set(&server.base()), &Origin::Official)
    }

    /// The files are there, and nothing else.
    #[track_caller]
    fn assert_whole(&self) {
        for (number, file) in FILES.iter().enumerate() {
            let found = std::fs::read(self.path("small").join(file)).expect("the file");
            assert!(found == contents(number), "{file}");
        }
        assert_eq!(names(self.directory.path()), ["small"]);
        assert_eq!(names(&self.path("small/small")), ["test.bin", "train.bin"]);
    }

    #[track_caller]
    fn assert_nothing(&self) {
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

/// The sentence of a refusal.
#[track_caller]
fn sentence<T>(result: Result<T, FetchError>) -> String {
    let text = result.map(|_| ()).expect_err("an error").to_string();
    assert!(!text.contains('\n') && text.contains(';'), "{text}");
    text
}

#[test]
fn a_good_server_gives_the_files_and_a_second_call_asks_for_nothing() {
    let server = Server::start(|request| Reply::ranged(&archive(), request));
    let place = SetLocation::new();
    assert_eq!(place.fetch(&server).expect("fetched").outcome, FetchOutcome::Fetched);
    place.assert_whole();
    assert_eq!(server.requests().len(), 1);
    assert_eq!(place.fetch(&server).expect("fetched").outcome, FetchOutcome::AlreadyThere);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_connection_that_breaks_is_taken_up_where_it_stopped() {
    let server = Server::start(|request| {
        let reply = Reply::ranged(&archive(), request);
        if request.number < 3 { reply.cut(60_000) } else { reply }
    });
    let place = SetLocation::new();
    place.fetch(&server).expect("fetched");
    place.assert_whole();
    let starts: Vec<_> = server.requests().iter().map(|request| request.start).collect();
    assert_eq!(starts, [None, Some(60_000), Some(120_000), Some(180_000)]);
}

#[test]
fn a_fetch_that_failed_is_taken_up_by_the_next() {
    let place = SetLocation::new();
    let broken = Server::start(|request| match request.number {
        0 => Reply::whole(&archive()).cut(50_000),
        _ => Reply::ranged(&archive(), request).cut(0),
    });
    let text = sentence(place.fetch(&broken));
    assert!(text.contains("after 50000 bytes"), "{text}");
    assert!(!place.path("small").exists());
    assert_eq!(std::fs::metadata(place.part()).expect("a part").len(), 50_000);

    let server = Server::start(|request| Reply::ranged(&archive(), request));
    place.fetch(&server).expect("fetched");
    place.assert_whole();
    assert_eq!(server.requests()[0].start, Some(50_000));
}

#[test]
fn a_server_without_ranges_is_asked_for_everything() {
    let server = Server::start(|request| {
        let reply = Reply::whole(&archive());
        if request.number == 0 { reply.cut(60_000) } else { reply }
    });
    let place = SetLocation::new();
    place.fetch(&server).expect("fetched");
    place.assert_whole();
    assert_eq!(server.requests().len(), 2);
}

/// Leaves a part as an earlier call might have.
fn with_part(bytes: &[u8]) -> SetLocation {
    let place = SetLocation::new();
    std::fs::create_dir(place.path(".small.part")).expect("a directory");
    std::fs::write(place.part(), bytes).expect("a part");
    place
}

#[test]
fn a_part_of_another_file_is_thrown_away() {
    let server = Server::start(|request| Reply::ranged(&archive(), request));
    for part in [vec![7; 1_000], vec![7; archive().len()], vec![7; archive().len() + 9]] {
        let place = with_part(&part);
        place.fetch(&server).expect("fetched");
        place.assert_whole();
    }
}

#[test]
fn an_answer_to_another_range_is_not_believed() {
    let server = Server::start(|request| match request.start {
        None => Reply::whole(&archive()),
        Some(start) => {
            let elsewhere = Request { start: Some(start + 5), ..request.clone() };
            Reply::ranged(&archive(), &elsewhere)
        }
    });
    let place = with_part(&archive()[..1_000]);
    place.fetch(&server).expect("fetched");
    place.assert_whole();
}

#[test]
fn a_whole_part_is_not_asked_for_again() {
    let server = Server::start(|_| Reply::status(404));
    let place = with_part(&archive());
    place.fetch(&server).expect("fetched");
    place.assert_whole();
    assert!(server.requests().is_empty());
}

#[test]
fn corrupt_bytes_are_refused_and_leave_nothing() {
    let server = Server::start(|request| {
        let mut bytes = archive();
        bytes[70_000] ^= 1;
        Reply::ranged(&bytes, request)
    });
    let place = SetLocation::new();
    let result = place.fetch(&server);
    assert!(matches!(&result, Err(error @ FetchError::Damaged { .. }) if !error.is_bad_input()));
    assert!(sentence(result).contains("SHA-256"));
    place.assert_nothing();
}

#[test]
fn redirects_are_followed_with_their_range_and_not_for_ever() {
    let server = Server::start(|request| match request.path.as_str() {
        "/other" => Reply::ranged(&archive(), request),
        _ => Reply::redirect("/other"),
    });
    let place = with_part(&archive()[..1_000]);
    place.fetch(&server).expect("fetched");
    place.assert_whole();
    assert_eq!(server.requests()[1].start, Some(1_000));

    let circle = Server::start(|_| Reply::redirect("/circle"));
    let place = SetLocation::new();
    assert!(sentence(place.fetch(&circle)).contains("redirect"));
    place.assert_nothing();
}

#[test]
fn a_server_that_stalls_is_given_up_in_time() {
    for sent in [0, 10_000] {
        let server = Server::start(move |_| Reply::whole(&archive()).stall(sent));
        let place = SetLocation::new();
        let begun = Instant::now();
        let text = sentence(place.fetch(&server));
        assert!(text.contains("does not answer"), "{text}");
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        assert!(!place.path("small").exists());
    }
    let mute = Server::start(|_| Reply::mute());
    let place = SetLocation::new();
    assert!(sentence(place.fetch(&mute)).contains("does not answer"));
    place.assert_nothing();
}

#[test]
fn a_wrong_length_is_noticed() {
    let place = SetLocation::new();
    let longer = Server::start(|_| Reply::whole(&archive()).length(archive().len() + 10));
    assert!(sentence(place.fetch(&longer)).contains("closed early"));
    assert!(!place.path("small").exists());

    let place = SetLocation::new();
    let shorter = Server::start(|_| Reply::whole(&archive()).length(archive().len() - 10));
    assert!(sentence(place.fetch(&shorter)).contains("SHA-256"));
    place.assert_nothing();
}

#[test]
fn a_body_without_end_is_not_taken() {
    let endless = vec![0; 3 * archive().len() + (1 << 20)];
    let server = Server::start(move |_| Reply::whole(&endless));
    let place = SetLocation::new();
    assert!(sentence(place.fetch(&server)).contains("goes on beyond"));
    place.assert_nothing();
}

#[test]
fn a_status_that_is_no_success_is_said() {
    for status in [403, 404, 500, 503] {
        let server = Server::start(move |_| Reply::status(status));
        let place = SetLocation::new();
        assert!(sentence(place.fetch(&server)).contains(&format!("status {status}")));
        place.assert_nothing();
    }
}

#[test]
fn a_server_that_is_not_there_is_said() {
    let place = SetLocation::new();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let set = set(&format!("http://{}/", nobody.expect("an address")));
    assert!(sentence(place.fetch_from(&set, &Origin::Official)).contains("connection failed"));
    place.assert_nothing();
}

/// What becomes of an archive at a mirror, where only its files count.
fn from_mirror(archive: Vec<u8>) -> (SetLocation, Result<Fetched, FetchError>) {
    let server = Server::start(move |request| Reply::ranged(&archive, request));
    let place = SetLocation::new();
    let mirror = Origin::parse(&format!("{}sub/", server.base())).expect("an address");
    let result = place.fetch_from(&set("http://127.0.0.1:1/"), &mirror);
    assert_eq!(server.requests()[0].path, format!("/sub/{NAME}"));
    (place, result)
}

#[test]
fn a_mirror_may_pack_the_files_anew() {
    let (train, test) = (contents(0), contents(1));
    let anew = tar_gz(&[(FILES[1], REGULAR, &test), (FILES[0], REGULAR, &train)]);
    let (place, result) = from_mirror(anew);
    result.expect("fetched");
    place.assert_whole();
}

#[test]
fn archives_that_reach_out_or_lack_something_are_refused() {
    let (train, test) = (contents(0), contents(1));
    let link = tar::EntryType::Symlink;
    let hard = tar::EntryType::Link;
    let mut other = test.clone();
    other[5_000] ^= 1;
    let cases: [(&[Entry], &str); 7] = [
        (&[("../outside", REGULAR, b"x")], "leads out"),
        (&[("/tmp/outside", REGULAR, b"x")], "leads out"),
        (&[("small/../../outside", REGULAR, b"x")], "leads out"),
        (&[(FILES[0], link, b"")], "is a link"),
        (&[(FILES[0], hard, b"")], "is a link"),
        (&[(FILES[0], REGULAR, &train)], "lacks small/test.bin"),
        (&[(FILES[0], REGULAR, &train), (FILES[1], REGULAR, &other)], "contents of small/test.bin"),
    ];
    for (entries, words) in cases {
        let (place, result) = from_mirror(tar_gz(entries));
        let text = sentence(result);
        assert!(text.contains(words), "{text}");
        place.assert_nothing();
    }
    for bytes in
        [b"<html>no archive</html>".to_vec(), gzip(b"no tar archive"), archive()[..9_000].to_vec()]
    {
        let (place, result) = from_mirror(bytes);
        assert!(matches!(&result, Err(FetchError::Damaged { .. })), "{result:?}");
        place.assert_nothing();
    }
    // A mountain of zeros in a small archive.
    let bomb = tar_gz(&[("small/zeros", REGULAR, &vec![0; 30 << 20])]);
    let (place, result) = from_mirror(bomb);
    assert!(
        matches!(&result, Err(FetchError::Damaged { damage: Damage::Unreadable(_), .. })),
        "{result:?}"
    );
    place.assert_nothing();
}

#[test]
fn a_directory_of_archives_does_as_well() {
    let archives = tempfile::tempdir().expect("a directory");
    let origin = Origin::parse(archives.path().to_str().expect("text")).expect("a directory");
    let (place, set) = (SetLocation::new(), set("http://127.0.0.1:1/"));

    let missing = place.fetch_from(&set, &origin);
    assert!(matches!(&missing, Err(error @ FetchError::Local { .. }) if error.is_bad_input()));
    assert!(sentence(missing).contains(NAME));

    std::fs::write(archives.path().join(NAME), b"nonsense").expect("a file");
    let nonsense = place.fetch_from(&set, &origin);
    assert!(matches!(&nonsense, Err(error @ FetchError::Damaged { .. }) if error.is_bad_input()));
    sentence(nonsense);
    place.assert_nothing();

    std::fs::write(archives.path().join(NAME), archive()).expect("a file");
    place.fetch_from(&set, &origin).expect("fetched");
    place.assert_whole();
    assert_eq!(names(archives.path()), [NAME]);

    assert!(matches!(Origin::parse("no/such/directory"), Err(FetchError::From(_))));
}

#[test]
fn a_set_that_is_not_whole_is_mended_and_the_rest_of_its_directory_kept() {
    let server = Server::start(|request| Reply::ranged(&archive(), request));
    let place = SetLocation::new();
    std::fs::create_dir_all(place.path("small/small")).expect("a directory");
    std::fs::write(place.path("small/small/train.bin"), b"half").expect("a file");
    std::fs::write(place.path("small/mine.txt"), b"mine").expect("a file");
    assert_eq!(place.fetch(&server).expect("fetched").outcome, FetchOutcome::Fetched);
    assert_eq!(std::fs::read(place.path("small/mine.txt")).expect("kept"), b"mine");
    std::fs::remove_file(place.path("small/mine.txt")).expect("removed");
    place.assert_whole();
}

#[test]
fn idx_files_are_kept_gzipped() {
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
    let place = SetLocation::new();
    place.fetch_from(&set, &Origin::Official).expect("fetched");
    assert_eq!(names(&place.path("small")), ["images.gz"]);
    assert_eq!(std::fs::read(place.path("small/images.gz")).expect("the file"), bytes);
    let again = place.fetch_from(&set, &Origin::Official).expect("fetched");
    assert_eq!(again.outcome, FetchOutcome::AlreadyThere);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_one_sentence() {
    let server = Server::start(|request| Reply::ranged(&archive(), request));
    let place = SetLocation::new();
    std::fs::create_dir(place.path(".small.part")).expect("a directory");
    std::os::unix::fs::symlink("/dev/full", place.part()).expect("a link");
    let result = place.fetch(&server);
    assert!(matches!(&result, Err(FetchError::Full(_))), "{result:?}");
    assert!(sentence(result).contains("the disk is full"));
    assert!(!place.path("small").exists());
}

#[test]
fn a_place_that_cannot_be_written_is_one_sentence() {
    let server = Server::start(|request| Reply::ranged(&archive(), request));
    let place = SetLocation::new();
    std::fs::write(place.path("file"), b"").expect("a file");
    let data = DataDir::find(Some(place.path("file/data"))).expect("a place");
    let set = set(&server.base());
    let result = fetch(&set, &data, &Origin::Official, Timeouts::default(), &mut |_| {});
    assert!(sentence(result).contains("cannot be written"));
    assert!(server.requests().is_empty());
}

#[test]
fn two_at_once_do_not_meet() {
    let server = Server::start(|request| Reply::ranged(&archive(), request));
    let place = with_part(b"");
    let lock = std::fs::File::create(place.path(".small.part/lock")).expect("a lock");
    lock.lock().expect("locked");
    assert!(sentence(place.fetch(&server)).contains("already"));
    drop(lock);
    place.fetch(&server).expect("fetched");
    place.assert_whole();
}
