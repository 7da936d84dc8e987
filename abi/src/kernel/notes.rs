//! ELF notes as `/sys/kernel/notes` and `/sys/module/NAME/notes` have them.

use crate::target::{Big, Endian, Little, TargetOrder, u32_at};

/// Type of the note with the build-id, among those of the owner `GNU`.
const NT_GNU_BUILD_ID: u32 = 3;
/// Owner of that note, with its NUL.
const OWNER: &[u8] = b"GNU\0";
/// Largest length of a build-id: linkers make 8 to 32 bytes, and a longer text can be given.
const MAX_BUILD_ID: usize = 64;
/// Bytes of a note's header: length of the owner, length of the description, type.
const HEADER_BYTES: usize = 12;

/// Build-id in ELF notes, whose parts are padded to 4 bytes: the first one that is not empty. `None` without one, and where the notes
/// make no sense before it.
pub fn build_id(notes: &[u8], endian: Endian) -> Option<&[u8]> {
    match endian {
        Endian::Little => find::<Little>(notes),
        Endian::Big => find::<Big>(notes),
    }
}

fn find<O: TargetOrder>(notes: &[u8]) -> Option<&[u8]> {
    let mut rest = notes;
    loop {
        let owner_len = usize::try_from(u32_at::<O>(rest, 0)?).ok()?;
        let description_len = usize::try_from(u32_at::<O>(rest, 4)?).ok()?;
        let kind = u32_at::<O>(rest, 8)?;
        let owner_end = HEADER_BYTES.checked_add(owner_len)?;
        let owner = rest.get(HEADER_BYTES..owner_end)?;
        let description_from = owner_end.checked_next_multiple_of(4)?;
        let description_end = description_from.checked_add(description_len)?;
        let description = rest.get(description_from..description_end)?;
        if owner == OWNER && kind == NT_GNU_BUILD_ID && (1..=MAX_BUILD_ID).contains(&description_len) {
            return Some(description);
        }
        // The last note may lack its padding.
        rest = rest.get(description_end.checked_next_multiple_of(4)?..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A note, padded to 4 bytes.
    fn note(endian: Endian, owner: &[u8], kind: u32, description: &[u8]) -> Vec<u8> {
        let word = |n: u32| if endian == Endian::Little { n.to_le_bytes() } else { n.to_be_bytes() };
        let mut out = [word(owner.len() as u32), word(description.len() as u32), word(kind)].concat();
        for part in [owner, description] {
            out.extend_from_slice(part);
            out.resize(out.len().next_multiple_of(4), 0);
        }
        out
    }

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        let id: Vec<u8> = (0..20).collect();
        for (endian, other) in [(Endian::Little, Endian::Big), (Endian::Big, Endian::Little)] {
            let notes = [
                note(endian, b"Xen\0", 3, b"not this one"),
                note(endian, b"GNU\0", 1, b"an ABI"),
                note(endian, b"Linux\0", 257, b"odd"),
                note(endian, b"GNU\0", 3, b""),
                note(endian, b"GNU\0", 3, &id),
                note(endian, b"GNU\0", 3, b"a later one"),
            ]
            .concat();
            assert_eq!(build_id(&notes, endian), Some(&id[..]));
            assert_eq!(build_id(&notes, other), None);
        }
    }

    #[test]
    fn a_last_note_may_lack_its_padding_and_cut_ones_have_no_build_id() {
        let whole = note(Endian::Little, b"GNU\0", 3, b"seven b");
        assert_eq!(build_id(&whole[..whole.len() - 1], Endian::Little), Some(&b"seven b"[..]));
        for len in 0..whole.len() - 1 {
            assert_eq!(build_id(&whole[..len], Endian::Little), None, "{len} bytes");
        }
    }

    #[test]
    fn lengths_that_lie_are_no_build_id() {
        for lengths in [[u32::MAX, 0], [0, u32::MAX], [u32::MAX, u32::MAX], [4, u32::MAX - 3], [u32::MAX - 12, 8]] {
            let mut notes = lengths.map(u32::to_le_bytes).concat();
            notes.extend_from_slice(&3u32.to_le_bytes());
            notes.extend_from_slice(b"GNU\0abcdefgh");
            assert_eq!(build_id(&notes, Endian::Little), None, "{lengths:?}");
        }
        assert_eq!(build_id(&[0; 4096], Endian::Big), None, "empty notes without end");
    }
}
