//! Of which answers the time is taken: of one in so many, as a look at the clock costs more than an answer may.

/// Counts answers until it is the turn of one.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    every: u32,
    left: u32,
}

impl Sampling {
    /// The first one, then one in `every`.
    pub const fn one_in(every: u32) -> Sampling {
        Sampling { every, left: 0 }
    }

    /// Whether one of `count` more answers is one whose time is taken. If it is one of them, they are all fewer than `every`.
    #[inline(always)]
    pub fn is_due(&mut self, count: u32) -> bool {
        let is_due = self.left < count;
        self.left = if is_due { self.left + self.every } else { self.left } - count;
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_taken_of_the_first_answer_and_of_one_in_so_many_whatever_batches_they_leave_in() {
        for batch in [1, 7, 64] {
            let mut sampling = Sampling::one_in(1024);
            assert!(!sampling.is_due(0), "no answer left");
            let due: Vec<u32> = (0..102_400 / batch).filter(|_| sampling.is_due(batch)).collect();
            assert_eq!(due.len(), 100, "{batch}");
            let expected = |number: usize| number as u32 * 1024 / batch;
            assert!(due.iter().enumerate().all(|(number, at)| *at == expected(number)), "{batch}: {due:?}");
        }
    }
}
