//! Releases of kernels: what events mean, and what a recorder can set up, depends on them.

/// Release of a kernel: the numbers that its text begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(pub u32, pub u32, pub u32);

impl Release {
    /// Parses `6.18.1-amd64`; a missing number is 0. `None` where the text does not begin with a number above 0.
    pub fn parse(text: &str) -> Option<Release> {
        let numbers = text.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
        let mut numbers = numbers.split('.').map(|number| number.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Release(next().filter(|&major| major > 0)?, next().unwrap_or(0), next().unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_ordered_by_their_numbers() {
        for (text, release) in [
            ("2.6.34-rc1", Some(Release(2, 6, 34))),
            ("2.6.33.20", Some(Release(2, 6, 33))),
            ("6.18.1-amd64", Some(Release(6, 18, 1))),
            ("6.1", Some(Release(6, 1, 0))),
            ("7", Some(Release(7, 0, 0))),
            ("6-7.8", Some(Release(6, 0, 0))),
            ("99999999999.1", None),
            ("x6.1", None),
            ("0", None),
            ("", None),
        ] {
            assert_eq!(Release::parse(text), release, "{text}");
        }
        assert!(Release(2, 6, 33) < Release(2, 6, 34) && Release(2, 6, 34) < Release(3, 0, 0));
    }
}
