//! Verification: are two faces of the same person? By the conventions that are in use, whose numbers differ.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::embeddings::Embeddings;
use crate::pairs::Pair;
use crate::pca::{Moments, Pca};
use crate::roc::{Roc, TarAtFar};
use crate::thresholds::SortedScores;

/// The length of a row minus the mean, relative to the row's, that is no more than rounding.
const NOTHING: f64 = 1e-12;

/// How pairs are scored and how the threshold is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// The mean of the training folds is subtracted; cosine; of 20,001 thresholds from −1 to 1 the mean of the best
    /// on the training folds. A pair is accepted above the threshold.
    #[serde(rename = "sphereface")]
    SphereFace,
    /// Rows of length 1; squared distance; of the thresholds 0, 0.01 … 3.99 the first of the best on the training
    /// folds. A pair is accepted below the threshold.
    #[serde(rename = "insightface")]
    InsightFace,
    /// Cosine, and the threshold that is best on all pairs, without folds: it has seen the answers.
    BestThreshold,
    /// Principal components of the training folds; cosine; the threshold as in SphereFace, by the same authors.
    Paper,
}

impl Protocol {
    /// All protocols by their names.
    pub const ALL: [(&'static str, Self); 4] = [
        ("sphereface", Self::SphereFace),
        ("insightface", Self::InsightFace),
        ("best-threshold", Self::BestThreshold),
        ("paper", Self::Paper),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, protocol)| *protocol == self).expect("all are listed").0
    }

    /// Whether a threshold is a squared distance, rather than a cosine.
    pub fn is_distance(self) -> bool {
        self == Self::InsightFace
    }
}

/// Why pairs could not be verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// No pairs.
    #[error("there are no pairs to verify")]
    NoPairs,
    /// A pair of a row that does not exist.
    #[error("pair {pair} is of row {row}, but the embeddings have {rows} rows")]
    Row {
        /// The pair, from 0.
        pair: usize,
        /// The row.
        row: usize,
        /// The number of rows.
        rows: usize,
    },
    /// One fold, which leaves none to choose the threshold on.
    #[error(
        "the pairs are in one fold, but {0} chooses the threshold on the other folds; use at least two, or the protocol best-threshold, which needs none"
    )]
    OneFold(&'static str),
    /// More principal components than features.
    #[error(
        "{dimension} principal components need as many features, but the embeddings have {columns}; use at most that many, and at least 1"
    )]
    Dimension {
        /// The number of components.
        dimension: usize,
        /// The number of features.
        columns: usize,
    },
    /// Numbers that are too large or too different in size.
    #[error(
        "the principal components of the embeddings could not be computed; scale them to a length of about 1"
    )]
    NoComponents,
}

/// The number of principal components of the paper's protocol, unless there are fewer features. The paper does not say it.
const DIMENSION: usize = 128;

/// The principal components of [`Protocol::Paper`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PcaReport {
    /// Their number.
    pub dimension: usize,
    /// The fraction of the training folds' variance that they have, for every fold.
    pub explained_variance: Vec<f64>,
}

/// The result of a fold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoldResult {
    /// The fold.
    pub fold: usize,
    /// The number of its pairs.
    pub pairs: usize,
    /// The threshold that was chosen without it.
    pub threshold: f64,
    /// The fraction of its pairs that the threshold classifies correctly.
    pub accuracy: f64,
}

/// The result of a verification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    /// The protocol.
    pub protocol: Protocol,
    /// The number of pairs.
    pub pairs: usize,
    /// The mean accuracy of the folds, from 0 to 1; with [`Protocol::BestThreshold`] that of all pairs.
    pub accuracy: f64,
    /// The standard error of that mean, from the deviation between folds; `None` with one fold.
    pub standard_error: Option<f64>,
    /// The folds.
    pub folds: Vec<FoldResult>,
    /// The area under the curve of all pairs; `None` if all are of one kind, as for the next two.
    pub auc: Option<f64>,
    /// The equal error rate.
    pub eer: Option<f64>,
    /// True accept rates at false accept rates.
    pub tar_at_far: Option<TarAtFar>,
    /// The principal components, if the protocol has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pca: Option<PcaReport>,
    /// The score of every pair, of which larger ones mean the same person: a cosine, or a squared distance negated.
    /// A pair's score is that of the fold that it is tested in.
    #[serde(skip)]
    pub scores: Vec<f64>,
}

