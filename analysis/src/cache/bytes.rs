//! Numbers and texts of the index as bytes, little endian. What is read is hostile: whatever does not fit is `None`, and no
//! count in it reserves more memory than there are bytes.

/// Appends.
#[derive(Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn u8(&mut self, n: u8) {
        self.0.push(n);
    }

    pub(super) fn bool(&mut self, yes: bool) {
        self.u8(yes.into());
    }

    pub(super) fn u32(&mut self, n: u32) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }

    pub(super) fn u64(&mut self, n: u64) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }

    pub(super) fn u128(&mut self, n: u128) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }

    /// 1 and the number, or 0 alone.
    pub(super) fn maybe(&mut self, n: Option<u64>) {
        self.bool(n.is_some());
        n.into_iter().for_each(|n| self.u64(n));
    }

    /// A length and as many bytes.
    pub(super) fn text(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}

/// Takes from the front.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[n]| n)
    }

    pub(super) fn bool(&mut self) -> Option<bool> {
        self.u8().filter(|&n| n <= 1).map(|n| n == 1)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    pub(super) fn u128(&mut self) -> Option<u128> {
        self.take().map(u128::from_le_bytes)
    }

    pub(super) fn maybe(&mut self) -> Option<Option<u64>> {
        Some(if self.bool()? { Some(self.u64()?) } else { None })
    }

    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u64()?).ok()?;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(text)
    }

    /// As many things as a number says, each of at least one byte.
    pub(super) fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = usize::try_from(self.u64()?).ok().filter(|&count| count <= self.0.len())?;
        (0..count).map(|_| one(self)).collect()
    }

    /// `value`, if nothing is left.
    pub(super) fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_comes_back_and_nothing_more() {
        let mut writer = Writer::default();
        writer.u8(7);
        writer.bool(true);
        writer.u32(8);
        writer.u128(u128::MAX - 9);
        writer.maybe(None);
        writer.maybe(Some(10));
        writer.text(b"dentry");
        writer.u64(2);
        writer.u8(1);
        writer.u8(2);
        let take = |bytes: &[u8]| {
            let mut reader = Reader(bytes);
            let first = (reader.u8()?, reader.bool()?, reader.u32()?, reader.u128()?, reader.maybe()?, reader.maybe()?);
            let rest = (reader.text()?.to_vec(), reader.list(Reader::u8)?);
            reader.end((first, rest))
        };
        let want = ((7, true, 8, u128::MAX - 9, None, Some(10)), (b"dentry".to_vec(), vec![1, 2]));
        assert_eq!(take(&writer.0), Some(want));
        for len in 0..writer.0.len() {
            assert_eq!(take(&writer.0[..len]), None, "{len}");
        }
        assert_eq!(take(&[writer.0, vec![0]].concat()), None);
    }

    #[test]
    fn counts_beyond_the_bytes_are_refused() {
        let huge = u64::MAX.to_le_bytes();
        assert_eq!(Reader(&huge).list(Reader::u8), None);
        assert_eq!(Reader(&huge).text(), None);
        assert_eq!(Reader(&[2]).bool(), None);
    }
}
