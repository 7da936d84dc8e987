//! `tree`: figures by folder, file, function and call-site, or by area.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::row::{Row, text_of};
use super::sums::PrintedStats;

/// Kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NodeKind {
    /// Folder of sources; the root, too.
    Folder,
    /// Source file.
    File,
    /// Function.
    Function,
    /// Call-site.
    Site,
    /// Module whose folder is not known.
    Module,
    /// Area of the kernel's MAINTAINERS.
    Area,
    /// Call-sites whose folder is not known.
    Unknown,
    /// Children that were folded.
    Others,
}

impl NodeKind {
    /// Word of documents.
    pub fn name(self) -> &'static str {
        match self {
            NodeKind::Folder => "folder",
            NodeKind::File => "file",
            NodeKind::Function => "function",
            NodeKind::Site => "site",
            NodeKind::Module => "module",
            NodeKind::Area => "area",
            NodeKind::Unknown => "unknown",
            NodeKind::Others => "others",
        }
    }
}

/// Node of the tree: its figures are the sums of its children's and its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeNode {
    /// Name below its parent: any bytes.
    pub name: Box<[u8]>,
    /// Kind of the node.
    pub kind: NodeKind,
    /// Sums over the call-sites below it; without a peak.
    pub stats: PrintedStats,
    /// Bytes of functions and objects in the kernel's image or tree; `None` where no such file was named.
    pub static_bytes: Option<u64>,
    /// Static bytes and live bytes.
    pub current: Option<u64>,
    /// Number of nodes folded into it; 0 but for [`NodeKind::Others`].
    pub folded: usize,
    /// Children, greatest first; a folded node is the last one.
    pub children: Vec<TreeNode>,
}

impl Serialize for TreeNode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let (text, hex) = text_of(&self.name);
        map.serialize_entry("name", &text)?;
        if let Some(hex) = hex {
            map.serialize_entry("name_hex", &hex)?;
        }
        map.serialize_entry("kind", self.kind.name())?;
        let mut result = Ok(());
        self.stats.members(&mut |member, cell| {
            if result.is_ok() && member != "peak_live_allocated" {
                result = map.serialize_entry(member, &cell);
            }
        });
        result?;
        map.serialize_entry("static", &self.static_bytes)?;
        map.serialize_entry("current", &self.current)?;
        if self.kind == NodeKind::Others {
            map.serialize_entry("folded", &self.folded)?;
        }
        map.serialize_entry("children", &self.children)?;
        map.end()
    }
}

/// Body of `tree`.
#[derive(Serialize)]
pub struct TreeBody {
    /// Word of the key that nodes are sized and sorted by.
    pub sort: &'static str,
    /// Folder or area at the root, as it was asked for; `None` for all.
    pub branch: Option<String>,
    /// Live bytes of kmalloc and cache whose caller is not known: a wrapper stands in its place.
    pub wrapped_live: u64,
    /// All of it.
    pub root: TreeNode,
}
