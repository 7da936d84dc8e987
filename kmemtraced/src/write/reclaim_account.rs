//! Slab caches whose objects the kernel takes back when it is short of memory, from `/sys/kernel/slab`.

use crate::fs::kernelfs::KernelFs;

/// Lines `CACHE 0` and `CACHE 1`, by name, merged caches under each of their names.
pub(crate) fn lines(sysfs: &KernelFs) -> anyhow::Result<Vec<u8>> {
    let Some(slab) = sysfs.open_dir_if_there("kernel/slab")? else { return Ok(Vec::new()) };
    let mut lines = String::new();
    for name in slab.names(".")? {
        // Directories of merged caches (`:a-0000104`) are no names.
        if name.starts_with(':') || name.contains('\n') {
            continue;
        }
        // A cache may go meanwhile.
        let flag = slab.get_if_there(&format!("{name}/reclaim_account"))?;
        if matches!(flag.trim(), "0" | "1") {
            lines += &format!("{name} {}\n", flag.trim());
        }
    }
    Ok(lines.into_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn each_name_of_a_cache_has_its_flag() {
        let dir = tempfile::tempdir().unwrap();
        let slab = dir.path().join("kernel/slab");
        for (name, flag) in [(":a-0000104", "1\n"), ("dentry", "1\n"), ("cred", "0\n"), ("odd", "x\n")] {
            fs::create_dir_all(slab.join(name)).unwrap();
            fs::write(slab.join(name).join("reclaim_account"), flag).unwrap();
        }
        fs::create_dir(slab.join("without")).unwrap();
        symlink(":a-0000104", slab.join("buffer_head")).unwrap();
        let text = lines(&KernelFs::at(dir.path()).unwrap()).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "buffer_head 1\ncred 0\ndentry 1\n");
    }

    #[test]
    fn a_kernel_without_the_directory_has_no_flags() {
        let dir = tempfile::tempdir().unwrap();
        assert!(lines(&KernelFs::at(dir.path()).unwrap()).unwrap().is_empty());
    }
}
