//! Births of live objects: how many were allocated in each tenth of the window.

/// Numbers of live objects by the tenth of the window in which they were allocated.
pub(crate) type Births = [u64; TENTHS];

/// Parts of a window.
pub(crate) const TENTHS: usize = 10;

/// Tenth of the window from `first` to `last`, both included, that holds `at`; the last one for a key behind the window.
pub(crate) fn tenth((first, last): (u64, u64), at: u64) -> usize {
    let (since, all) = (u128::from(at.saturating_sub(first)), u128::from(last.saturating_sub(first)));
    let tenth = (since * TENTHS as u128).checked_div(all).unwrap_or(0);
    usize::try_from(tenth).unwrap_or(usize::MAX).min(TENTHS - 1)
}

/// Intervals put together where they overlap.
pub(crate) fn joined(mut intervals: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    intervals.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (from, to) in intervals {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}

/// Number of tenths of the window that any of these intervals touches.
pub(crate) fn tenths_touched(window: (u64, u64), intervals: &[(u64, u64)]) -> usize {
    let mut touched = [false; TENTHS];
    for &(from, to) in intervals.iter().filter(|(from, to)| *from <= window.1 && *to >= window.0) {
        touched[tenth(window, from.max(window.0))..=tenth(window, to.min(window.1))].fill(true);
    }
    touched.into_iter().filter(|touched| *touched).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_ten_parts() {
        let window = (1000, 2000);
        let tenths = [999, 1000, 1099, 1100, 1899, 1900, 2000, 2001].map(|at| tenth(window, at));
        assert_eq!(tenths, [0, 0, 0, 1, 8, 9, 9, 9]);
        assert_eq!((tenth((5, 5), 5), tenth((0, u64::MAX), u64::MAX), tenth((0, u64::MAX), u64::MAX / 2)), (0, 9, 4));
    }

    #[test]
    fn intervals_touch_tenths() {
        let window = (1000, 2000);
        for (intervals, want) in [
            (&[][..], 0),
            (&[(0, 999), (2001, u64::MAX)], 0),
            (&[(0, 1000)], 1),
            (&[(1010, 1020), (1030, 1099)], 1),
            (&[(1010, 1020), (1900, 1950)], 2),
            (&[(1099, 1200)], 3),
            (&[(0, u64::MAX)], 10),
        ] {
            assert_eq!(tenths_touched(window, intervals), want, "{intervals:?}");
        }
        assert_eq!(joined(vec![(5, 9), (0, 2), (2, 3), (6, 7), (9, 12)]), [(0, 3), (5, 12)]);
    }
}
