//! Functions and modules of made-up machines, and their lines in `/proc/kallsyms`.

use super::Shape;

/// Function of the kernel or of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Address of the first byte.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// Name.
    pub name: String,
    /// Module; `None` for the kernel itself.
    pub module: Option<String>,
}

/// Functions of a machine; a trace without symbols has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// All functions, ascending; none overlaps another.
    pub functions: Vec<Function>,
    /// Address of `_text`, if the trace has it: it tells how far the kernel was moved at boot.
    pub text: Option<u64>,
}

/// Modules of the functions.
pub const MODULES: [&str; 2] = ["ext4", "xfs"];
/// Number of call-sites.
pub const SITES: u64 = 12;

/// Functions by the numbers of their first and last call-site. Sites 0 and 6 have none; two modules share a name.
const FUNCTIONS: [(u64, u64, &str, Option<&str>); 9] = [
    (1, 1, "alloc_inode", None),
    (2, 2, "ep_insert", None),
    (3, 4, "sock_alloc", None),
    (5, 5, "seq_open", None),
    (7, 7, "d_alloc", None),
    (8, 8, "probe", Some(MODULES[0])),
    (9, 9, "ext4_alloc", Some(MODULES[0])),
    (10, 10, "probe", Some(MODULES[1])),
    (11, 11, "xfs_alloc", Some(MODULES[1])),
];

/// Call-site of a number under [`SITES`], on a kernel that was moved by `slide` bytes.
pub fn call_site(shape: &Shape, slide: u64, number: u64) -> u64 {
    let base = if shape.target.word_bytes == 8 { 0xffff_ffff_8110_0000 } else { 0xc010_0000 };
    base + slide + 0x1005 * number
}

impl Symbols {
    /// Functions of the generator's call-sites.
    pub fn of_call_sites(shape: &Shape, slide: u64) -> Symbols {
        let function = |&(first, last, name, module): &(u64, u64, &str, Option<&str>)| Function {
            start: call_site(shape, slide, first) - 0x15,
            end: call_site(shape, slide, last) + 0x20,
            name: name.to_owned(),
            module: module.map(str::to_owned),
        };
        let text = call_site(shape, slide, 0) - 0x10_0000;
        Symbols { functions: FUNCTIONS.iter().map(function).collect(), text: Some(text) }
    }

    /// Text of `/proc/kallsyms`. A symbol of data ends each function.
    pub fn kallsyms(&self) -> String {
        let mut lines = String::new();
        if let Some(text) = self.text {
            lines.push_str(&format!("{text:016x} T _text\n{:016x} d text_end\n", text + 0x100));
        }
        for Function { start, end, name, module } in &self.functions {
            let module = module.as_ref().map_or(String::new(), |module| format!("\t[{module}]"));
            lines.push_str(&format!("{start:016x} t {name}{module}\n{end:016x} d {name}_end{module}\n"));
        }
        lines
    }
}
