//! A training list: without the people of the evaluation, without duplicates, divided by person.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use lsoftmax_data::files::write_atomic;
use lsoftmax_data::{files_in, is_image_file, random_order, read_photo};
use rayon::prelude::*;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::FacesError;
use crate::align::WatchImages;
use crate::names::{NameMatch, NormalisedName};
use crate::perceptual_hash::PerceptualHash;

/// The number of images that each thread reads before the watcher is asked again.
const IMAGES_PER_THREAD: usize = 64;

/// How a list is made.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ListSettings {
    /// People with fewer images are set aside.
    pub fewest_images: usize,
    /// Images whose perceptual hashes differ in at most this many of 256 bits are near-duplicates.
    pub near: u32,
    /// Whether the part of a name before the first underscore is a source; people of the same name in several sources
    /// are then one person.
    pub sources: bool,
    /// The number of people held out of training, to choose thresholds on.
    pub held_out: usize,
    /// The number of images of every person in training that are test images.
    pub test_images: usize,
    /// The seed of the division.
    pub seed: u64,
}

impl Default for ListSettings {
    fn default() -> Self {
        Self { fewest_images: 10, near: 12, sources: false, held_out: 0, test_images: 1, seed: 1 }
    }
}

/// Why an image is not trained on, or where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// A training image.
    Train,
    /// A test image of a person in training.
    Test,
    /// An image of a person held out of training.
    HeldOut,
    /// Of a person of the evaluation.
    EvaluationPerson,
    /// The same photograph as one of the evaluation.
    EvaluationImage,
    /// The same photograph as an earlier one of the same person.
    Duplicate,
    /// The same photograph as one of another person, so one of the two names is wrong.
    Conflict,
    /// Of a person with too few images.
    TooFew,
}

impl Place {
    const ALL: [(Self, &str); 8] = [
        (Self::Train, "train"),
        (Self::Test, "test"),
        (Self::HeldOut, "held-out"),
        (Self::EvaluationPerson, "evaluation-person"),
        (Self::EvaluationImage, "evaluation-image"),
        (Self::Duplicate, "duplicate"),
        (Self::Conflict, "conflict"),
        (Self::TooFew, "too-few"),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(place, _)| *place == self).expect("all are listed").1
    }
}

/// A person of the training images who is in the evaluation.
#[derive(Clone, Debug, Serialize)]
pub struct Excluded {
    /// The directory.
    pub person: String,
    /// The directory in the evaluation.
    pub evaluation: String,
    /// How the names agree.
    pub names: NameMatch,
    /// The number of images.
    pub images: usize,
}

/// Two images that are the same photograph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SamePhoto {
    /// One of them.
    pub one: PathBuf,
    /// The other.
    pub other: PathBuf,
    /// The number of bits in which their hashes differ; 0 if the files are the same.
    pub bits: u32,
    /// Whether the files have the same bytes.
    pub exact: bool,
}

/// What a list contains, and what it leaves out.
#[derive(Clone, Debug, Serialize)]
pub struct ListReport {
    /// The number of people in training.
    pub people: usize,
    /// The number of people held out.
    pub held_out_people: usize,
    /// The number of images by place.
    pub images: BTreeMap<&'static str, usize>,
    /// The people of the evaluation who were excluded.
    pub excluded: Vec<Excluded>,
    /// People with too few images, and how many each has.
    pub too_few: Vec<(String, usize)>,
    /// Directories that were merged into one person.
    pub merged: Vec<(String, Vec<String>)>,
    /// Training images that are also in the evaluation.
    pub in_evaluation: Vec<SamePhoto>,
    /// The same photograph under two names.
    pub conflicts: Vec<SamePhoto>,
    /// The same photograph twice among the images of one person.
    pub duplicates: Vec<SamePhoto>,
    /// The same photograph twice in the evaluation, which is left as it is.
    pub evaluation_duplicates: Vec<SamePhoto>,
}

/// An image with its person, as an index.
struct Face {
    path: PathBuf,
    person: usize,
    digest: [u8; 32],
    hash: PerceptualHash,
}

