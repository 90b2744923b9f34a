//! Counter-based random streams.
//!
//! A stream is identified by four words: a seed, a purpose, an epoch and a sample. Equal words give
//! equal numbers, in any order and on any thread.

/// What a stream is used for. Streams with the same seed and different purposes are independent.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    /// Choosing the samples held out of training.
    Validation = 1,
    /// Shuffling an epoch.
    Order = 2,
    /// Cropping and flipping a sample.
    Augment = 3,
    /// Choosing the part of a sample that is enlarged.
    Crop = 4,
    /// Changing the colours of a sample.
    Colour = 5,
    /// Choosing the part of a sample that is erased.
    Erase = 6,
    /// Shuffling the classes of a round of batches by class.
    Classes = 14,
    /// Shuffling the images of a class.
    ImagesOfClass = 15,
    /// Dividing a list.
    Division = 16,
}

/// SplitMix64 (Steele, Lea and Flood, 2014), seeded with a hash of the words.
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64, purpose: Purpose, epoch: u64, sample: u64) -> Self {
        let words = [seed, purpose as u64, epoch, sample];
        Self(words.iter().fold(0, |state: u64, word| mix(step(state) ^ word)))
    }

    fn next(&mut self) -> u64 {
        self.0 = step(self.0);
        mix(self.0)
    }

    /// A uniform random number below `bound` (Lemire's method); 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let rejected = if bound == 0 { 0 } else { bound.wrapping_neg() % bound };
        loop {
            let product = u128::from(self.next()) * u128::from(bound);
            if product as u64 >= rejected {
                return (product >> 64) as u64;
            }
        }
    }

    /// A uniform random number from 0 to below 1, a multiple of 2^-53.
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A uniform random number between two numbers.
    pub fn between(&mut self, [low, high]: [f64; 2]) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// A uniform random permutation of 0 to `count` − 1 (Fisher–Yates shuffle).
    pub fn permutation(&mut self, count: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, self.below(last as u64 + 1) as usize);
        }
        order
    }
}

/// A random order of 0 to `count` − 1, which depends only on the count and the seed; at most 2^32 − 1 of them.
pub fn random_order(count: usize, seed: u64) -> Vec<usize> {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let order = Random::new(seed, Purpose::Division, 0, 0).permutation(count);
    order.into_iter().map(|index| index as usize).collect()
}

fn step(state: u64) -> u64 {
    state.wrapping_add(0x9e37_79b9_7f4a_7c15)
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        // The first outputs for seed 1234567, as published with the algorithm.
        let mut random = Random(1_234_567);
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(published.map(|_| random.next()), published);
    }

    #[test]
    fn streams_of_other_words_differ() {
        let first = |seed, purpose, epoch, sample| Random::new(seed, purpose, epoch, sample).next();
        let mut seen = vec![
            first(0, Purpose::Validation, 0, 0),
            first(0, Purpose::Order, 0, 0),
            first(0, Purpose::Augment, 0, 0),
            first(1, Purpose::Augment, 0, 0),
            first(0, Purpose::Augment, 1, 0),
            first(0, Purpose::Augment, 0, 1),
            first(3, Purpose::Augment, 0, 0),
            first(0, Purpose::Augment, 3, 0),
        ];
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 8);
    }

    #[test]
    fn numbers_below_a_bound_are_equally_likely() {
        let mut random = Random::new(7, Purpose::Augment, 0, 0);
        let mut counts = [0u32; 9];
        for _ in 0..90_000 {
            counts[random.below(9) as usize] += 1;
        }
        // Chi-squared with 8 degrees of freedom exceeds 26 in one of a thousand seeds.
        let chi: f64 = counts.iter().map(|n| (f64::from(*n) - 1e4).powi(2) / 1e4).sum();
        assert!(chi < 26.0, "{counts:?}");
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn permutations_of_three_are_equally_likely() {
        let mut counts = std::collections::BTreeMap::new();
        for epoch in 0..6_000 {
            let order = Random::new(7, Purpose::Order, epoch, 0).permutation(3);
            *counts.entry(order).or_insert(0u32) += 1;
        }
        assert_eq!(counts.len(), 6);
        let chi: f64 = counts.values().map(|n| (f64::from(*n) - 1e3).powi(2) / 1e3).sum();
        assert!(chi < 20.5, "{counts:?}");
        assert_eq!(Random::new(7, Purpose::Order, 0, 0).permutation(0), [0u32; 0]);
    }
}
