//! Uses of pages, by rules over the functions of the stack, the allocation flags and the order.

use std::fmt;

use kmemtrace_abi::kernel::gfp::GfpNames;

use crate::names::wrappers::plain_name;
use kmemtrace_abi::text::glob::Glob;

/// Use where no rule holds.
const OTHER: &str = "other";

/// Longest part of a line that a message quotes, in characters.
const MAX_QUOTED: usize = 100;

/// Rules that come with the library.
const BUILT_IN: &str = include_str!("uses.txt");

/// Rules for the use of pages; the first that holds counts.
#[derive(Clone, Debug)]
pub struct Uses {
    rules: Vec<Rule>,
    is_built_in: bool,
}

#[derive(Clone, Debug)]
struct Rule {
    name: Box<str>,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug)]
enum Condition {
    /// A function of the stack has one of these names.
    Frame(Vec<Glob>),
    /// All of these flags are set.
    Gfp(Vec<Box<str>>),
    /// Least order.
    Order(u8),
    /// The trace has no stack of the allocation.
    NoStack,
}

/// Line of rules that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsesError {
    /// Line, from 1.
    pub line: usize,
    /// Reason.
    pub why: String,
}

impl fmt::Display for UsesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for UsesError {}

impl Default for Uses {
    fn default() -> Uses {
        // A test reads the built-in rules.
        let rules = Uses::parse(BUILT_IN).map(|uses| uses.rules).unwrap_or_default();
        Uses { rules, is_built_in: true }
    }
}

impl Uses {
    /// Rules from a text in the form of the built-in ones.
    ///
    /// # Errors
    /// [`UsesError`] for the first line that is no rule.
    pub fn parse(text: &str) -> Result<Uses, UsesError> {
        let lines = text.lines().map(str::trim).zip(1..).filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
        let rule = |(text, line)| Rule::parse(text).map_err(|why| UsesError { line, why });
        Ok(Uses { rules: lines.map(rule).collect::<Result<_, _>>()?, is_built_in: false })
    }

    /// True where the rules are not the built-in ones.
    pub(crate) fn is_other(&self) -> bool {
        !self.is_built_in
    }

    /// Use of pages by the functions of their stack, none for no stack, their flags and their order.
    pub(crate) fn of_pages<'f>(
        &self,
        functions: impl Iterator<Item = &'f [u8]>,
        gfp: Option<(u64, &GfpNames)>,
        order: Option<u8>,
    ) -> &str {
        let functions: Vec<&[u8]> = functions.map(plain_name).collect();
        let holds = |condition: &Condition| match condition {
            Condition::Frame(patterns) => {
                functions.iter().any(|function| patterns.iter().any(|pattern| pattern.matches(function)))
            }
            Condition::Gfp(flags) => gfp.is_some_and(|(gfp, names)| {
                flags.iter().all(|flag| names.flags(flag).is_some_and(|mask| gfp & mask == mask))
            }),
            Condition::Order(least) => order.is_some_and(|order| order >= *least),
            Condition::NoStack => functions.is_empty(),
        };
        self.rules.iter().find(|rule| rule.conditions.iter().all(holds)).map_or(OTHER, |rule| &rule.name)
    }
}

impl Rule {
    fn parse(text: &str) -> Result<Rule, String> {
        let form = "a rule is a use, a colon and conditions: frame NAME, gfp FLAG, order N, no-stack";
        let (name, conditions) = text.split_once(':').ok_or(form)?;
        let conditions = conditions.split(';').map(Condition::parse).collect::<Result<_, _>>()?;
        let name = name.trim();
        if name.is_empty() { Err(form.to_owned()) } else { Ok(Rule { name: name.into(), conditions }) }
    }
}

