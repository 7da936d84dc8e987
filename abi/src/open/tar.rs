//! Tar archives: where the files in them lie. Formats v7, ustar, pax and GNU (`tar(5)`; POSIX.1-2017, pax Interchange Format).
//!
//! Archives are hostile: no number of a header decides how much memory is taken, and a member lies inside the archive or is none.

use std::fs::File;
use std::io::{self, Read};

use super::spool::ReadAt;

/// Bytes of a header, and what members are padded to.
const BLOCK: u64 = 512;
/// Limit of members that are looked at.
const MAX_MEMBERS: usize = 1 << 14;
/// Limit of a name, and of all records of a pax header, in bytes.
const MAX_RECORDS: u64 = 1 << 20;

/// A regular file in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: Vec<u8>,
    /// Offset of its first byte, and number of bytes.
    pub(super) offset: u64,
    pub(super) len: u64,
    /// Time of the file's last change, in seconds since 1970.
    pub(super) modified: Option<i64>,
}

/// What an archive holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) members: Vec<Member>,
    /// The archive ends inside a member, whose begin is there, or goes on with bytes that are no header.
    pub(super) is_cut: bool,
}

/// True for the first bytes of an archive: a header with its checksum.
pub(super) fn begins(sample: &[u8]) -> bool {
    sample.first_chunk().is_some_and(|block| Header(block).is_whole())
}

/// A block with a header.
struct Header<'b>(&'b [u8; BLOCK as usize]);

impl Header<'_> {
    /// The checksum is right: the sum of all bytes, with blanks in its own place. Old programs took bytes as signed.
    fn is_whole(&self) -> bool {
        let of = |(at, byte): (usize, &u8)| if (148..156).contains(&at) { b' ' } else { *byte };
        let bytes = || self.0.iter().enumerate().map(of);
        let told = octal(&self.0[148..156]).map(i128::from);
        let sums = [bytes().map(i128::from).sum(), bytes().map(|byte| i128::from(byte.cast_signed())).sum::<i128>()];
        self.0[0] != 0 && told.is_some_and(|told| sums.contains(&told))
    }

    fn name(&self) -> Vec<u8> {
        let (name, prefix) = (until_nul(&self.0[..100]), until_nul(&self.0[345..500]));
        let has_prefix = self.0[257..263] == *b"ustar\0" && !prefix.is_empty();
        if has_prefix { [prefix, b"/", name].concat() } else { name.to_vec() }
    }

    /// Octal digits, or with GNU a binary number behind a first bit that is set.
    fn len(&self) -> Option<u64> {
        let field = &self.0[124..136];
        match field {
            [0x80, high @ .., _, _, _, _, _, _, _, _] if high.iter().all(|byte| *byte == 0) => {
                field.last_chunk().map(|len| u64::from_be_bytes(*len))
            }
            [first, ..] if first & 0x80 != 0 => None,
            _ => octal(field),
        }
    }

    fn modified(&self) -> Option<i64> {
        octal(&self.0[136..148]).and_then(|seconds| seconds.try_into().ok())
    }

    fn kind(&self) -> u8 {
        self.0[156]
    }
}

/// Octal number, perhaps between blanks, up to a NUL.
fn octal(field: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(until_nul(field).trim_ascii()).ok()?, 8).ok()
}

fn until_nul(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or(field)
}

/// What headers before a member's own say of it.
#[derive(Default)]
struct Extended {
    name: Option<Vec<u8>>,
    len: Option<u64>,
    /// The member's bytes are the parts of a file with holes.
    is_sparse: bool,
}

impl Extended {
    /// Records of a pax header: `LEN KEY=VALUE\n`, LEN of the whole record.
    fn add_records(&mut self, mut records: &[u8]) {
        while let Some(blank) = records.iter().position(|byte| *byte == b' ') {
            let len = records.get(..blank).and_then(|len| std::str::from_utf8(len).ok()?.parse().ok());
            let Some((record, rest)) = len.and_then(|len| records.split_at_checked(len)) else { return };
            let Some(record) = record.get(blank.saturating_add(1)..) else { return };
            records = rest;
            let mut parts = record.strip_suffix(b"\n").unwrap_or(record).splitn(2, |byte| *byte == b'=');
            let (Some(key), Some(value)) = (parts.next(), parts.next()) else { continue };
            match key {
                b"path" => self.name = Some(value.to_vec()),
                b"size" => self.len = std::str::from_utf8(value).ok().and_then(|len| len.parse().ok()),
                key => self.is_sparse |= key.starts_with(b"GNU.sparse."),
            }
        }
    }
}

/// Lists the regular files of an archive; files with holes are left out.
pub(super) fn list(file: &File) -> io::Result<Listing> {
    let end = file.metadata()?.len();
    let mut listing = Listing::default();
    let mut extended = Extended::default();
    let mut offset = 0;
    while listing.members.len() < MAX_MEMBERS {
        let block = match block(file, offset, end)? {
            // Two blocks of zeros end an archive; some programs write one, or none.
            Some(block) if block.iter().all(|byte| *byte == 0) => return Ok(listing),
            Some(block) => block,
            None => {
                listing.is_cut = offset != end;
                return Ok(listing);
            }
        };
        let header = Header(&block);
        let len = extended.len.filter(|_| !is_extension(header.kind())).or(header.len());
        let Some(len) = len.filter(|_| header.is_whole()) else { break };
        let begin = offset.saturating_add(BLOCK);
        let rest = end.saturating_sub(begin);
        match header.kind() {
            _ if len > rest && is_extension(header.kind()) => break,
            b'x' => extended.add_records(&records(file, begin, len)?),
            b'L' => {
                let name = records(file, begin, len)?;
                extended.name = Some(name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec());
            }
            b'g' | b'K' => {}
            kind => {
                let Extended { name, is_sparse, .. } = std::mem::take(&mut extended);
                let name = name.unwrap_or_else(|| header.name());
                if matches!(kind, b'0' | 0 | b'7') && !is_sparse && !name.ends_with(b"/") {
                    // What there is of a member that the archive ends in.
                    listing.members.push(Member {
                        name,
                        offset: begin,
                        len: len.min(rest),
                        modified: header.modified(),
                    });
                }
            }
        }
        if len > rest {
            break;
        }
        offset = begin.saturating_add(len.next_multiple_of(BLOCK)).min(end);
    }
    listing.is_cut = true;
    Ok(listing)
}

