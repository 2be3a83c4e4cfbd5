//! Medians.

/// The median; of an even number of figures the higher of the two in the middle.
///
/// # Panics
///
/// If there is none.
pub fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
