//! Names like a mistyped one.

/// Least likeness of two names, from 0 to 1.
const LIKE: f64 = 0.8;
/// Limit of names to suggest.
const MAX_NAMES: usize = 3;

/// Names that are like `word`, the nearest first, at most three; each once.
pub(crate) fn nearest<T: AsRef<str> + Ord>(word: &str, names: impl Iterator<Item = T>) -> Vec<T> {
    let word = word.to_lowercase();
    let likeness = |name: &T| strsim::jaro_winkler(&word, &name.as_ref().to_lowercase());
    let mut like: Vec<(f64, T)> = names.map(|name| (likeness(&name), name)).filter(|(like, _)| *like >= LIKE).collect();
    like.sort_by(|(a, x), (b, y)| b.total_cmp(a).then_with(|| x.cmp(y)));
    like.dedup_by(|(_, a), (_, b)| a == b);
    like.into_iter().take(MAX_NAMES).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_comes_first_and_strangers_do_not_come() {
        let names = ["summary", "sites", "caches", "mismatch", "live", "sites"];
        for (word, found) in [
            ("site", &["sites"][..]),
            ("summry", &["summary"]),
            ("Cashes", &["caches"]),
            ("mis", &["mismatch"]),
            ("ilve", &["live"]),
            ("/tmp/trace", &[]),
            ("", &[]),
        ] {
            assert_eq!(nearest(word, names.into_iter()), found, "{word}");
        }
    }
}