/// True for headers that tell of the next one.
fn is_extension(kind: u8) -> bool {
    matches!(kind, b'x' | b'g' | b'L' | b'K')
}

/// The block at an offset; `None` where the archive has less.
fn block(file: &File, offset: u64, end: u64) -> io::Result<Option<[u8; BLOCK as usize]>> {
    if end.saturating_sub(offset) < BLOCK {
        return Ok(None);
    }
    let mut block = [0; BLOCK as usize];
    match ReadAt::from(file, offset).read_exact(&mut block) {
        Ok(()) => Ok(Some(block)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// The first bytes of a member that is a name or a list of records.
fn records(file: &File, offset: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut records = Vec::new();
    ReadAt::from(file, offset).take(len.min(MAX_RECORDS)).read_to_end(&mut records)?;
    Ok(records)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A header with its checksum.
    fn header(name: &[u8], kind: u8, len: &[u8], magic: &[u8]) -> Vec<u8> {
        let mut header = vec![0; 512];
        header[..name.len()].copy_from_slice(name);
        header[124..124 + len.len()].copy_from_slice(len);
        header[148..156].fill(b' ');
        header[156] = kind;
        header[257..257 + magic.len()].copy_from_slice(magic);
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        header
    }

    fn member(name: &[u8], kind: u8, bytes: &[u8]) -> Vec<u8> {
        let mut member = header(name, kind, format!("{:011o}\0", bytes.len()).as_bytes(), b"ustar\x0000");
        member.extend_from_slice(bytes);
        member.resize(member.len().next_multiple_of(512), 0);
        member
    }

    fn listed(bytes: &[u8]) -> Listing {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        list(&file).unwrap()
    }

    fn archive() -> Vec<u8> {
        let long = "d/".repeat(80) + "slabinfo";
        let record = format!("path={long}\n");
        let record = format!("{} {record}", record.len() + 4);
        let parts = [
            member(b"dir/", b'5', b""),
            member(b"dir/meminfo", b'0', b"MemTotal: 1 kB\n"),
            member(b"link", b'2', b""),
            member(b"x", b'x', record.as_bytes()),
            member(b"short", b'0', b"slabinfo"),
            member(b"././@LongLink", b'L', b"long name\0"),
            member(b"short", 0, &[b'a'; 600]),
            vec![0; 1024],
        ];
        parts.concat()
    }

    #[test]
    fn regular_files_are_listed() {
        let archive = archive();
        assert!(begins(&archive) && !begins(&archive[..511]) && !begins(&[0; 512]) && !begins(&[b'1'; 512]));
        let listing = listed(&archive);
        let names: Vec<_> =
            listing.members.iter().map(|member| (String::from_utf8_lossy(&member.name), member.len)).collect();
        let long = "d/".repeat(80) + "slabinfo";
        assert_eq!(names, [("dir/meminfo".into(), 15), (long.into(), 8), ("long name".into(), 600)]);
        assert!(!listing.is_cut);
        let meminfo = &listing.members[0];
        let bytes = &archive[meminfo.offset as usize..][..meminfo.len as usize];
        assert_eq!(bytes, b"MemTotal: 1 kB\n");
    }

    #[test]
    fn numbers_of_a_header_are_not_believed() {
        let huge = header(b"a", b'0', b"77777777777\0", b"ustar\x0000");
        let nothing = Member { name: b"a".to_vec(), offset: 512, len: 0, modified: None };
        assert_eq!(listed(&huge), Listing { members: vec![nothing], is_cut: true });
        let binary = [&header(b"a", b'0', &[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3], b"ustar  \0")[..], b"abc"].concat();
        assert_eq!(listed(&binary).members[0].len, 3);
        let negative = header(b"a", b'0', &[0xff; 12], b"ustar  \0");
        assert!(listed(&negative).is_cut);
        let mut records = member(b"x", b'x', b"99999999999999999999 path=a\n0 =\n-1 b=\n");
        records.extend(member(b"b", b'0', b"1"));
        assert_eq!(listed(&records).members[0].name, b"b");
    }

    #[test]
    fn damage_does_no_harm() {
        let archive = archive();
        for end in 0..archive.len() {
            let listing = listed(&archive[..end]);
            assert!(listing.members.iter().all(|member| member.offset + member.len <= end as u64), "{end}");
        }
        let mut damaged = archive.clone();
        for bit in 0..archive.len() * 8 {
            damaged[bit / 8] ^= 1 << (bit % 8);
            let listing = listed(&damaged);
            assert!(listing.members.iter().all(|member| member.offset + member.len <= archive.len() as u64), "{bit}");
            damaged[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
