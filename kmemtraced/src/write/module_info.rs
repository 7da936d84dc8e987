//! Facts about the loaded modules for `meta.out`: build-id, path of the module's file, addresses of its executable sections.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::anyhow;
use kmemtrace_abi::kernel::notes;
use kmemtrace_abi::target::Endian;

use crate::fs::kernelfs::KernelFs;

/// Greatest length of `modules.dep` that is read; that of a distribution has half a megabyte.
const MAX_LIST: u64 = 64 << 20;
/// Word for what is not known.
const UNKNOWN: &str = "-";

/// Lines `NAME BUILDID PATH SECTION=0xADDRESS…` of the modules in `modules`, a text of `/proc/modules`; `list` is the path of
/// `modules.dep`. With the first thing that could not be read; the lines have `-` in its place.
pub(crate) fn lines(modules: &[u8], sysfs: &KernelFs, list: &Path) -> (Vec<u8>, Option<anyhow::Error>) {
    // Names in a list of blank-separated words have no blanks.
    let first_word = |line: &&[u8]| line.split(|&b| b == b' ').next().map(<[u8]>::to_vec);
    let lines = modules.split(|&b| b == b'\n').filter(|line| !line.is_empty());
    let names: Vec<Vec<u8>> = lines.filter_map(|line| first_word(&line)).collect();
    if names.is_empty() {
        return (Vec::new(), None);
    }
    let mut failed = None;
    let mut keep = |error: anyhow::Error| failed = failed.take().or(Some(error));
    let paths = paths(list, &names).unwrap_or_else(|error| {
        keep(anyhow!("{}: cannot be read: {error}", list.display()));
        HashMap::new()
    });
    let mut out = Vec::new();
    for name in &names {
        let path = paths.get(name).map_or(UNKNOWN.as_bytes(), Vec::as_slice);
        let (build_id, sections) = loaded(name, sysfs).unwrap_or_else(|error| {
            keep(error);
            (None, String::new())
        });
        let build_id = build_id.unwrap_or_else(|| UNKNOWN.to_owned());
        out.extend_from_slice(&[name, &b" "[..], build_id.as_bytes(), b" ", path, sections.as_bytes(), b"\n"].concat());
    }
    (out, failed)
}

/// Build-id of a module in hexadecimal digits, and words ` SECTION=0xADDRESS` of its executable sections. A module that was unloaded
/// meanwhile has neither.
fn loaded(name: &[u8], sysfs: &KernelFs) -> anyhow::Result<(Option<String>, String)> {
    let Some(name) = std::str::from_utf8(name).ok().filter(|name| !name.contains('/') && !name.starts_with('.')) else {
        return Ok((None, String::new()));
    };
    let notes = sysfs.read_if_there(&format!("module/{name}/notes/.note.gnu.build-id"))?;
    let build_id = notes::build_id(&notes, Endian::NATIVE);
    let build_id = build_id.map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect());
    let mut sections = String::new();
    let dir = format!("module/{name}/sections");
    let is_code = |section: &&String| section.contains(".text") && !section.contains(char::is_whitespace);
    for section in sysfs.names(&dir)?.iter().filter(is_code) {
        let text = sysfs.get_if_there(&format!("{dir}/{section}"))?;
        let digits = text.trim().trim_start_matches("0x");
        // The kernel shows 0 in place of an address that it hides.
        if let Some(address) = u64::from_str_radix(digits, 16).ok().filter(|&address| address != 0) {
            sections += &format!(" {section}={address:#x}");
        }
    }
    Ok((build_id, sections))
}

/// Paths of the modules' files as documents have them, by module, from `modules.dep`; none where the list is absent.
fn paths(list: &Path, names: &[Vec<u8>]) -> io::Result<HashMap<Vec<u8>, Vec<u8>>> {
    let mut text = Vec::new();
    match File::open(list) {
        Ok(file) => file.take(MAX_LIST).read_to_end(&mut text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashMap::new()),
        Err(error) => return Err(error),
    };
    let mut paths = HashMap::new();
    for line in text.split(|&b| b == b'\n') {
        let Some(path) = line.split(|&b| b == b':').next().and_then(|file| without_suffix(file, list)) else {
            continue;
        };
        let file = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
        // The kernel has `_` where the file may have `-`.
        let module: Vec<u8> = file.iter().map(|&b| if b == b'-' { b'_' } else { b }).collect();
        if names.contains(&module) && !path.iter().any(u8::is_ascii_whitespace) {
            paths.insert(module, path.to_vec());
        }
    }
    Ok(paths)
}

