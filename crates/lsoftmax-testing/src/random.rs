//! Reproducible sequences of random numbers.

use std::f64::consts::TAU;

/// Random numbers of several distributions (SplitMix64). The field is the seed.
#[derive(Clone, Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A uniform random number from [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// One of 0 … n − 1.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// A number from the standard normal distribution.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (TAU * self.uniform()).cos()
    }

    /// Numbers from the standard normal distribution.
    pub fn normals(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| self.normal()).collect()
    }

    /// A random order of 0 … n − 1.
    pub fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        (1..n).rev().for_each(|i| order.swap(i, self.below(i + 1)));
        order
    }
}

/// Uniform numbers from −1 to 1 (a linear congruential generator). The field is the state.
#[derive(Clone, Debug)]
pub struct Congruential(pub u64);

impl Congruential {
    /// A sequence for a seed; adjacent seeds give unrelated sequences.
    pub fn seeded(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0
    }

    /// A number with 24 random bits, exact in f32.
    pub fn single(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// Numbers from `centre` − `spread` to `centre` + `spread`.
    pub fn singles(&mut self, count: usize, centre: f32, spread: f32) -> Vec<f32> {
        (0..count).map(|_| centre + spread * self.single()).collect()
    }

    /// A number with 53 random bits, exact in f64.
    pub fn double(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// Numbers from −1 to 1.
    pub fn doubles(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| self.double()).collect()
    }

    /// Numbers from `low` to `high`.
    pub fn doubles_within(&mut self, count: usize, low: f64, high: f64) -> Vec<f64> {
        let (middle, half) = ((low + high) / 2.0, (high - low) / 2.0);
        self.doubles(count).into_iter().map(|x| middle + half * x).collect()
    }
}