impl Condition {
    fn parse(text: &str) -> Result<Condition, String> {
        let mut words = text.split_whitespace();
        let (word, rest) = (words.next().unwrap_or_default(), words);
        let rest: Vec<&str> = rest.collect();
        match (word, &rest[..]) {
            ("frame", [_, ..]) => Ok(Condition::Frame(rest.into_iter().map(Glob::new).collect())),
            ("gfp", [_, ..]) => Ok(Condition::Gfp(rest.into_iter().map(Into::into).collect())),
            ("order", [order]) => {
                order.parse().map(Condition::Order).map_err(|_| format!("{} is no order", begin(order)))
            }
            ("no-stack", []) => Ok(Condition::NoStack),
            _ => Err(format!("'{}' is not a condition: frame NAME, gfp FLAG, order N, no-stack", begin(text.trim()))),
        }
    }
}

/// Begin of a text for a message: the file may be anything, and its line megabytes long.
fn begin(text: &str) -> String {
    text.chars().take(MAX_QUOTED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'u>(uses: &'u Uses, functions: &[&str], order: Option<u8>) -> &'u str {
        uses.of_pages(functions.iter().map(|name| name.as_bytes()), None, order)
    }

    #[test]
    fn the_built_in_rules_tell_uses() {
        let uses = Uses::parse(BUILT_IN).unwrap();
        for (functions, want) in [
            (&["do_anonymous_page", "__handle_mm_fault", "handle_mm_fault"][..], "user"),
            // A slab that a fault on a user's page needs is a slab.
            (&["allocate_slab", "___slab_alloc", "handle_mm_fault"], "slab"),
            (&["pte_alloc_one_noprof", "__pte_alloc", "do_anonymous_page"], "page tables"),
            (&["__vmalloc_node_range_noprof", "copy_process", "dup_task_struct.isra.0"], "kernel stacks"),
            (&["__vmalloc_node_range_noprof", "bpf_prog_alloc"], "vmalloc"),
            (&["__vmalloc_node_range_noprof", "module_alloc", "load_module"], "modules"),
            (&["shmem_alloc_folio", "shmem_get_folio_gfp"], "cache"),
            (&["pcpu_alloc_pages.isra.0"], "percpu"),
            (&["skb_page_frag_refill", "tcp_sendmsg_locked"], "network"),
            (&["my_driver_probe"], "other"),
            (&[], "other"),
        ] {
            assert_eq!(of(&uses, functions, Some(0)), want, "{functions:?}");
        }
    }

    #[test]
    fn flags_and_orders_are_conditions() {
        let print = r#"print fmt: "%s", __print_flags(REC->gfp_flags, "|", {0x6UL, "GFP_HIGHUSER_MOVABLE"})"#;
        let field = "\tfield:unsigned long gfp_flags;\toffset:40;\tsize:8;\tsigned:0;";
        let names = GfpNames::of_format(&format!("name: mm_page_alloc\nID: 5\n{field}\n{print}\n"));
        let uses = Uses::parse("big: order 9\nmovable: no-stack; gfp GFP_HIGHUSER_MOVABLE\n").unwrap();
        assert_eq!(
            (of(&uses, &["a"], Some(9)), of(&uses, &["a"], Some(8)), of(&uses, &[], None)),
            ("big", OTHER, OTHER)
        );
        let names = names.unwrap();
        let flags = names.flags("GFP_HIGHUSER_MOVABLE").unwrap();
        let by_flags = |flags| uses.of_pages(std::iter::empty(), Some((flags, &names)), Some(0));
        assert_eq!((by_flags(flags), by_flags(0)), ("movable", OTHER));
    }

    #[test]
    fn a_line_that_is_no_rule_is_told() {
        for (text, line) in [("user", 1), ("# x\n\nuser: frame", 3), ("a: frame b\nc: order x", 2), (": frame a", 1)] {
            assert_eq!(Uses::parse(text).unwrap_err().line, line, "{text}");
        }
        for long in [format!("a: frames {}", "b".repeat(9000)), format!("a: order {}", "é".repeat(9000))] {
            assert!(Uses::parse(&long).unwrap_err().to_string().len() < 400);
        }
    }
}
