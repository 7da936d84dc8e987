//! Other names of merged slab caches, as the recorder found them in `/sys/kernel/slab`.
//!
//! The text is hostile: names of any bytes, lines of any length, caches that come twice.

use std::collections::HashMap;

/// Largest number of names that are kept. Kernels have some hundreds.
const MAX_NAMES: usize = 1 << 16;

/// Aliases by the name of the cache that events carry.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheAliases {
    by_cache: HashMap<Box<[u8]>, Vec<Box<[u8]>>>,
}

impl CacheAliases {
    /// Parses lines `CACHE ALIAS…`; `None` for a text without any, as of a recording that does not keep them.
    pub(crate) fn parse(text: &[u8]) -> Option<CacheAliases> {
        let mut by_cache: HashMap<Box<[u8]>, Vec<Box<[u8]>>> = HashMap::new();
        let mut names = 0;
        for line in text.split(|&b| b == b'\n') {
            let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            let Some(cache) = words.next() else { continue };
            let aliases: Vec<Box<[u8]>> = words.take(MAX_NAMES.saturating_sub(names)).map(Into::into).collect();
            names = aliases.len().saturating_add(names);
            if !aliases.is_empty() {
                by_cache.entry(cache.into()).or_default().extend(aliases);
            }
        }
        (!by_cache.is_empty()).then_some(CacheAliases { by_cache })
    }

    /// Other names of the cache; none for one that the kernel did not merge.
    pub(crate) fn of(&self, cache: &[u8]) -> &[Box<[u8]>] {
        self.by_cache.get(cache).map_or(&[], Vec::as_slice)
    }

    /// Caches with an alias that `matches`, in any order.
    pub(crate) fn caches_with(&self, matches: impl Fn(&[u8]) -> bool) -> impl Iterator<Item = &[u8]> {
        self.by_cache
            .iter()
            .filter(move |(_, aliases)| aliases.iter().any(|alias| matches(alias)))
            .map(|(cache, _)| &**cache)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_have_their_aliases() {
        let aliases =
            CacheAliases::parse(b"vmap_area Acpi-Operand  audit_buffer\nmm_slot\n\nmm_slot x\nmm_slot \xff\n");
        let aliases = aliases.unwrap();
        let of = |cache: &[u8]| aliases.of(cache).iter().map(|name| name.to_vec()).collect::<Vec<_>>();
        assert_eq!(of(b"vmap_area"), [b"Acpi-Operand".to_vec(), b"audit_buffer".to_vec()]);
        assert_eq!((of(b"mm_slot"), of(b"dentry")), (vec![b"x".to_vec(), b"\xff".to_vec()], Vec::new()));
        let found: Vec<&[u8]> = aliases.caches_with(|alias| alias.starts_with(b"audit")).collect();
        assert_eq!(found, [b"vmap_area"]);
        for nothing in [&b""[..], b"\n \n", b"alone\n"] {
            assert!(CacheAliases::parse(nothing).is_none());
        }
        let many = format!("c {}", "x ".repeat(MAX_NAMES + 9));
        assert_eq!(CacheAliases::parse(many.as_bytes()).unwrap().of(b"c").len(), MAX_NAMES);
    }
}
