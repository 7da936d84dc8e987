//! The reader's time zone: that of `TZ`, else the machine's. Only stored files are read: `TZ` may name anything.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use jiff::tz::TimeZone;
use kmemtrace_abi::open::regular;

/// Zone of the machine.
const LOCAL: &str = "/etc/localtime";
/// Folders of zones by name, behind `TZDIR`.
const FOLDERS: [&str; 3] = ["/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/etc/zoneinfo"];
/// Limit of a zone's file; the largest have 4 KB.
const MAX_BYTES: u64 = 1 << 20;

/// The zone; UTC where the one that is asked for cannot be read, as the C library has it.
pub(crate) fn local() -> TimeZone {
    static ZONE: OnceLock<TimeZone> = OnceLock::new();
    let find = || find(std::env::var_os("TZ").as_deref(), std::env::var_os("TZDIR").as_deref());
    ZONE.get_or_init(|| find().unwrap_or(TimeZone::UTC)).clone()
}

fn find(zone: Option<&OsStr>, folder: Option<&OsStr>) -> Option<TimeZone> {
    let Some(zone) = zone else { return of_file(Path::new(LOCAL)) };
    let zone = zone.to_str()?;
    if let Ok(rule) = TimeZone::posix(zone) {
        return Some(rule);
    }
    let name = Path::new(zone.strip_prefix(':').unwrap_or(zone));
    if name.is_absolute() {
        return of_file(name);
    }
    if !name.components().all(|part| matches!(part, Component::Normal(_))) {
        return None;
    }
    let folders = folder.filter(|folder| !folder.is_empty()).map(PathBuf::from).into_iter();
    folders.chain(FOLDERS.map(PathBuf::from)).find_map(|folder| of_file(&folder.join(name)))
}

fn of_file(path: &Path) -> Option<TimeZone> {
    let mut bytes = Vec::new();
    regular::open(path).ok()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    TimeZone::tzif("local", &bytes).ok()
}

#[cfg(test)]
mod tests {
    use kmemtrace_tests::recording::Directory;
    use rustix::fs::{CWD, FileType, Mode};

    use super::*;

    /// A zone of two hours east without changes, as RFC 9636 has it.
    fn two_hours_east() -> Vec<u8> {
        let counts = [0_u32, 0, 0, 0, 1, 4].map(u32::to_be_bytes).concat();
        let zone = [&7200_i32.to_be_bytes()[..], &[0, 0], b"EET\0"].concat();
        let part = [b"TZif2", &[0; 15][..], &counts, &zone].concat();
        [&part[..], &part, b"\nEET-2\n"].concat()
    }

    #[test]
    fn zones_are_rules_or_stored_files() {
        let dir = Directory::new(&[]);
        let at = |name: &str| dir.file(name);
        dir.write("Zone", &two_hours_east());
        dir.write("text", b"no zone");
        rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let hours = |zone: &str| {
            let zone = find(Some(OsStr::new(zone)), Some(dir.path().as_os_str()))?;
            Some(zone.to_offset(jiff::Timestamp::UNIX_EPOCH).seconds() / 3600)
        };
        let path = |name: &str| at(name).to_str().unwrap().to_owned();
        assert_eq!([hours("EST5"), hours("Zone"), hours(":Zone"), hours(&path("Zone"))], [-5, 2, 2, 2].map(Some));
        for none in ["", "text", "fifo", "absent", "../Zone", &path("fifo"), "/dev/zero", "/proc/kmsg"] {
            assert_eq!(hours(none), None, "{none}");
        }
    }
}
