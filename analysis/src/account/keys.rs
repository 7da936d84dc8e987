//! Table of the keys that rows may be grouped by. Options, documents and tables walk it.
//!
//! An entry says everything about a key except how [`super::group_reader::GroupReader`] reads its value from an allocation.

use std::fmt;
use std::str::FromStr;

use ColumnContent::{Name, Number, Path, Word};

/// Content of a column that shows a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnContent {
    /// Numbers.
    Number,
    /// Words of the contract.
    Word,
    /// Names, of any length.
    Name,
    /// File and line.
    Path,
}

/// Column of a table that shows a key, or a part of one.
#[derive(Clone, Copy, Debug)]
pub struct KeyColumn {
    /// Heading.
    pub title: &'static str,
    /// Content.
    pub content: ColumnContent,
    /// Explanation, one sentence.
    pub meaning: &'static str,
}

/// Form that the value of a key has in documents: the member is the word of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// Name.
    Name,
    /// Signed number of 32 bits.
    Id,
    /// Unsigned number.
    Number,
    /// Bytes, of every object.
    Bytes,
    /// True or false.
    Flag,
    /// One of these words, by its number.
    Word(&'static [&'static str]),
    /// Form, and members, of its own.
    Own,
}

/// Entry of the table of keys.
#[derive(Clone, Copy, Debug)]
pub struct KeyEntry {
    /// Word of the contract.
    pub word: &'static str,
    /// Meaning in one line, for help.
    pub meaning: &'static str,
    /// Form of the value in documents.
    pub form: KeyForm,
    /// Columns of tables.
    pub columns: &'static [KeyColumn],
    /// Text of tables for a value that is not known.
    pub unknown: &'static str,
    /// Key that has this one's members, too: rows of both have them once.
    pub part_of: Option<GroupKey>,
}

/// Makes the keys of their table: `Key "word" "meaning" form, "text for an unknown value", [columns], key that it is part of`.
macro_rules! keys {
    ($(
        $key:ident $word:literal $meaning:literal $form:expr, $unknown:literal,
        [$($column:expr),*] $(, $whole:ident)?;
    )*) => {
        /// Member of an allocation that a row may be made of, besides the kind.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum GroupKey {
            $(#[doc = $meaning] $key,)*
        }

        impl GroupKey {
            /// All keys, in the order of the table.
            pub const ALL: [GroupKey; [$($word),*].len()] = [$(GroupKey::$key),*];

            /// Entry of the key in the table.
            pub const fn entry(self) -> &'static KeyEntry {
                match self {
                    $(GroupKey::$key => const {
                        &KeyEntry {
                            word: $word,
                            meaning: $meaning,
                            form: $form,
                            columns: &[$($column),*],
                            unknown: $unknown,
                            part_of: keys!(@whole $($whole)?),
                        }
                    },)*
                }
            }
        }
    };
    (@whole) => { None };
    (@whole $whole:ident) => { Some(GroupKey::$whole) };
}

const fn column(content: ColumnContent, title: &'static str, meaning: &'static str) -> KeyColumn {
    KeyColumn { title, content, meaning }
}

const PID: KeyColumn = column(Number, "PID", "Thread of the allocations.");
const COMM: KeyColumn = column(Name, "COMM", "Command name of the thread: its last known one.");

