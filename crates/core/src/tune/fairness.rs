//! Jain's index of the fairness among sessions that share a path.

/// Returns Jain's index of fairness: 1 for equal shares, 1/n if one of n shares is everything; 1 if
/// all are zero.
///
/// Source: R. Jain, D. Chiu, W. Hawe, "A Quantitative Measure of Fairness and Discrimination for
/// Resource Allocation in Shared Computer Systems", DEC-TR-301, 1984.
pub fn jain_index(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares > 0.0 { sum * sum / (shares.len() as f64 * squares) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shares_have_index_one_and_a_single_one_has_one_nth() {
        assert_eq!(jain_index(&[5.0, 5.0, 5.0, 5.0]), 1.0);
        assert_eq!(jain_index(&[8.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!((jain_index(&[0.0, 0.0]), jain_index(&[])), (1.0, 1.0));
        assert!((jain_index(&[1.0, 3.0]) - 0.8).abs() < 1e-12);
    }
}
