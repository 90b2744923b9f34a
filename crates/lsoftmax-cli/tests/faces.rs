//! From drawn photographs to aligned faces, a list, a model, pairs and a gallery: the built program.

mod program;

use std::fs;
use std::path::Path;

use burn::tensor::Device;
use image::{Rgb, RgbImage};
use lsoftmax_lab::faces::LfwData;
use lsoftmax_testing::{assert_documented, key_paths};
use program::arrays::{PLAIN, npy, read_npy};
use program::run::done;
use program::{assert_says, command, json, lsoftmax_in, printed, refused};

/// A drawn face: a colour per person, features per image; landmarks at a quarter of the template, turned a little.
fn draw(folder: &Path, person: &str, image: u32, table: &mut String) {
    let seed = person.bytes().map(u32::from).sum::<u32>();
    let (shift, name) = (image % 5, format!("{person}/{person}_{image:04}.png"));
    let picture = RgbImage::from_fn(64, 64, |x, y| {
        let wave =
            ((x + 3 * image) * (seed % 7 + 1) / 3 + y * (seed % 5 + 1) / 2 + 11 * image) % 64;
        Rgb([(seed % 200) as u8, (2 * wave) as u8, (wave + 40 * (image % 3)) as u8])
    });
    fs::create_dir_all(folder.join(person)).expect("a directory");
    picture.save(folder.join(&name)).expect("an image");
    let points = [[22, 26], [42, 25], [32, 36], [24, 46], [40, 46]].map(|[x, y]| [x + shift, y]);
    let points: Vec<String> = points.as_flattened().iter().map(u32::to_string).collect();
    table.push_str(&format!("{name}\t{}\n", points.join("\t")));
}

const HEADER: &str = "path\ta\tb\tc\td\te\tf\tg\th\ti\tj\n";

/// Of all combinations of a pair of one person and a pair of two, the fraction in which the first has the larger cosine; ties count half.
fn auc(features: &[f32], people: &[&Path]) -> f64 {
    let width = features.len() / people.len();
    let row = |index: usize| &features[index * width..][..width];
    let dot = |a: usize, b: usize| {
        row(a).iter().zip(row(b)).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>()
    };
    let cosine = |a, b| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for left in 0..people.len() {
        for right in left + 1..people.len() {
            let list = if people[left] == people[right] { &mut one } else { &mut two };
            list.push(cosine(left, right));
        }
    }
    let wins = |same: &f64| -> f64 {
        let win = |other: &f64| {
            if (same - other).abs() < 1e-12 { 0.5 } else { f64::from(u8::from(same > other)) }
        };
        two.iter().map(win).sum()
    };
    one.iter().map(wins).sum::<f64>() / (one.len() * two.len()) as f64
}