keys! {
    Site "site" "Call-site of the allocation" KeyForm::Own, "-", [
        column(Name, "CALL SITE", "Return address of the allocating call: function, offset in it, and module in brackets."),
        column(Path, "SOURCE", "Line of the kernel's sources that asked for the memory; where debug information tells it.")
    ];
    Source "source" "Line of the kernel's sources that asked for the memory" KeyForm::Own, "(no source known)",
        [column(Name, "SOURCE LINE", "Function that asked for the memory, with file and line.")], Site;
    Stack "stack" "Call stack, from the call-site on" KeyForm::Own, "(no stack)",
        [column(Name, "STACK", "Call-site and its callers, the innermost first; (no stack) where none was recorded.")];
    Function "function" "Function that asked for the memory, whatever its place in the function" KeyForm::Own,
        "(no function known)", [column(Name, "FUNCTION", "Function that asked for the memory; inlined ones, too.")];
    File "file" "Source file of that line" KeyForm::Name, "(no file known)",
        [column(Name, "FILE", "Source file of that function.")];
    Folder "folder" "Folder of the source file" KeyForm::Name, "(no folder known)",
        [column(Name, "FOLDER", "Folder of the source file.")], Site;
    Area "area" "Area of the source file, with --areas" KeyForm::Name, "(no area known)",
        [column(Name, "AREA", "Area of the source file.")];
    Module "module" "Module of the call-site" KeyForm::Own, "(unknown)", [
        column(Name, "MODULE", "Module of the call-site; (kernel) for the kernel itself, (unknown) for code in no symbol and no module.")
    ], Site;
    Use "use" "Use of pages" KeyForm::Name, "-",
        [column(Name, "USE", "Use of pages, by rules over stack, flags and order; - for objects of slabs.")];
    Task "task" "Thread: its id and its command" KeyForm::Own, "-", [PID, COMM];
    Pid "pid" "Thread id" KeyForm::Id, "-", [PID], Task;
    Tgid "tgid" "Thread group of the thread, which only a text of page_owner has" KeyForm::Id, "-",
        [column(Number, "TGID", "Thread group of the thread; - where the input does not tell it.")];
    Comm "comm" "Command of the thread" KeyForm::Name, "-",
        [COMM], Task;
    Cgroup "cgroup" "Cgroup of the thread, where the recording tells it" KeyForm::Name, "(unknown)", [
        column(Name, "CGROUP", "Path of the cgroup of the thread; (unknown) where the recording does not tell it.")
    ];
    Accounted "accounted" "True for objects on the account of a memory cgroup" KeyForm::Flag, "-", [
        column(Word, "ACCOUNTED", "yes for objects on the account of a memory cgroup; - where the recording does not tell it.")
    ];
    Cache "cache" "Slab cache, or size class of kmalloc" KeyForm::Own, "(no name)", [
        column(Name, "CACHE", "Slab cache, or size class of kmalloc; (a or b): one of several of this object size; (no name) where nothing tells it.")
    ];
    Size "size" "Requested bytes" KeyForm::Bytes, "-", [column(Number, "SIZE", "Bytes asked for, of each object.")];
    Order "order" "Binary logarithm of the number of pages" KeyForm::Number, "-",
        [column(Number, "ORDER", "Binary logarithm of the number of pages; - for objects of slabs.")];
    Gfp "gfp" "Flags of the allocation, by the kernel's names" KeyForm::Own, "-",
        [column(Name, "GFP", "Flags of the allocation, by the kernel's names.")];
    Node "node" "NUMA node that the caller asked for" KeyForm::Id, "-",
        [column(Number, "NODE", "NUMA node asked for; -1 for any.")];
    Context "context" "Context: task, softirq, hardirq or nmi" KeyForm::Word(&["task", "softirq", "hardirq", "nmi"]), "-",
        [column(Word, "CONTEXT", "Context of the allocation: task, softirq, hardirq or nmi.")];
    Allocator "allocator" "Allocators that pages came through: cma, slab, vmalloc or others; of page_owner" KeyForm::Name, "-", [
        column(Name, "ALLOCATOR", "Allocators that pages came through: cma, slab, vmalloc or others; - where the input does not tell them.")
    ];
    Released "released" "True for memory that was given back since; of page_owner, with --released" KeyForm::Flag, "-", [
        column(Word, "RELEASED", "yes for memory that was given back since, no for memory that is held; - where the input does not tell it.")
    ];
}

impl GroupKey {
    /// Word of the contract.
    pub const fn name(self) -> &'static str {
        self.entry().word
    }

    /// True for a key whose value depends on the time of the event, beside the event's other fields: a thread changes its cgroup, and a
    /// module is initialised.
    pub(crate) fn is_of_time(self) -> bool {
        matches!(self, GroupKey::Cgroup | GroupKey::Module)
    }

    /// True for a key whose value depends on the names of the call-site or of the stack.
    pub(crate) fn is_of_call_site(self) -> bool {
        use GroupKey::{Area, File, Folder, Function, Module, Source, Use};
        matches!(self, Source | Function | File | Folder | Area | Module | Use)
    }
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for GroupKey {
    type Err = String;

    fn from_str(word: &str) -> Result<GroupKey, String> {
        let found = GroupKey::ALL.into_iter().find(|key| key.name() == word);
        found.ok_or_else(|| {
            // `join` takes LLVM 22 minutes to compile here: it compares the checked sums of all lengths with each other.
            let mut listed = String::new();
            for key in GroupKey::ALL {
                listed.push_str(if listed.is_empty() { "" } else { ", " });
                listed.push_str(key.name());
            }
            format!("{word}: no grouping; there are {listed}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_contract() {
        for key in GroupKey::ALL {
            assert_eq!(key.name().parse(), Ok(key));
        }
        assert!("folders".parse::<GroupKey>().unwrap_err().contains("folder, area, module, use, task"));
    }
}
