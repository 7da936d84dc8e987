//! Names of the caches that `kmalloc` takes objects from (mm/slab_common.c, `kmalloc_info`; mm/slab.c before Linux 3.10).

/// True for the name of a cache that `kmalloc` takes objects from, in kernels of any version: `kmalloc-1k`, `kmalloc-rnd-05-96`,
/// `dma-kmalloc-8`, `size-1024(DMA)`.
pub fn is_kmalloc(name: &[u8]) -> bool {
    let is_size =
        |name: &[u8]| name.strip_prefix(b"size-").is_some_and(|size| size.first().is_some_and(u8::is_ascii_digit));
    name.starts_with(b"kmalloc-") || name.starts_with(b"dma-kmalloc-") || is_size(name)
}

/// Bytes of the objects of such a cache, as its name gives them: 1024 for `kmalloc-rcl-1k`. `None` for other caches.
pub fn class_bytes(name: &[u8]) -> Option<u64> {
    if !is_kmalloc(name) {
        return None;
    }
    let name = name.strip_suffix(b"(DMA)").unwrap_or(name);
    let class = name.rsplit(|byte| *byte == b'-').next()?;
    let (digits, shift) = match class.split_last()? {
        (b'k', digits) => (digits, 10),
        (b'M', digits) => (digits, 20),
        _ => (class, 0),
    };
    let is_number = digits.first().is_some_and(u8::is_ascii_digit);
    // No class has more bytes than fit 32 bits.
    let bytes = u64::from(std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse::<u32>().ok()?) << shift;
    (bytes > 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_all_kernels_tell_their_bytes() {
        for (name, bytes) in [
            ("kmalloc-64", Some(64)),
            ("kmalloc-1k", Some(1024)),
            ("kmalloc-1024", Some(1024)),
            ("kmalloc-rcl-8k", Some(8192)),
            ("kmalloc-cg-96", Some(96)),
            ("kmalloc-rnd-05-2k", Some(2048)),
            ("dma-kmalloc-192", Some(192)),
            ("kmalloc-4M", Some(4 << 20)),
            ("size-131072(DMA)", Some(131_072)),
            ("size-64", Some(64)),
            ("kmalloc-", None),
            ("kmalloc-+64", None),
            ("kmalloc-0", None),
            ("size-class", None),
            ("dentry", None),
            ("my-kmalloc-8", None),
            ("", None),
        ] {
            assert_eq!(class_bytes(name.as_bytes()), bytes, "{name}");
            assert!(bytes.is_none() || is_kmalloc(name.as_bytes()), "{name}");
        }
    }
}