/// `fs/ext4/ext4` of `kernel/fs/ext4/ext4.ko.xz`; `None` for what is no module's file. Lists of old tools have absolute paths.
fn without_suffix<'a>(file: &'a [u8], list: &Path) -> Option<&'a [u8]> {
    let base = [".ko", ".ko.gz", ".ko.xz", ".ko.zst"].iter().find_map(|suffix| file.strip_suffix(suffix.as_bytes()))?;
    let dir = list.parent().map(|dir| dir.as_os_str().as_encoded_bytes()).unwrap_or_default();
    let base = base.strip_prefix(dir).and_then(|rest| rest.strip_prefix(b"/")).unwrap_or(base);
    Some(base.strip_prefix(b"kernel/").unwrap_or(base)).filter(|base| !base.is_empty())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Sysfs with the files, and the path of a `modules.dep` with the text.
    fn machine(files: &[(&str, &[u8])], dep: &str) -> (tempfile::TempDir, KernelFs, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        for (path, bytes) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let list = dir.path().join("modules.dep");
        fs::write(&list, dep).unwrap();
        let sysfs = KernelFs::at(dir.path()).unwrap();
        (dir, sysfs, list)
    }

    fn note(id: &[u8]) -> Vec<u8> {
        let words = [4u32, id.len() as u32, 3].map(u32::to_ne_bytes).concat();
        [&words[..], b"GNU\0", id].concat()
    }

    const MODULES: &[u8] =
        b"dm_mod 200704 3 dm_mirror, Live 0xffffffffc04aa000\next4 1 0 - Live 0xffffffffc0400000 (E)\n";

    #[test]
    fn a_line_has_build_id_path_and_sections_of_code() {
        let dep = "kernel/drivers/md/dm-mod.ko.xz:\nkernel/fs/ext4/ext4.ko: kernel/lib/crc16.ko\nkernel/other.ko:\n";
        let (_dir, sysfs, list) = machine(
            &[
                ("module/dm_mod/notes/.note.gnu.build-id", &note(&[0xab, 0xcd, 0xef, 0x01])),
                ("module/dm_mod/sections/.text", b"0xffffffffc04aa000\n"),
                ("module/dm_mod/sections/.text.unlikely", b"0xffffffffc04af010\n"),
                ("module/dm_mod/sections/.init.text", b"0x0000000000000000\n"),
                ("module/dm_mod/sections/.data", b"0xffffffffc04b0000\n"),
                ("module/ext4/sections/.exit.text", b"0xffffffffc0410000"),
                ("module/ext4/sections/.init.text", b"0xffffffffc0430000\n"),
                ("module/ext4/sections/.noinstr.text", b"(hidden)\n"),
            ],
            dep,
        );
        let (text, failed) = lines(MODULES, &sysfs, &list);
        assert!(failed.is_none(), "{failed:?}");
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "dm_mod abcdef01 drivers/md/dm-mod .text=0xffffffffc04aa000 .text.unlikely=0xffffffffc04af010\n\
             ext4 - fs/ext4/ext4 .exit.text=0xffffffffc0410000 .init.text=0xffffffffc0430000\n"
        );
    }

    #[test]
    fn what_is_not_there_is_not_known() {
        let (_dir, sysfs, list) = machine(&[], "");
        for list in [list.as_path(), Path::new("/nonexistent/modules.dep")] {
            let (text, failed) = lines(MODULES, &sysfs, list);
            assert!(failed.is_none(), "{failed:?}");
            assert_eq!(String::from_utf8(text).unwrap(), "dm_mod - -\next4 - -\n");
        }
        let (text, failed) = lines(b"", &sysfs, &list);
        assert!(text.is_empty() && failed.is_none());
        let (text, _) = lines(b"../etc 1\n\xff\xfe 1\n", &sysfs, &list);
        assert_eq!(text, b"../etc - -\n\xff\xfe - -\n");
    }

    #[test]
    fn what_cannot_be_read_is_told_and_the_rest_is_kept() {
        let (_dir, sysfs, list) = machine(&[("module/ext4/sections/.text/no-file", b"")], "kernel/fs/ext4/ext4.ko:\n");
        let (text, failed) = lines(MODULES, &sysfs, &list);
        assert_eq!(String::from_utf8(text).unwrap(), "dm_mod - -\next4 - fs/ext4/ext4\n");
        let failed = format!("{:#}", failed.unwrap());
        assert!(failed.contains("module/ext4/sections/.text: cannot be read"), "{failed}");
    }

    #[test]
    fn paths_are_without_folder_of_modules_and_suffix() {
        let list = Path::new("/lib/modules/6.1/modules.dep");
        let path = |file: &str| without_suffix(file.as_bytes(), list).map(|p| String::from_utf8(p.to_vec()).unwrap());
        for file in ["kernel/fs/a.ko", "kernel/fs/a.ko.gz", "kernel/fs/a.ko.xz", "kernel/fs/a.ko.zst"] {
            assert_eq!(path(file).as_deref(), Some("fs/a"), "{file}");
        }
        assert_eq!(path("/lib/modules/6.1/kernel/fs/a.ko").as_deref(), Some("fs/a"));
        assert_eq!(path("updates/dkms/zfs.ko").as_deref(), Some("updates/dkms/zfs"));
        for file in ["", "kernel/fs/a", "kernel/.ko", "a.ko.bz2"] {
            assert_eq!(path(file), None, "{file}");
        }
    }
}