impl Verification {
    /// Whether the threshold of its fold accepts a pair.
    pub fn accepts(&self, pair: usize, fold: usize) -> bool {
        let threshold = self
            .folds
            .iter()
            .find(|result| result.fold == fold)
            .map_or(0.0, |result| result.threshold);
        accepts(self.protocol, self.scores[pair], threshold)
    }
}

/// Whether a score (a distance is negated) is accepted.
fn accepts(protocol: Protocol, score: f64, threshold: f64) -> bool {
    match protocol {
        Protocol::InsightFace => -score < threshold,
        Protocol::BestThreshold => score >= threshold,
        Protocol::SphereFace | Protocol::Paper => score > threshold,
    }
}

/// Verifies pairs by a protocol.
///
/// All arithmetic is in f64, and scores are rounded to 12 decimals. The cosine of a row of zeros is 0. The mean of the training folds counts a row as often
/// as it is in a pair.
///
/// ```
/// use lsoftmax_faces::{Embeddings, Pair, Protocol, verify};
/// let embeddings = Embeddings::new(2, vec![1.0, 0.0, 0.9, 0.1, 0.0, 1.0, 0.1, 0.9])?;
/// let pair = |left, right, same, fold| Pair { left, right, same, fold };
/// let pairs = [pair(0, 1, true, 0), pair(0, 2, false, 0), pair(2, 3, true, 1), pair(1, 3, false, 1)];
/// let result = verify(&embeddings, &pairs, Protocol::InsightFace)?;
/// assert_eq!(result.accuracy, 1.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When there are no pairs, a row does not exist, or the protocol needs more folds.
pub fn verify(
    embeddings: &Embeddings,
    pairs: &[Pair],
    protocol: Protocol,
) -> Result<Verification, VerifyError> {
    let folds = checked_folds(embeddings, pairs, protocol)?;
    if protocol == Protocol::Paper {
        return verify_with_pca(embeddings, pairs, DIMENSION.min(embeddings.columns()));
    }
    let rows = embeddings.to_f64();
    let (thresholds, scores) = match protocol {
        Protocol::SphereFace | Protocol::Paper => {
            let means = folds.training_means(&rows, pairs);
            of_each_fold(&folds, pairs, |fold| {
                let centred: Vec<Vec<f64>> =
                    rows.iter().map(|row| minus(row, &means[fold])).collect();
                cosines(&centred, pairs)
            })
        }
        Protocol::InsightFace => {
            let distances = squared_distances(&rows, pairs);
            let thresholds = folds.thresholds(pairs, &distances, SortedScores::insightface);
            (thresholds, distances.iter().map(|distance| -distance).collect())
        }
        Protocol::BestThreshold => {
            let scores = cosines(&rows, pairs);
            let same: Vec<bool> = pairs.iter().map(|pair| pair.same).collect();
            let threshold = Roc::best_threshold(&scores, &same);
            (vec![threshold; folds.numbers.len()], scores)
        }
    };
    Ok(summarise(protocol, pairs, &folds, &thresholds, scores))
}

/// Verifies pairs by [`Protocol::Paper`] with a number of principal components. With all of them it is the protocol of
/// SphereFace: a rotation changes no cosine.
///
/// # Errors
/// As [`verify`], and when there are more components than features.
pub fn verify_with_pca(
    embeddings: &Embeddings,
    pairs: &[Pair],
    dimension: usize,
) -> Result<Verification, VerifyError> {
    let folds = checked_folds(embeddings, pairs, Protocol::Paper)?;
    let columns = embeddings.columns();
    if !(1..=columns).contains(&dimension) {
        return Err(VerifyError::Dimension { dimension, columns });
    }
    let rows = embeddings.to_f64();
    let shift = folds.training_means(&rows, pairs).swap_remove(0);
    let moments: Vec<Moments> = (0..folds.numbers.len())
        .into_par_iter()
        .map(|fold| {
            let indices: Vec<usize> = folds
                .members(fold)
                .flat_map(|pair| [pairs[pair].left, pairs[pair].right])
                .collect();
            Moments::of(&rows, &indices, &shift)
        })
        .collect();
    let components: Option<Vec<Pca>> = (0..moments.len())
        .into_par_iter()
        .map(|fold| {
            let others: Vec<&Moments> = moments
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != fold)
                .map(|(_, moments)| moments)
                .collect();
            Moments::components(&others, &shift, dimension)
        })
        .collect();
    let components = components.ok_or(VerifyError::NoComponents)?;
    let (thresholds, scores) =
        of_each_fold(&folds, pairs, |fold| cosines(&components[fold].project(&rows), pairs));
    let explained_variance = components.iter().map(|pca| pca.explained).collect();
    let pca = Some(PcaReport { dimension, explained_variance });
    let result = summarise(Protocol::Paper, pairs, &folds, &thresholds, scores);
    Ok(Verification { pca, ..result })
}