#[test]
fn photographs_become_a_verified_model() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let run = |arguments: &[&str]| lsoftmax_in(path, arguments);
    let (mut training, mut evaluation) = (HEADER.to_owned(), HEADER.to_owned());
    for person in ["src_Ann_Lee", "src_Bob_Ray", "src_Cy_Dow", "src_Élodie_Foy", "src_Gus_Hay"] {
        (1..=8).for_each(|image| draw(&path.join("photos"), person, image, &mut training));
    }
    for person in ["Elodie_Foy", "Ida_Jay", "Kit_Low"] {
        (1..=4).for_each(|image| draw(&path.join("lfw"), person, image, &mut evaluation));
    }
    // One photograph of the evaluation under another name, one twice, one without landmarks.
    fs::copy(path.join("lfw/Ida_Jay/Ida_Jay_0001.png"), path.join("photos/src_Cy_Dow/leak.png"))
        .unwrap();
    fs::copy(
        path.join("photos/src_Bob_Ray/src_Bob_Ray_0001.png"),
        path.join("photos/src_Bob_Ray/twice.png"),
    )
    .unwrap();
    fs::copy(
        path.join("photos/src_Bob_Ray/src_Bob_Ray_0002.png"),
        path.join("photos/src_Bob_Ray/lost.png"),
    )
    .unwrap();
    let points = |name: &str, table: &str| {
        let line = table.lines().find(|line| line.starts_with(name)).expect("a line");
        line.split_once('\t').expect("a path").1.to_owned()
    };
    training.push_str(&format!(
        "src_Cy_Dow/leak.png\t{}\n",
        points("Ida_Jay/Ida_Jay_0001", &evaluation)
    ));
    training.push_str(&format!(
        "src_Bob_Ray/twice.png\t{}\n",
        points("src_Bob_Ray/src_Bob_Ray_0001", &training)
    ));
    fs::write(path.join("photos.tsv"), &training).unwrap();
    fs::write(path.join("lfw.tsv"), &evaluation).unwrap();

    let align = [
        "faces",
        "align",
        "photos",
        "--landmarks",
        "photos.tsv",
        "--out",
        "aligned",
        "--size",
        "12x14",
    ];
    let aligned = json(run(&[&align[..], &["--json"]].concat()));
    let reference = include_str!("../../../docs/reference.md");
    assert_documented(reference, "## faces align --json", &key_paths(&aligned));
    assert_eq!(aligned["aligned"], 42);
    assert_eq!(aligned["without_landmarks"][0], "src_Bob_Ray/lost.png");
    let again = ["faces", "align", "aligned", "--landmarks", "photos.tsv", "--out", "twice"];
    assert_says(refused(run(&again)), &["aligned", "already aligned", "12 x 14"]);
    let evaluated = [
        "faces",
        "align",
        "lfw",
        "--landmarks",
        "lfw.tsv",
        "--out",
        "lfw-aligned",
        "--size",
        "12x14",
    ];
    assert_says(printed(run(&evaluated)), &["12 faces of 12 x 14"]);

    let list =
        ["faces", "list", "aligned", "--evaluation", "lfw-aligned", "--out", "list", "--near", "0"];
    let listed =
        json(run(&[&list[..], &["--fewest-images", "5", "--held-out", "1", "--json"]].concat()));
    assert_eq!(listed["excluded"][0]["person"], "src_Élodie_Foy");
    assert_eq!(listed["excluded"][0]["evaluation"], "Elodie_Foy");
    assert_eq!((&listed["people"], &listed["held_out_people"]), (&3.into(), &1.into()));
    assert_eq!(listed["images"]["evaluation-image"], 1);
    assert_eq!(listed["images"]["duplicate"], 1);
    assert_eq!(listed["images"]["evaluation-person"], 8);
    let table = fs::read_to_string(path.join("list/list.tsv")).expect("a table");
    assert_says(&table, &["src_Cy_Dow/leak.png\tsrc_Cy_Dow\tevaluation-image"]);
    assert_eq!(fs::read_dir(path.join("list/train")).expect("a folder").count(), 3);
    assert_says(refused(run(&list)), &["list", "already exists"]);

    let recipe = "name = \"tiny\"\ndata = \"list\"\nvalidation = 3\nmargin = 1\nlambda = 0\nbatch = 4\n\
        images_per_class = 2\nloss = { contrastive = { weight = 1, margin = 1 } }\nsteps = 4\nseed = 1\nprecision = \"f32\"\n\
        learning_rate = { schedule = \"steps\", rate = 0.01, factor = 0.1, at = [] }\nevaluate_every = 4\nlog_every = 4\n\
        checkpoint_every = 4\n[network]\ninput = [3, 14, 12]\nstages = [{ filters = 8, units = 1 }]\nfeatures = { size = 6 }\n";
    fs::write(path.join("tiny.toml"), recipe).unwrap();
    let mut train = command(&["train", "tiny.toml", "--out", "run"]);
    train.current_dir(path);
    done(train);

    let pairs = "2\t2\nElodie_Foy\t1\t2\nElodie_Foy\t3\t4\nElodie_Foy\t1\tIda_Jay\t1\nIda_Jay\t2\tKit_Low\t2\n\
        Ida_Jay\t1\t2\nKit_Low\t3\t4\nIda_Jay\t3\tKit_Low\t1\nKit_Low\t2\tElodie_Foy\t4\n";
    fs::write(path.join("pairs.txt"), pairs).unwrap();
    let verify = ["verify", "run", "--images", "lfw-aligned", "--pairs", "pairs.txt"];
    let protocols = ["--protocol", "sphereface,insightface,best-threshold,paper", "--pca", "3"];
    let verified = json(run(&[
        &verify[..],
        &protocols,
        &["--contact-sheet", "worst.png", "--roc", "roc.png", "--json"],
    ]
    .concat()));
    assert_eq!(verified.as_array().map(Vec::len), Some(4));
    assert_eq!(verified[3]["pca"]["dimension"], 3);
    assert_documented(reference, "## verify --json", &key_paths(&verified[3]));
    assert!(path.join("worst.png").is_file() && path.join("roc.png").is_file());
    fs::write(path.join("gone.txt"), pairs.replace("Ida_Jay\t1\t2", "Ida_Jay\t1\t9")).unwrap();
    let gone = run(&["verify", "run", "--images", "lfw-aligned", "--pairs", "gone.txt"]);
    assert_says(refused(gone), &["1 of the", "missing", "Ida_Jay_0009"]);

    for (flip, columns) in [("sum", 6), ("concat", 12)] {
        printed(run(&["embed", "run", "lfw-aligned", "--out", "e.npy", "--flip", flip]));
        assert_eq!(read_npy(&path.join("e.npy")).shape, [12, columns]);
    }

    printed(run(&["embed", "run", "list/train", "--out", "t.npy", "--flip", "concat"]));
    let names = fs::read_to_string(path.join("t.json")).expect("the names of the rows");
    let names: serde_json::Value = serde_json::from_str(&names).expect("JSON");
    let people = names["names"].as_array().expect("names").iter();
    let people: Vec<&Path> =
        people.map(|name| Path::new(name.as_str().unwrap()).parent().unwrap()).collect();
    let expected = auc(&read_npy(&path.join("t.npy")).values, &people);
    // Any folder of people will do for those who were held out; these are several.
    let data = LfwData {
        images: path.join("lfw-aligned"),
        pairs: path.join("pairs.txt"),
        held_out: path.join("list/train"),
    };
    let result = data.verify(&path.join("run"), &Device::flex()).expect("a result");
    let unseen = result.unseen.expect("people who were held out");
    assert_eq!((unseen.people, unseen.images), (3, people.len()));
    assert!((unseen.auc - expected).abs() < 1e-6, "{} instead of {expected}", unseen.auc);
    let data = LfwData { held_out: path.join("nobody"), ..data };
    assert_eq!(data.verify(&path.join("run"), &Device::flex()).expect("a result").unseen, None);

    let gallery = ["identify", "--model", "run", "--gallery", "list/train"];
    let saved = ["--held-out", "list/held-out", "--save", "g.safetensors"];
    assert_says(printed(run(&[&gallery[..], &saved].concat())), &["3 people", "unknown beyond"]);
    let identify = |probes: &str| {
        let gallery = ["identify", "--model", "run", "--gallery", "g.safetensors"];
        json(run(&[&gallery[..], &["--probes", probes, "--json"]].concat()))
    };
    let found = identify("list/train");
    assert_eq!(found["rank_1"], 1.0, "every face is nearest to itself");
    assert_documented(reference, "## identify --json", &key_paths(&found));
    let one = identify("lfw-aligned/Ida_Jay/Ida_Jay_0001.png");
    assert_eq!(one["probes"].as_array().map(Vec::len), Some(1));
    // Embeddings of twice the length do not fit.
    let other = run(&["identify", "--gallery", "g.safetensors", "--probes", "e.npy"]);
    assert_says(refused(other), &["12 numbers per face", "the gallery 6"]);
}