/// Images by the name of their directory, in order.
type People = BTreeMap<String, Vec<PathBuf>>;

/// Makes a list of the people in `faces` (one directory each), without those of `evaluation`, and writes it to `out`:
/// directories `train`, `test` and `held-out` with hard links to the images (copies if the file system has none), and
/// `list.tsv` with the place of every image.
///
/// # Errors
/// When a folder cannot be read, an image is invalid, or `out` exists.
pub fn list(
    faces: &Path,
    evaluation: Option<&Path>,
    out: &Path,
    settings: &ListSettings,
    watch: &mut WatchImages<'_>,
) -> Result<ListReport, FacesError> {
    if out.exists() {
        return Err(FacesError::file(out, "it already exists; remove it or choose another folder"));
    }
    let people = people_in(faces)?;
    let evaluation_people = evaluation.map_or(Ok(People::new()), people_in)?;
    let excluded = excluded(&people, &evaluation_people);
    let (merged, names) = merged(&people, &excluded, settings.sources);
    let total = people.values().chain(evaluation_people.values()).map(Vec::len).sum();
    let mut done = 0;
    let mut read = |files: Vec<(PathBuf, usize)>| {
        let faces = read_faces(files, &mut |now| watch(done + now, total), total)?;
        done += faces.len();
        Ok::<_, FacesError>(faces)
    };
    let kept = people.iter().filter(|(name, _)| names.contains_key(*name));
    let training = read(
        kept.flat_map(|(name, files)| files.iter().map(|file| (file.clone(), names[name])))
            .collect(),
    )?;
    let of_evaluation = read(
        evaluation_people
            .values()
            .enumerate()
            .flat_map(|(person, files)| files.iter().map(move |file| (file.clone(), person)))
            .collect(),
    )?;

    let mut places: Vec<Place> = vec![Place::Train; training.len()];
    let same = same_photos(&training, &of_evaluation, settings.near);
    let mut report = ListReport {
        people: 0,
        held_out_people: 0,
        images: BTreeMap::new(),
        excluded,
        too_few: Vec::new(),
        merged,
        in_evaluation: Vec::new(),
        conflicts: Vec::new(),
        duplicates: Vec::new(),
        evaluation_duplicates: same_photos(&of_evaluation, &[], settings.near)
            .into_iter()
            .map(|found| found.described(&of_evaluation, &of_evaluation))
            .collect(),
    };
    for found in same {
        match found {
            Found { in_evaluation: true, one, .. } => {
                places[one] = Place::EvaluationImage;
                report.in_evaluation.push(found.described(&training, &of_evaluation));
            }
            Found { one, other, .. } if training[one].person != training[other].person => {
                for image in [one, other] {
                    places[image] = places[image].max(Place::Conflict);
                }
                report.conflicts.push(found.described(&training, &training));
            }
            Found { other, .. } => {
                if places[other] == Place::Train {
                    places[other] = Place::Duplicate;
                }
                report.duplicates.push(found.described(&training, &training));
            }
        }
    }
    divide(&training, &mut places, settings, &names, &mut report);
    write(faces, out, &people, &training, &places, &names, &mut report)?;
    Ok(report)
}

/// The images of every directory in a folder.
fn people_in(folder: &Path) -> Result<People, FacesError> {
    let mut people = People::new();
    for file in files_in(folder)?.into_iter().filter(|file| is_image_file(file)) {
        let inner = file.strip_prefix(folder).unwrap_or(&file);
        let mut parts = inner.components();
        let (Some(person), Some(_)) = (parts.next(), parts.next()) else {
            let problem = "this image is not in a directory of its person; move it into one";
            return Err(FacesError::file(&file, problem));
        };
        let person = person.as_os_str().to_string_lossy().into_owned();
        people.entry(person).or_default().push(file);
    }
    if people.is_empty() {
        return Err(FacesError::file(
            folder,
            "it has no images; give a folder with one directory per person",
        ));
    }
    Ok(people)
}

