//! Length of names: a file may give one function a name of megabytes, and thousands of addresses that function.

/// Largest length of a name that is kept, in bytes. Names of C++ and Rust have some hundreds.
pub const MAX_NAME_BYTES: usize = 4096;

/// The start of a name that is kept.
pub fn cut(name: &[u8]) -> &[u8] {
    let is_inside = |at: &usize| name.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
    // A character has at most four bytes.
    let end = (MAX_NAME_BYTES - 3..=MAX_NAME_BYTES).rev().find(|at| !is_inside(at)).unwrap_or(MAX_NAME_BYTES);
    name.get(..end).filter(|_| name.len() > MAX_NAME_BYTES).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_end_with_a_whole_character() {
        for (name, bytes) in [
            ("a".repeat(4096), 4096),
            ("a".repeat(4097), 4096),
            ("日".repeat(1365), 4095),
            ("日".repeat(1366), 4095),
            (format!("a{}", "日".repeat(1366)), 4096),
        ] {
            assert_eq!(cut(name.as_bytes()), &name.as_bytes()[..bytes], "{bytes}");
        }
        assert_eq!(cut(&[0x80; 5000]).len(), MAX_NAME_BYTES);
        assert_eq!(cut(&[0x80; 4096]).len(), 4096);
    }
}