#[test]
fn landmarks_at_the_template_are_of_aligned_images() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let mut table = HEADER.to_owned();
    fs::create_dir(path.join("faces")).expect("a directory");
    for image in 0..10 {
        RgbImage::new(96, 112).save(path.join(format!("faces/{image}.png"))).expect("an image");
        let points =
            [30, 52, 66, 52, 48, 72, 34, 92, 63, 92].map(|value| (value + image % 3).to_string());
        table.push_str(&format!("{image}.png\t{}\n", points.join("\t")));
    }
    fs::write(path.join("points.tsv"), table).expect("a file");
    let align = ["faces", "align", "faces", "--landmarks", "points.tsv", "--out", "out"];
    assert_says(refused(lsoftmax_in(path, &align)), &["10 of 10 images", "already", "--force"]);
    printed(lsoftmax_in(path, &[&align[..], &["--force"]].concat()));
}

#[test]
fn embeddings_are_identified_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let rows = |rows: &[[f64; 2]]| {
        npy(PLAIN, &rows.iter().map(|row| row.to_vec()).collect::<Vec<_>>(), false)
    };
    fs::write(path.join("g.npy"), rows(&[[1.0, 0.0], [2.0, 0.1], [0.0, 3.0], [-1.0, 0.0]]))
        .unwrap();
    fs::write(path.join("names.txt"), "ann\nann\nbob\ncy\n").unwrap();
    fs::write(path.join("p.npy"), rows(&[[5.0, 0.1], [1.0, 4.0], [1.0, 1.0]])).unwrap();
    fs::write(path.join("truth.txt"), "ann\nbob\ndan\n").unwrap();
    let identify = ["identify", "--gallery", "g.npy", "--names", "names.txt", "--probes", "p.npy"];
    let found = json(lsoftmax_in(
        path,
        &[&identify[..], &["--probe-names", "truth.txt", "--threshold", "20", "--json"]].concat(),
    ));
    assert_eq!((&found["rank_1"], &found["rank_5"]), (&1.0.into(), &1.0.into()));
    assert_eq!(
        (&found["strangers_rejected"], &found["known_rejected"]),
        (&1.0.into(), &0.0.into())
    );
    // atan(1/4), to bob; the stranger is at 45° to two people.
    let angle = found["probes"][1]["nearest"][0]["angle"].as_f64().expect("an angle");
    assert!((angle - 0.25f64.atan().to_degrees()).abs() < 1e-4, "{angle}");
    assert_eq!(found["probes"][2]["unknown"], true);
    let short = ["identify", "--gallery", "g.npy", "--names", "truth.txt", "--probes", "p.npy"];
    assert_says(refused(lsoftmax_in(path, &short)), &["truth.txt", "3 names", "4 embeddings"]);
    fs::write(path.join("bad.safetensors"), "no gallery").unwrap();
    let bad = ["identify", "--gallery", "bad.safetensors", "--probes", "p.npy"];
    assert_says(refused(lsoftmax_in(path, &bad)), &["bad.safetensors", "not a gallery"]);
    assert_says(
        refused(lsoftmax_in(path, &["identify", "--gallery", ".", "--probes", "p.npy"])),
        &["--model"],
    );
}
