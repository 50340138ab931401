//! A small generator of random numbers, the same on every machine: a seed is a
//! world, so that figures can be checked by others.

/// `xoshiro256++` by Blackman and Vigna, seeded by splitmix64.
#[derive(Debug, Clone)]
pub(crate) struct Random([u64; 4]);

impl Random {
    /// The generator of a seed, for one purpose of several.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ purpose.rotate_left(32);
        Self([(); 4].map(|()| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = state;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ (word >> 31)
        }))
    }

    fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let word = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        word
    }

    /// Evenly within 0 and 1, without 1.
    pub(crate) fn unit(&mut self) -> f64 {
        // 53 bits are what an f64 holds.
        #[allow(clippy::cast_precision_loss)]
        let bits = (self.next() >> 11) as f64;
        bits / 9_007_199_254_740_992.0
    }

    /// True with a probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// The time to the next event of a Poisson process.
    pub(crate) fn wait(&mut self, rate: f64) -> f64 {
        -(1.0 - self.unit()).ln() / rate
    }

    /// Normally distributed, mean 0 and deviation 1.
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}
