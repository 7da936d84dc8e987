//! Names with `*` (any run of bytes) and `?` (one character).

use std::fmt;
use std::str::FromStr;

/// A pattern that a whole name matches or does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(Box<[u8]>);

impl Glob {
    /// The pattern of this text.
    pub fn new(pattern: &str) -> Glob {
        Glob(pattern.as_bytes().into())
    }

    /// True for a pattern that is one name.
    pub fn is_name(&self) -> bool {
        !self.0.iter().any(|byte| matches!(byte, b'*' | b'?'))
    }

    /// True if all of `name` matches, after at most (length of the name) x (length of the pattern) steps.
    pub fn matches(&self, name: &[u8]) -> bool {
        self.matches_in(name, &mut 0)
    }

    /// The same; adds the steps that it took.
    pub fn matches_in(&self, name: &[u8], steps: &mut usize) -> bool {
        let (mut pattern, mut name) = (&*self.0, name);
        // What follows the last `*`, and what it leaves of the name: on a mismatch it takes one character more. Earlier ones need no
        // retry.
        let mut star = None;
        loop {
            *steps = steps.saturating_add(1);
            (pattern, name) = match (pattern, name) {
                ([b'*', behind @ ..], _) => {
                    star = Some((behind, name));
                    (behind, name)
                }
                ([b'?', behind @ ..], [_, ..]) => (behind, behind_character(name)),
                ([byte, behind @ ..], [first, rest @ ..]) if byte == first => (behind, rest),
                ([], []) => return true,
                _ => match star {
                    Some((behind, left @ [_, ..])) => {
                        let left = behind_character(left);
                        star = Some((behind, left));
                        (behind, left)
                    }
                    _ => return false,
                },
            };
        }
    }
}

/// What follows the first character, which is one byte where it is no UTF-8.
fn behind_character(bytes: &[u8]) -> &[u8] {
    let chunk = bytes.get(..4).unwrap_or(bytes);
    let len = match bytes {
        [0..0x80, ..] => 1,
        _ => chunk.utf8_chunks().next().and_then(|c| c.valid().chars().next()).map_or(1, char::len_utf8),
    };
    bytes.get(len..).unwrap_or_default()
}

impl fmt::Display for Glob {
    /// The pattern as the user gave it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl FromStr for Glob {
    type Err = std::convert::Infallible;

    fn from_str(pattern: &str) -> Result<Glob, Self::Err> {
        Ok(Glob::new(pattern))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, want) in [
            ("", "", true),
            ("", "a", false),
            ("dentry", "dentry", true),
            ("dentry", "dentry2", false),
            ("entry", "dentry", false),
            ("*", "", true),
            ("kmalloc-*", "kmalloc-2k", true),
            ("kmalloc-*", "kmallo", false),
            ("*-*", "a-b-c", true),
            ("*ab", "aab", true),
            ("*aab*b", "aaabab", true),
            ("a**b", "ab", true),
            ("?", "", false),
            ("???", "abc", true),
            ("gr??e", "größe", true),
            ("*?x", "xx", true),
            ("*?x", "x", false),
            ("*?", "€", true),
            ("*??", "€", false),
            ("*?b", "€b", true),
        ] {
            assert_eq!(Glob::new(pattern).matches(name.as_bytes()), want, "{pattern} {name}");
        }
        assert!(Glob::new("a?b*").matches(b"a\xffb\xff"));
    }

    /// Against the obvious recursion, for all short names and patterns.
    #[test]
    fn every_short_pattern_agrees_with_the_definition() {
        fn defined(p: &[u8], n: &[u8]) -> bool {
            match p {
                [] => n.is_empty(),
                [b'*', rest @ ..] => (0..=n.len()).any(|i| defined(rest, &n[i..])),
                [b'?', rest @ ..] => !n.is_empty() && defined(rest, &n[1..]),
                [c, rest @ ..] => n.first() == Some(c) && defined(rest, &n[1..]),
            }
        }
        let words = |letters: &'static [u8]| {
            (0..=5u32).flat_map(move |len| {
                (0..letters.len().pow(len)).map(move |mut i| {
                    let mut word = Vec::new();
                    for _ in 0..len {
                        word.push(letters[i % letters.len()]);
                        i /= letters.len();
                    }
                    word
                })
            })
        };
        for pattern in words(b"ab*?") {
            let glob = Glob(pattern.clone().into());
            for name in words(b"ab") {
                assert_eq!(glob.matches(&name), defined(&pattern, &name), "{pattern:?} {name:?}");
            }
        }
    }
}