/// The folds of pairs that fit the embeddings and the protocol.
fn checked_folds(
    embeddings: &Embeddings,
    pairs: &[Pair],
    protocol: Protocol,
) -> Result<Folds, VerifyError> {
    if pairs.is_empty() {
        return Err(VerifyError::NoPairs);
    }
    for (number, pair) in pairs.iter().enumerate() {
        let row = pair.left.max(pair.right);
        if row >= embeddings.rows() {
            return Err(VerifyError::Row { pair: number, row, rows: embeddings.rows() });
        }
    }
    let folds = Folds::of(pairs);
    if folds.numbers.len() < 2 && protocol != Protocol::BestThreshold {
        return Err(VerifyError::OneFold(protocol.name()));
    }
    Ok(folds)
}

/// For every fold a threshold of the scores of its training pairs, and for every pair the score in its own fold.
fn of_each_fold(
    folds: &Folds,
    pairs: &[Pair],
    scores_of: impl Fn(usize) -> Vec<f64> + Sync + Send,
) -> (Vec<f64>, Vec<f64>) {
    let mut scores = vec![0.0; pairs.len()];
    let mut thresholds = Vec::new();
    let of_folds: Vec<Vec<f64>> = (0..folds.numbers.len()).into_par_iter().map(scores_of).collect();
    for (fold, of_fold) in of_folds.into_iter().enumerate() {
        thresholds.push(folds.training_scores(fold, pairs, &of_fold).sphereface());
        for pair in folds.members(fold) {
            scores[pair] = of_fold[pair];
        }
    }
    (thresholds, scores)
}

fn summarise(
    protocol: Protocol,
    pairs: &[Pair],
    folds: &Folds,
    thresholds: &[f64],
    scores: Vec<f64>,
) -> Verification {
    let is_right = |pair: usize, threshold: f64| {
        accepts(protocol, scores[pair], threshold) == pairs[pair].same
    };
    let results: Vec<FoldResult> = thresholds
        .iter()
        .enumerate()
        .map(|(fold, &threshold)| {
            let members: Vec<usize> = folds.members(fold).collect();
            let right = members.iter().filter(|pair| is_right(**pair, threshold)).count();
            FoldResult {
                fold: folds.numbers[fold],
                pairs: members.len(),
                threshold,
                accuracy: right as f64 / members.len() as f64,
            }
        })
        .collect();
    let count = results.len() as f64;
    let mean = results.iter().map(|fold| fold.accuracy).sum::<f64>() / count;
    let squares = results.iter().map(|fold| (fold.accuracy - mean).powi(2)).sum::<f64>();
    let standard_error =
        (results.len() > 1).then(|| (squares / (count - 1.0)).sqrt() / count.sqrt());
    let accuracy = match protocol {
        Protocol::BestThreshold => {
            let right = (0..pairs.len()).filter(|pair| is_right(*pair, thresholds[0])).count();
            right as f64 / pairs.len() as f64
        }
        _ => mean,
    };
    let same: Vec<bool> = pairs.iter().map(|pair| pair.same).collect();
    let roc = Roc::of(&scores, &same);
    Verification {
        protocol,
        pairs: pairs.len(),
        accuracy,
        standard_error,
        folds: results,
        auc: roc.as_ref().map(Roc::area),
        eer: roc.as_ref().map(Roc::equal_error_rate),
        tar_at_far: roc.as_ref().map(Roc::tar_at_far),
        pca: None,
        scores,
    }
}

