//! Other names of merged slab caches, from the links in `/sys/kernel/slab`.

use std::collections::{BTreeMap, BTreeSet};

use crate::fs::kernelfs::KernelFs;

/// Lines `CACHE ALIAS…` of the merged caches, by name. `slabinfo` is a text of `/proc/slabinfo`: of the names of one cache it lists
/// the one that events carry. A cache of which it lists none has no line.
pub(crate) fn lines(sysfs: &KernelFs, slabinfo: &[u8]) -> anyhow::Result<Vec<u8>> {
    let Some(slab) = sysfs.open_dir_if_there("kernel/slab")? else { return Ok(Vec::new()) };
    let listed = slabinfo.split(|&b| b == b'\n').filter_map(|line| line.split(|&b| b == b' ').next());
    let listed: BTreeSet<&[u8]> = listed.collect();
    let mut names: BTreeMap<Vec<u8>, Vec<String>> = BTreeMap::new();
    for name in slab.names(".")? {
        // Directories of merged caches (`:a-0000104`) are no names, and words in a line have no blanks.
        if name.starts_with(':') || name.contains(char::is_whitespace) {
            continue;
        }
        if let Some(target) = slab.link(&name)? {
            names.entry(target).or_default().push(name);
        }
    }
    let mut lines: Vec<String> = names.into_values().filter_map(|names| line(&names, &listed)).collect();
    lines.sort();
    Ok(lines.concat().into_bytes())
}

/// Line of a cache with these names; `None` for a cache that has one name only, or of which not one alone is listed.
fn line(names: &[String], listed: &BTreeSet<&[u8]>) -> Option<String> {
    let (cache, aliases): (Vec<&str>, Vec<&str>) =
        names.iter().map(String::as_str).partition(|name| listed.contains(name.as_bytes()));
    let [cache] = cache[..] else { return None };
    (!aliases.is_empty()).then(|| format!("{cache} {}\n", aliases.join(" ")))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const SLABINFO: &[u8] =
        b"slabinfo - version: 2.1\n# name <active_objs>\nmm_slot 1 2 3\nvmap_area 1 2\nalone 1\na1 0\na2 0\n";

    #[test]
    fn a_merged_cache_has_the_name_that_slabinfo_lists() {
        let dir = tempfile::tempdir().unwrap();
        let slab = dir.path().join("kernel/slab");
        for made in [":0000040", ":a-0000104", ":0000072", "alone", ":0000008", ":0000016"] {
            fs::create_dir_all(slab.join(made)).unwrap();
        }
        let links = [
            ("mm_slot", ":0000040"),
            ("ext4_system_zone", ":0000040"),
            ("Acpi-Operand", ":0000072"),
            ("vmap_area", ":0000072"),
            ("two words", ":0000072"),
            ("buffer_head", ":a-0000104"),
            ("not_listed", ":a-0000104"),
            ("a1", ":0000016"),
            ("a2", ":0000016"),
            ("other", ":0000016"),
        ];
        links.iter().for_each(|(name, target)| symlink(target, slab.join(name)).unwrap());
        let sysfs = KernelFs::at(dir.path()).unwrap();
        let text = lines(&sysfs, SLABINFO).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "mm_slot ext4_system_zone\nvmap_area Acpi-Operand\n");
        assert!(lines(&sysfs, b"").unwrap().is_empty(), "names that events carry are not known");
    }

    #[test]
    fn a_kernel_without_the_directory_has_no_aliases() {
        let dir = tempfile::tempdir().unwrap();
        assert!(lines(&KernelFs::at(dir.path()).unwrap(), SLABINFO).unwrap().is_empty());
    }
}