/// The people who are in the evaluation too.
fn excluded(people: &People, evaluation: &People) -> Vec<Excluded> {
    let known: Vec<(&String, NormalisedName)> =
        evaluation.keys().map(|name| (name, NormalisedName::new(name))).collect();
    let found = people.par_iter().filter_map(|(person, files)| {
        let name = NormalisedName::new(person);
        let matches =
            || known.iter().filter_map(|(other, known)| Some((other, name.matches(known)?)));
        let (evaluation, names) =
            matches().find(|(_, found)| *found == NameMatch::Same).or_else(|| matches().next())?;
        let (person, evaluation) = (person.clone(), (*evaluation).clone());
        Some(Excluded { person, evaluation, names, images: files.len() })
    });
    found.collect()
}

/// Directories merged into one person, and the number of the person of every directory that is left.
#[allow(clippy::type_complexity)]
fn merged(
    people: &People,
    excluded: &[Excluded],
    sources: bool,
) -> (Vec<(String, Vec<String>)>, HashMap<String, usize>) {
    let is_left = |name: &&String| !excluded.iter().any(|found| found.person == **name);
    let mut of_name: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for directory in people.keys().filter(is_left) {
        let name = NormalisedName::new(directory);
        // A number is not a name that two sources could share.
        let is_number = directory.chars().filter(char::is_ascii_digit).count() > 2;
        let key = if sources && !is_number {
            format!("{:?}", name.without_source())
        } else {
            directory.clone()
        };
        of_name.entry(key).or_default().push(directory.clone());
    }
    let mut groups: Vec<Vec<String>> = of_name.into_values().collect();
    groups.sort();
    let mut numbers = HashMap::new();
    for (number, group) in groups.iter().enumerate() {
        numbers.extend(group.iter().map(|directory| (directory.clone(), number)));
    }
    let several = groups.into_iter().filter(|group| group.len() > 1);
    (several.map(|group| (group[0].clone(), group)).collect(), numbers)
}

fn read_faces(
    files: Vec<(PathBuf, usize)>,
    watch: &mut dyn FnMut(usize) -> std::ops::ControlFlow<()>,
    total: usize,
) -> Result<Vec<Face>, FacesError> {
    let mut faces = Vec::with_capacity(files.len());
    for group in files.chunks(IMAGES_PER_THREAD * rayon::current_num_threads()) {
        if watch(faces.len()).is_break() {
            return Err(FacesError::Interrupted { done: faces.len(), total });
        }
        let read = |(path, person): &(PathBuf, usize)| {
            let bytes = fs::read(path).map_err(FacesError::read(path))?;
            let photo = read_photo(path)?;
            Ok(Face {
                path: path.clone(),
                person: *person,
                digest: Sha256::digest(&bytes).into(),
                hash: PerceptualHash::of(&photo),
            })
        };
        let read: Vec<Result<Face, FacesError>> = group.par_iter().map(read).collect();
        for face in read {
            faces.push(face?);
        }
    }
    Ok(faces)
}

/// Two images that are the same photograph: `one` of the first list, `other` of the first or of the evaluation.
struct Found {
    one: usize,
    other: usize,
    bits: u32,
    in_evaluation: bool,
}

impl Found {
    fn described(&self, first: &[Face], second: &[Face]) -> SamePhoto {
        let (one, other) = (&first[self.one], &second[self.other]);
        SamePhoto {
            one: one.path.clone(),
            other: other.path.clone(),
            bits: self.bits,
            exact: one.digest == other.digest,
        }
    }
}

/// All pairs of images in a list, and of an image in the list with one of the evaluation, that are the same photograph.
fn same_photos(faces: &[Face], evaluation: &[Face], near: u32) -> Vec<Found> {
    let of_face = |one: usize| {
        let face = &faces[one];
        let bits = |other: &Face| {
            if face.digest == other.digest {
                Some(0)
            } else {
                face.hash.distance_within(&other.hash, near)
            }
        };
        let later = faces[one + 1..].iter().enumerate().filter_map(move |(offset, other)| {
            Some(Found { one, other: one + 1 + offset, bits: bits(other)?, in_evaluation: false })
        });
        let evaluated = evaluation.iter().enumerate().filter_map(move |(other, face)| {
            Some(Found { one, other, bits: bits(face)?, in_evaluation: true })
        });
        later.chain(evaluated).collect::<Vec<_>>()
    };
    let found: Vec<Vec<Found>> = (0..faces.len()).into_par_iter().map(of_face).collect();
    found.into_iter().flatten().collect()
}

