//! Batches of several images of each of a few classes: P people x K images.
//!
//! A batch is a pure function of its number and the seed. The classes are shuffled in every round, and every batch takes
//! the next of them, so that no class is in a batch twice; those that do not fill a last batch are left out of the round.
//! The images of a class are taken in random order, all of them before any comes again.

use crate::random::{Purpose, Random};

/// The images of every class that has any.
#[derive(Debug)]
pub(crate) struct ClassBatches {
    classes: Vec<Vec<u32>>,
    seed: u64,
    /// P.
    per_batch: usize,
    /// K.
    per_class: usize,
}

impl ClassBatches {
    /// Batches of `per_batch` classes with `per_class` images each; `None` if there are too few classes.
    pub fn new(labels: &[u32], seed: u64, per_batch: usize, per_class: usize) -> Option<Self> {
        let mut classes: Vec<Vec<u32>> = Vec::new();
        for (index, label) in labels.iter().enumerate() {
            let label = *label as usize;
            if label >= classes.len() {
                classes.resize(label + 1, Vec::new());
            }
            classes[label].push(index as u32);
        }
        classes.retain(|images| !images.is_empty());
        let fits = per_class > 0 && (1..=classes.len()).contains(&per_batch);
        fits.then_some(Self { classes, seed, per_batch, per_class })
    }

    /// The epoch of its class and the image of each sample of a batch.
    pub fn samples(&self, number: u64) -> Vec<(u64, u32)> {
        let batches = (self.classes.len() / self.per_batch) as u64;
        let (round, start) = (number / batches, (number % batches) as usize * self.per_batch);
        let order = Random::new(self.seed, Purpose::Classes, round, 0)
            .permutation(self.classes.len() as u32);
        let chosen = &order[start..start + self.per_batch];
        chosen.iter().flat_map(|class| self.of_class(*class, round)).collect()
    }

    /// The images of a class in a round.
    fn of_class(&self, class: u32, round: u64) -> Vec<(u64, u32)> {
        let images = &self.classes[class as usize];
        let count = images.len() as u64;
        let first = round.wrapping_mul(self.per_class as u64);
        let mut order: Option<(u64, Vec<u32>)> = None;
        let sample = |position: u64| {
            let epoch = position / count;
            if order.as_ref().is_none_or(|(of, _)| *of != epoch) {
                let mut random =
                    Random::new(self.seed, Purpose::ImagesOfClass, epoch, class.into());
                order = Some((epoch, random.permutation(count as u32)));
            }
            let (_, order) = order.as_ref().expect("it was just made");
            (epoch, images[order[(position % count) as usize] as usize])
        };
        (0..self.per_class as u64).map(|offset| first.wrapping_add(offset)).map(sample).collect()
    }
}
