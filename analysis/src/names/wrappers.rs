//! Wrappers: functions that allocate on behalf of their callers, so that the caller is the place to name.

use crate::names::place::{Frame, SourceLine};
use kmemtrace_abi::text::glob::Glob;

/// Names of wrappers.
#[derive(Clone, Debug)]
pub struct Wrappers {
    patterns: Vec<Glob>,
}

/// Names that come with the library.
const BUILT_IN: &str = include_str!("wrappers.txt");

/// Suffixes that the compiler or the kernel's allocation profiling adds to a function's name. A number may follow.
const SUFFIXES: [&[u8]; 4] = [b".isra", b".part", b".constprop", b".cold"];

impl Default for Wrappers {
    fn default() -> Wrappers {
        Wrappers::parse(BUILT_IN)
    }
}

impl Wrappers {
    /// No wrapper: each call-site is named by its innermost function.
    pub fn none() -> Wrappers {
        Wrappers { patterns: Vec::new() }
    }

    /// Wrappers from a text: a name a line, `*` and `?` allowed; lines that begin with `#` are comments.
    pub fn parse(text: &str) -> Wrappers {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Wrappers { patterns: lines.map(Glob::new).collect() }
    }

    /// True for a wrapper, whatever suffixes its name has.
    pub fn has(&self, function: &[u8]) -> bool {
        let name = plain_name(function);
        self.patterns.iter().any(|pattern| pattern.matches(name))
    }

    /// Line that asked for the memory: the first frame, from inside, that is neither a wrapper nor inlined from a header. Where
    /// there is none, the outermost frame and its name as a wrapper.
    pub(crate) fn source(&self, frames: &[Frame]) -> Option<(SourceLine, Option<Box<[u8]>>)> {
        let is_header =
            |frame: &Frame| frame.inlined && frame.file.as_deref().is_some_and(|file| file.ends_with(b".h"));
        let line =
            |frame: &Frame| SourceLine { function: frame.function.clone(), file: frame.file.clone(), line: frame.line };
        match frames.iter().find(|frame| !is_header(frame) && !self.has(&frame.function)) {
            Some(frame) => Some((line(frame), None)),
            None => frames.last().map(|frame| (line(frame), Some(frame.function.clone()))),
        }
    }
}

/// Name of a function without the suffixes of the compiler and of `_noprof`.
pub(crate) fn plain_name(function: &[u8]) -> &[u8] {
    let mut name = function;
    loop {
        let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let without_number = match name.get(..name.len().saturating_sub(digits)).unwrap_or(name) {
            [rest @ .., b'.'] if digits > 0 => rest,
            _ => name,
        };
        let suffix = SUFFIXES.iter().find_map(|suffix| without_number.strip_suffix(*suffix));
        match suffix.or_else(|| name.strip_suffix(b"_noprof")) {
            Some(rest) if !rest.is_empty() => name = rest,
            _ => return name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, file: &str, inlined: bool) -> Frame {
        Frame {
            function: function.as_bytes().into(),
            file: (!file.is_empty()).then(|| file.as_bytes().into()),
            line: Some(1),
            inlined,
        }
    }

    fn source(frames: &[Frame]) -> Option<(String, bool)> {
        let (line, wrapper) = Wrappers::default().source(frames)?;
        Some((String::from_utf8_lossy(&line.function).into_owned(), wrapper.is_some()))
    }

    #[test]
    fn suffixes_are_set_aside() {
        for (name, want) in [
            ("kvmalloc_node_noprof", "kvmalloc_node"),
            ("foo.isra.0", "foo"),
            ("foo.constprop.0.isra.12", "foo"),
            ("foo_noprof.part.3", "foo"),
            ("foo.cold", "foo"),
            ("foo.12", "foo.12"),
            ("_noprof", "_noprof"),
            (".cold", ".cold"),
            ("", ""),
        ] {
            assert_eq!(plain_name(name.as_bytes()), want.as_bytes(), "{name}");
        }
    }

    #[test]
    fn the_source_is_the_first_function_that_asks_for_itself() {
        let header = frame("kzalloc", "include/linux/slab.h", true);
        let inlined = frame("bar", "fs/bar.c", true);
        let outer = frame("foo_open", "fs/foo.c", false);
        assert_eq!(source(&[header.clone(), inlined.clone(), outer.clone()]), Some(("bar".to_owned(), false)));
        // A helper of a subsystem's own header is no place to look at either.
        let own = frame("foo_alloc", "fs/foo.h", true);
        assert_eq!(source(&[header.clone(), own, outer.clone()]), Some(("foo_open".to_owned(), false)));
        let wrapper = frame("kvmalloc_node_noprof", "mm/util.c", false);
        assert_eq!(source(&[header, wrapper]), Some(("kvmalloc_node_noprof".to_owned(), true)));
        assert_eq!(source(&[]), None);
        assert_eq!(Wrappers::none().source(&[inlined, outer]).map(|(line, _)| line.function), Some(b"bar"[..].into()));
    }

    #[test]
    fn a_list_of_ones_own_takes_the_place_of_the_built_in_one() {
        let own = Wrappers::parse("# mine\n\n  my_alloc*  \n");
        assert!(own.has(b"my_alloc_node.isra.0") && !own.has(b"kmalloc"));
        assert!(Wrappers::default().has(b"__kmalloc_node_track_caller_noprof"));
        assert!(!Wrappers::default().has(b"alloc_inode"));
    }
}
