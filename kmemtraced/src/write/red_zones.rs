//! Slab caches whose objects have red zones (`slub_debug`), from `/sys/kernel/slab`: the bytes that events call allocated contain them.

use crate::fs::kernelfs::KernelFs;

/// Names of these caches, a line each.
pub(crate) fn lines(sysfs: &KernelFs) -> anyhow::Result<Vec<u8>> {
    let Some(slab) = sysfs.open_dir_if_there("kernel/slab")? else { return Ok(Vec::new()) };
    let mut lines = String::new();
    for name in slab.names(".")? {
        // Directories of merged caches (`:a-0000104`) are no names. A cache may go meanwhile.
        let is_name = !name.starts_with(':') && !name.contains('\n');
        if is_name && slab.get_if_there(&format!("{name}/red_zone"))?.trim() == "1" {
            lines += &format!("{name}\n");
        }
    }
    Ok(lines.into_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn caches_with_red_zones_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let slab = dir.path().join("kernel/slab");
        for (name, flag) in [(":0000104", "1\n"), ("dentry", "1\n"), ("cred", "0\n"), ("odd", "x\n")] {
            fs::create_dir_all(slab.join(name)).unwrap();
            fs::write(slab.join(name).join("red_zone"), flag).unwrap();
        }
        fs::create_dir(slab.join("without")).unwrap();
        let text = lines(&KernelFs::at(dir.path()).unwrap()).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "dentry\n");
    }
}
