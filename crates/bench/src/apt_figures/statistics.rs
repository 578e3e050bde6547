//! Statistics over several runs.

use std::fmt;

use statrs::distribution::{ContinuousCDF, StudentsT};

/// A mean and its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mean {
    pub(crate) mean: f64,
    /// Half width of the 95 % confidence interval; `None` for a single value.
    pub(crate) half_width: Option<f64>,
}

impl Mean {
    /// Returns the mean of `values`; `None` if there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().collect();
        let count = values.len() as f64;
        if values.is_empty() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count;
        let half_width = (values.len() > 1).then(|| {
            let variance =
                values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / (count - 1.0);
            students_t(count - 1.0) * (variance / count).sqrt()
        });
        Some(Self { mean, half_width })
    }

    /// Returns the limits of the interval.
    pub(crate) fn interval(self) -> Option<(f64, f64)> {
        self.half_width.map(|half| (self.mean - half, self.mean + half))
    }

    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self { mean: self.mean * factor, half_width: self.half_width.map(|half| half * factor) }
    }
}

/// The precision applies to the mean and to the half width.
impl fmt::Display for Mean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(1);
        write!(f, "{:.digits$}", self.mean)?;
        self.half_width.map_or(Ok(()), |half| write!(f, " ± {half:.digits$}"))
    }
}

/// Returns the 0.975 quantile of Student's t with `freedom` degrees of freedom (at least 1).
fn students_t(freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn students_t_is_that_of_the_tables() {
        let table = [
            (1.0, 12.706),
            (2.0, 4.303),
            (3.0, 3.182),
            (4.0, 2.776),
            (9.0, 2.262),
            (19.0, 2.093),
            (1e6, 1.960),
        ];
        for (freedom, expected) in table {
            let t = students_t(freedom);
            assert!((t / expected - 1.0).abs() < 0.001, "{freedom}: {t}, not {expected}");
        }
    }

    #[test]
    fn a_mean_has_its_interval() {
        let of = Mean::of([10.0, 12.0, 14.0, 16.0]).unwrap();
        // s = 2.582, t = 3.182.
        let half = of.half_width.unwrap();
        assert!((of.mean - 13.0).abs() < 1e-12 && (half - 4.108).abs() < 0.04, "{of:?}");
        assert_eq!([of.to_string(), format!("{:.0}", of.scaled(2.0))], ["13.0 ± 4.1", "26 ± 8"]);
        let single = Mean::of([5.0]).unwrap();
        assert_eq!((single.to_string().as_str(), single.interval()), ("5.0", None));
        assert_eq!(Mean::of([]), None);
    }
}