/// Sets aside people with too few images, holds people out, and chooses test images.
fn divide(
    faces: &[Face],
    places: &mut [Place],
    settings: &ListSettings,
    names: &HashMap<String, usize>,
    report: &mut ListReport,
) {
    let count = names.values().max().map_or(0, |most| most + 1);
    let mut images: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (index, face) in
        faces.iter().enumerate().filter(|(index, _)| places[*index] == Place::Train)
    {
        images[face.person].push(index);
    }
    let mut people = Vec::new();
    for (person, of_person) in images.iter().enumerate() {
        if of_person.len() < settings.fewest_images.max(settings.test_images + 1) {
            let mut directories: Vec<&String> = names
                .iter()
                .filter(|(_, number)| **number == person)
                .map(|(name, _)| name)
                .collect();
            directories.sort_unstable();
            report.too_few.push((directories[0].clone(), of_person.len()));
            of_person.iter().for_each(|image| places[*image] = Place::TooFew);
        } else {
            people.push(person);
        }
    }
    let order = random_order(people.len(), settings.seed);
    for (position, person) in order.iter().map(|index| people[*index]).enumerate() {
        if position < settings.held_out {
            images[person].iter().for_each(|image| places[*image] = Place::HeldOut);
            report.held_out_people += 1;
            continue;
        }
        report.people += 1;
        let chosen = random_order(images[person].len(), settings.seed ^ (person as u64 + 1));
        for index in chosen.iter().take(settings.test_images) {
            places[images[person][*index]] = Place::Test;
        }
    }
}

/// Writes the directories with links, and the table of all images.
fn write(
    folder: &Path,
    out: &Path,
    people: &People,
    faces: &[Face],
    places: &[Place],
    names: &HashMap<String, usize>,
    report: &mut ListReport,
) -> Result<(), FacesError> {
    // The first directory of a person names them.
    let mut first: BTreeMap<usize, &String> = BTreeMap::new();
    for name in people.keys() {
        if let Some(person) = names.get(name) {
            first.entry(*person).or_insert(name);
        }
    }
    let of_path: HashMap<&Path, usize> =
        faces.iter().enumerate().map(|(index, face)| (face.path.as_path(), index)).collect();
    let mut table = String::from("path\tperson\tplace\n");
    for (name, files) in people {
        for file in files {
            let inner = file.strip_prefix(folder).unwrap_or(file);
            let (person, place) = match of_path.get(file.as_path()) {
                Some(index) => (first[&faces[*index].person], places[*index]),
                None => (name, Place::EvaluationPerson),
            };
            *report.images.entry(place.name()).or_default() += 1;
            table.push_str(&format!("{}\t{person}\t{}\n", inner.display(), place.name()));
            if place <= Place::HeldOut {
                let flat: Vec<_> =
                    inner.components().map(|part| part.as_os_str().to_string_lossy()).collect();
                // Images of merged directories may have the same name.
                let file_name = if *person == *name { flat[1..].join("_") } else { flat.join("_") };
                link(file, &out.join(place.name()).join(person).join(file_name))?;
            }
        }
    }
    fs::create_dir_all(out).map_err(FacesError::write(out))?;
    let path = out.join("list.tsv");
    write_atomic(&path, &[table.as_bytes()]).map_err(FacesError::write(&path))
}

/// A hard link to a file, or a copy where there are none.
fn link(from: &Path, to: &Path) -> Result<(), FacesError> {
    let directory = to.parent().expect("it is in a directory of its person");
    fs::create_dir_all(directory).map_err(FacesError::write(directory))?;
    fs::hard_link(from, to)
        .or_else(|_| fs::copy(from, to).map(|_| ()))
        .map_err(FacesError::write(to))
}