/// The folds of pairs, by their order rather than their numbers.
struct Folds {
    /// The number of each fold, ascending.
    numbers: Vec<usize>,
    /// The fold of each pair, an index into `numbers`.
    of_pair: Vec<usize>,
}

impl Folds {
    fn of(pairs: &[Pair]) -> Self {
        let mut numbers: Vec<usize> = pairs.iter().map(|pair| pair.fold).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let place = |pair: &Pair| numbers.binary_search(&pair.fold).expect("every fold is listed");
        Self { of_pair: pairs.iter().map(place).collect(), numbers }
    }

    /// The pairs of a fold.
    fn members(&self, fold: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.of_pair.len()).filter(move |pair| self.of_pair[*pair] == fold)
    }

    /// The scores of all pairs but a fold's.
    fn training_scores(&self, fold: usize, pairs: &[Pair], scores: &[f64]) -> SortedScores {
        let others = (0..pairs.len()).filter(|pair| self.of_pair[*pair] != fold);
        SortedScores::new(others.map(|pair| (scores[pair], pairs[pair].same)))
    }

    fn thresholds(
        &self,
        pairs: &[Pair],
        scores: &[f64],
        choose: fn(&SortedScores) -> f64,
    ) -> Vec<f64> {
        let folds = 0..self.numbers.len();
        folds.map(|fold| choose(&self.training_scores(fold, pairs, scores))).collect()
    }

    /// For every fold the mean row of all other pairs, both sides.
    fn training_means(&self, rows: &[Vec<f64>], pairs: &[Pair]) -> Vec<Vec<f64>> {
        let width = rows[0].len();
        let mut sums = vec![vec![0.0; width]; self.numbers.len()];
        let mut counts = vec![0usize; self.numbers.len()];
        for (pair, fold) in pairs.iter().zip(&self.of_pair) {
            for row in [pair.left, pair.right] {
                sums[*fold].iter_mut().zip(&rows[row]).for_each(|(sum, value)| *sum += value);
                counts[*fold] += 1;
            }
        }
        let mean = |fold: usize| {
            let others = || (0..sums.len()).filter(|other| *other != fold);
            let count = others().map(|other| counts[other]).sum::<usize>() as f64;
            let column =
                |column: usize| others().map(|other| sums[other][column]).sum::<f64>() / count;
            (0..width).map(column).collect()
        };
        (0..sums.len()).map(mean).collect()
    }
}

/// A row minus the mean; zeros if nothing but rounding remains, whose direction would be arbitrary.
fn minus(row: &[f64], mean: &[f64]) -> Vec<f64> {
    let difference: Vec<f64> = row.iter().zip(mean).map(|(value, mean)| value - mean).collect();
    let nothing = dot(&difference, &difference) <= NOTHING * NOTHING * dot(row, row);
    if nothing { vec![0.0; row.len()] } else { difference }
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(a, b)| a * b).sum()
}

/// Rows of length 1; a row of zeros stays.
fn normalised(rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let scaled = |row: &Vec<f64>| {
        let length = dot(row, row).sqrt();
        let scale = if length > 0.0 { 1.0 / length } else { 0.0 };
        row.iter().map(|value| value * scale).collect()
    };
    rows.iter().map(scaled).collect()
}

/// A score to 12 decimals: what should be a tie is one, whatever the order of a sum.
fn without_noise(score: f64) -> f64 {
    (score * 1e12).round() / 1e12
}

fn cosines(rows: &[Vec<f64>], pairs: &[Pair]) -> Vec<f64> {
    let rows = normalised(rows);
    pairs.iter().map(|pair| without_noise(dot(&rows[pair.left], &rows[pair.right]))).collect()
}

fn squared_distances(rows: &[Vec<f64>], pairs: &[Pair]) -> Vec<f64> {
    let rows = normalised(rows);
    let distance = |pair: &Pair| {
        let both = rows[pair.left].iter().zip(&rows[pair.right]);
        without_noise(both.map(|(left, right)| (left - right).powi(2)).sum())
    };
    pairs.iter().map(distance).collect()
}
