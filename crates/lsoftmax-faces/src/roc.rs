//! How true accepts trade against false accepts.

use serde::{Deserialize, Serialize};

/// The receiver operating characteristic of scores, of which larger ones mean the same person.
///
/// ```
/// use lsoftmax_faces::Roc;
/// let roc = Roc::of(&[0.9, 0.6, 0.4, 0.1], &[true, false, true, false]).expect("both kinds of pairs");
/// assert_eq!(roc.area(), 0.75);
/// assert_eq!(roc.true_accepts_at(0.1), 0.5);
/// assert_eq!(roc.equal_error_rate(), 0.5);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Roc {
    /// False and true accept rates, one point per distinct score and (0, 0); ascending.
    pub points: Vec<(f64, f64)>,
}

/// True accept rates at three false accept rates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TarAtFar {
    /// At a false accept rate of 0.1.
    #[serde(rename = "1e-1")]
    pub one_in_10: f64,
    /// At a false accept rate of 0.01.
    #[serde(rename = "1e-2")]
    pub one_in_100: f64,
    /// At a false accept rate of 0.001.
    #[serde(rename = "1e-3")]
    pub one_in_1000: f64,
}

impl Roc {
    /// The curve of scores; `None` if all pairs are of one kind.
    pub fn of(scores: &[f64], same: &[bool]) -> Option<Self> {
        let all_same = same.iter().filter(|same| **same).count();
        let all_different = same.len() - all_same;
        if all_same == 0 || all_different == 0 {
            return None;
        }
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let mut points = vec![(0.0, 0.0)];
        let (mut false_accepts, mut true_accepts) = (0usize, 0usize);
        for tied in order.chunk_by(|a, b| scores[*a] == scores[*b]) {
            let matches = tied.iter().filter(|pair| same[**pair]).count();
            true_accepts += matches;
            false_accepts += tied.len() - matches;
            points.push((
                false_accepts as f64 / all_different as f64,
                true_accepts as f64 / all_same as f64,
            ));
        }
        Some(Self { points })
    }

    /// The area under the curve: the probability that a pair of the same person has the larger score; ties count half.
    pub fn area(&self) -> f64 {
        let trapezoid = |two: &[(f64, f64)]| (two[1].0 - two[0].0) * (two[1].1 + two[0].1) / 2.0;
        self.points.windows(2).map(trapezoid).sum()
    }

    /// Where false accepts are as frequent as false rejects, linearly between the points of the curve.
    pub fn equal_error_rate(&self) -> f64 {
        // False accepts minus false rejects, from −1 to 1 and never decreasing.
        let excess = |(far, tar): (f64, f64)| far + tar - 1.0;
        let after = self.points.partition_point(|point| excess(*point) < 0.0).max(1);
        let (before, after) = (self.points[after - 1], self.points[after]);
        let share = -excess(before) / (excess(after) - excess(before));
        before.0 + share * (after.0 - before.0)
    }

    /// The largest rate of true accepts whose rate of false accepts is at most `rate`: a point of the curve, not
    /// interpolated.
    pub fn true_accepts_at(&self, rate: f64) -> f64 {
        let within = self.points.partition_point(|(far, _)| *far <= rate);
        self.points[within - 1].1
    }

    /// The true accept rates at the usual false accept rates.
    pub fn tar_at_far(&self) -> TarAtFar {
        let [one_in_10, one_in_100, one_in_1000] =
            [1e-1, 1e-2, 1e-3].map(|rate| self.true_accepts_at(rate));
        TarAtFar { one_in_10, one_in_100, one_in_1000 }
    }

    /// The best accuracy of any threshold, and that threshold: a score of at least it is accepted. The highest of
    /// several, as scikit-learn orders them.
    pub(crate) fn best_threshold(scores: &[f64], same: &[bool]) -> f64 {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let mut correct = same.iter().filter(|same| !**same).count() as i64;
        // Nothing is accepted.
        let mut best = (correct, scores[order[0]].next_up());
        for tied in order.chunk_by(|a, b| scores[*a] == scores[*b]) {
            correct += tied.iter().map(|pair| if same[*pair] { 1 } else { -1 }).sum::<i64>();
            if correct > best.0 {
                best = (correct, scores[tied[0]]);
            }
        }
        best.1
    }
}
