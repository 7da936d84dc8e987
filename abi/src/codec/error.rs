//! Encoded records that cannot be decoded.

use crate::kernel::subbuffer::DELTA_BITS;

/// An encoded block that cannot be decoded to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at} of the encoded records")]
pub struct CodecError {
    /// Offset in the encoded block, in bytes.
    pub(super) at: usize,
    pub(super) what: Wrong,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Wrong {
    #[error("the records are cut")]
    Cut,
    #[error("a head that no version writes")]
    Head,
    #[error("a head of other sub-buffers than the file's")]
    OtherHead,
    #[error("an unknown code {0:#x}")]
    Op(u8),
    #[error("slot {0}, which is not defined,")]
    Slot(usize),
    #[error("a slot whose record has an impossible form")]
    Form,
    #[error("a time delta of more than {DELTA_BITS} bits")]
    Delta,
    #[error("a value for a slot without one")]
    Value,
    #[error("bytes that are no whole entries")]
    Entries,
    #[error("a sub-buffer of another length than it tells")]
    Length,
    #[error("more bytes than the block's header tells")]
    TooLong,
    #[error("fewer bytes than the block's header tells")]
    TooShort,
}
