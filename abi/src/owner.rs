//! Owners of memory: facts that an input gives about each allocation besides its thread, each combination kept once.

use std::collections::HashMap;
use std::num::NonZeroU32;

use crate::listed::Listed;

/// Allocators that pages came through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Allocators(u8);

impl Allocators {
    /// Contiguous memory allocator.
    pub const CMA: Allocators = Allocators(1);
    /// Slab allocator.
    pub const SLAB: Allocators = Allocators(2);
    /// `vmalloc`.
    pub const VMALLOC: Allocators = Allocators(4);

    /// Union with other allocators.
    pub fn with(self, others: Allocators) -> Allocators {
        Allocators(self.0 | others.0)
    }

    /// `"cma"`, `"slab"`, `"vmalloc"`, several of them with a comma between, or `"others"`.
    pub fn names(self) -> String {
        let all = [(Allocators::CMA, "cma"), (Allocators::SLAB, "slab"), (Allocators::VMALLOC, "vmalloc")];
        let names: Vec<&str> = all.into_iter().filter(|(one, _)| self.0 & one.0 != 0).map(|(_, name)| name).collect();
        if names.is_empty() { "others".to_owned() } else { names.join(",") }
    }
}

/// Facts of an allocation besides its thread id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Thread group of the thread.
    pub tgid: Option<i32>,
    /// Command name of the thread at the allocation.
    pub comm: Option<Box<[u8]>>,
    /// Allocators that the pages came through.
    pub allocators: Allocators,
    /// True for memory that was given back since.
    pub is_released: bool,
    /// Facts of the entry, where a text of one moment lists it.
    pub listed: Option<Box<Listed>>,
}

/// An owner, interned in [`Owners`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerId(NonZeroU32);

impl OwnerId {
    /// Position of the owner in its [`Owners`], from 0, without holes.
    #[expect(clippy::arithmetic_side_effects, reason = "the number is not 0")]
    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// Interned owners.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    all: Vec<Owner>,
    ids: HashMap<Owner, OwnerId>,
}

impl Owners {
    /// The id of an owner, which is added if it is new.
    pub fn intern(&mut self, owner: &Owner) -> OwnerId {
        if let Some(&id) = self.ids.get(owner) {
            return id;
        }
        // 2^32 owners do not fit in memory, so this never saturates.
        let id = OwnerId(NonZeroU32::MIN.saturating_add(u32::try_from(self.all.len()).unwrap_or(u32::MAX)));
        self.all.push(owner.clone());
        self.ids.insert(owner.clone(), id);
        id
    }

    /// Adds an owner without looking for an equal one, which must not exist; [`Owners::intern`] does not find it.
    pub fn push(&mut self, owner: Owner) -> OwnerId {
        let id = OwnerId(NonZeroU32::MIN.saturating_add(u32::try_from(self.all.len()).unwrap_or(u32::MAX)));
        self.all.push(owner);
        id
    }

    /// Number of owners.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// True without an owner.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Forgets the owners from this number on: their ids become invalid. Keeps all of them if some were interned.
    pub fn forget_pushed(&mut self, from: usize) {
        if self.ids.is_empty() {
            self.all.truncate(from);
        }
    }

    /// The owner of an id.
    pub fn get(&self, id: OwnerId) -> Option<&Owner> {
        self.at(id.index())
    }

    /// The owner at a position, see [`OwnerId::index`].
    pub fn at(&self, index: usize) -> Option<&Owner> {
        self.all.get(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_kept_once() {
        let mut owners = Owners::default();
        let shell = Owner { tgid: Some(7), comm: Some(b"sh"[..].into()), ..Owner::default() };
        let later = Owner { comm: Some(b"dd"[..].into()), ..shell.clone() };
        let ids = [&shell, &later, &shell].map(|owner| owners.intern(owner));
        assert_eq!((ids[0], ids[1].index()), (ids[2], 1));
        assert_eq!((owners.get(ids[0]), owners.get(ids[1])), (Some(&shell), Some(&later)));
    }

    #[test]
    fn allocators_are_named_together() {
        let both = Allocators::SLAB.with(Allocators::CMA);
        assert_eq!((both.names(), Allocators::default().names()), ("cma,slab".to_owned(), "others".to_owned()));
    }
}
