//! Lengths of functions.

use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, Signature, TraitItemFn};

/// Lines of a function, from `fn` to its closing brace.
const MOST: usize = 80;

/// Functions of `source` that are longer.
pub(crate) fn long_functions(source: &str) -> Vec<(usize, String)> {
    let mut lengths = Lengths::default();
    lengths.visit_file(&syn::parse_file(source).unwrap());
    lengths.long
}

#[derive(Default)]
struct Lengths {
    long: Vec<(usize, String)>,
}

impl Lengths {
    fn add(&mut self, signature: &Signature, body: &Block) {
        let from = signature.fn_token.span.start().line;
        let lines = body.brace_token.span.close().end().line + 1 - from;
        if lines > MOST {
            self.long.push((from, format!("`{}` has {lines} lines", signature.ident)));
        }
    }
}

impl<'a> Visit<'a> for Lengths {
    fn visit_item_fn(&mut self, function: &'a ItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'a ImplItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'a TraitItemFn) {
        if let Some(body) = &function.default {
            self.add(&function.sig, body);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[test]
fn lengths_count_from_fn_to_the_brace() {
    let of = |lines: usize| {
        format!("struct S;\n/// Text.\nimpl S {{\n    fn f() {{\n{}    }}\n}}\n", "let a = \"}\";\n".repeat(lines))
    };
    assert_eq!(long_functions(&of(78)), []);
    assert_eq!(long_functions(&of(79)), [(4, "`f` has 81 lines".to_owned())]);
}
