//! The threshold that classifies pairs best.

/// Scores of pairs of the same person and of different people, each in ascending order.
pub(crate) struct SortedScores {
    same: Vec<f64>,
    different: Vec<f64>,
}

impl SortedScores {
    /// Of all scores with their truth.
    pub fn new(scores: impl Iterator<Item = (f64, bool)>) -> Self {
        let (mut same, mut different) = (Vec::new(), Vec::new());
        scores.for_each(
            |(score, is_same)| if is_same { same.push(score) } else { different.push(score) },
        );
        same.sort_by(f64::total_cmp);
        different.sort_by(f64::total_cmp);
        Self { same, different }
    }

    /// The number of correct decisions if scores above the threshold are of the same person.
    fn correct_above(&self, threshold: f64) -> usize {
        let above = self.same.len() - self.same.partition_point(|score| *score <= threshold);
        above + self.different.partition_point(|score| *score <= threshold)
    }

    /// The number of correct decisions if scores below the threshold are of the same person, as for distances.
    fn correct_below(&self, threshold: f64) -> usize {
        let below = self.same.partition_point(|score| *score < threshold);
        below + self.different.len() - self.different.partition_point(|score| *score < threshold)
    }

    /// SphereFace's threshold for similarities: the mean of the best of −1 to 1 in 20,001 steps. A score is of the
    /// same person if it is above the threshold.
    pub fn sphereface(&self) -> f64 {
        const STEPS: i32 = 10_000;
        let thresholds = (-STEPS..=STEPS).map(|step| f64::from(step) / f64::from(STEPS));
        let (mut best, mut sum, mut count) = (0, 0.0, 0u32);
        for threshold in thresholds {
            let correct = self.correct_above(threshold);
            if correct > best || count == 0 {
                (best, sum, count) = (correct, 0.0, 0);
            }
            if correct == best {
                sum += threshold;
                count += 1;
            }
        }
        sum / f64::from(count)
    }

    /// InsightFace's threshold for squared distances: the first of the best of 0 to 3.99 in steps of 0.01. A
    /// distance is of the same person if it is below the threshold.
    pub fn insightface(&self) -> f64 {
        let thresholds = (0..400).map(|step| f64::from(step) * 0.01);
        let mut best: Option<(usize, f64)> = None;
        for threshold in thresholds {
            let correct = self.correct_below(threshold);
            if best.is_none_or(|(most, _)| correct > most) {
                best = Some((correct, threshold));
            }
        }
        best.map_or(0.0, |(_, threshold)| threshold)
    }
}
