//! Files of a crate that use each other in a circle.
//!
//! An edge leads from a file that names an item to the file that defines it, through re-exports. A module that declares and
//! re-exports its children does not use them. Code for tests counts in neither.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

pub(crate) type Edges = BTreeMap<PathBuf, BTreeSet<PathBuf>>;
/// Names of a path: `crate::a::B` without `crate`.
type Names = Vec<String>;

#[derive(Default)]
struct Module {
    file: PathBuf,
    /// Names of the items that are defined here, child modules left out.
    items: BTreeSet<String>,
    children: BTreeSet<String>,
    /// Names in scope by `use`, and paths as they are written.
    imports: BTreeMap<String, Names>,
    globs: Vec<Names>,
    /// Paths that the code names, and those of imports that are no re-exports.
    used: Vec<Names>,
}

/// The modules of a crate by their paths.
type Modules = BTreeMap<Names, Module>;

/// Uses between the files of the crate with this root.
pub(crate) fn files(root: &Path) -> Edges {
    let mut modules = Modules::new();
    read(&mut modules, Vec::new(), root, root.parent().unwrap());
    let mut edges = Edges::new();
    for (path, module) in &modules {
        let from = edges.entry(module.file.clone()).or_default();
        // A lone name of a child module is a variable: modules are no values.
        let is_variable = |used: &Names| used.len() == 1 && module.children.contains(&used[0]);
        let used = module.used.iter().filter(|used| !is_variable(used));
        let to = used.filter_map(|used| definition(&modules, path, used, 0));
        from.extend(to.filter(|file| **file != module.file).cloned());
    }
    edges
}

/// Uses between the folders of `src`. A file there is a folder of its own.
pub(crate) fn folders(root: &Path) -> Edges {
    let src = root.parent().unwrap();
    let folder =
        |file: &Path| src.join(file.strip_prefix(src).unwrap().components().next().unwrap()).with_extension("");
    let mut folders = Edges::new();
    // Whatever the root itself defines is used by files: the circles of files show that.
    for (from, to) in files(root).iter().filter(|(from, _)| *from != root) {
        let to = to.iter().filter(|to| *to != root).map(|to| folder(to)).filter(|to| *to != folder(from));
        folders.entry(folder(from)).or_default().extend(to);
    }
    folders
}

/// Sets of several nodes of which each reaches each other one.
pub(crate) fn circles(edges: &Edges) -> BTreeSet<BTreeSet<PathBuf>> {
    let reached: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> = edges.keys().map(|node| (node, reach(node, edges))).collect();
    let circle = |node: &PathBuf| -> BTreeSet<PathBuf> {
        reached[node].iter().filter(|other| reached[**other].contains(node)).map(|other| (*other).clone()).collect()
    };
    edges.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}

fn reach<'a>(node: &PathBuf, edges: &'a Edges) -> BTreeSet<&'a PathBuf> {
    let mut reached = BTreeSet::new();
    let mut to_visit: Vec<&PathBuf> = edges[node].iter().collect();
    while let Some(next) = to_visit.pop() {
        if reached.insert(next) {
            to_visit.extend(&edges[next]);
        }
    }
    reached
}

/// Reads the module `path` from its file; `dir` has the files of its children.
fn read(modules: &mut Modules, path: Names, file: &Path, dir: &Path) {
    let text = fs::read_to_string(file).unwrap();
    let tokens = text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    module(modules, path, file, dir, tokens);
}

fn module(modules: &mut Modules, path: Names, file: &Path, dir: &Path, tokens: TokenStream) {
    let mut this = Module { file: file.to_owned(), ..Module::default() };
    let tokens = without_tests(tokens);
    for (at, token) in tokens.iter().enumerate() {
        let TokenTree::Ident(word) = token else { continue };
        let name = tokens[at + 1..].iter().find(|token| !is(Some(token), '!')).map(ToString::to_string);
        let Some(name) = name.filter(|name| name.starts_with(|c: char| c.is_alphabetic() || c == '_')) else {
            continue;
        };
        match word.to_string().as_str() {
            "mod" => {
                let child_path = [&path[..], std::slice::from_ref(&name)].concat();
                let files = [dir.join(format!("{name}.rs")), dir.join(&name).join("mod.rs")];
                if let TokenTree::Group(items) = &tokens[at + 2] {
                    module(modules, child_path, file, &dir.join(&name), items.stream());
                } else if let Some(file) = files.iter().find(|file| file.is_file()) {
                    // The file of another crate is at none of both places.
                    read(modules, child_path, file, &dir.join(&name));
                }
                this.children.insert(name);
            }
            "use" => {
                for (name, path) in imports(of_use(&tokens[at + 1..]), &[]) {
                    match name {
                        Some(name) => drop(this.imports.insert(name, path)),
                        None => this.globs.push(path),
                    }
                }
            }
            "fn" | "struct" | "enum" | "const" | "static" | "trait" | "type" | "macro_rules" => {
                _ = this.items.insert(name)
            }
            _ => {}
        }
    }
    paths(&tokens, &mut this.used);
    modules.insert(path, this);
}

/// The file that defines what `names` stands for in module `scope`; `None` for another crate's items and local names.
fn definition<'m>(modules: &'m Modules, scope: &[String], names: &[String], depth: usize) -> Option<&'m PathBuf> {
    let module = modules.get(scope)?;
    let Some((first, rest)) = names.split_first() else { return Some(&module.file) };
    // Two globs may import each other's module.
    if depth > 16 {
        return None;
    }
    let inside = |scope: &[String], names: &[String]| definition(modules, scope, names, depth + 1);
    match first.as_str() {
        "crate" => inside(&[], rest),
        "self" => inside(scope, rest),
        "super" => inside(scope.split_last().map_or(scope, |(_, parent)| parent), rest),
        _ if module.children.contains(first) => inside(&[scope, std::slice::from_ref(first)].concat(), rest),
        _ if module.items.contains(first) => Some(&module.file),
        _ => match module.imports.get(first).filter(|import| *import != names) {
            Some(import) => inside(scope, &[import, rest].concat()),
            None => module.globs.iter().find_map(|glob| inside(scope, &[glob, names].concat())),
        },
    }
}

fn is(token: Option<&TokenTree>, sign: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
}

/// Tokens without the items that are for tests alone.
fn without_tests(tokens: TokenStream) -> Vec<TokenTree> {
    let is_for_tests = |token: &TokenTree| {
        let TokenTree::Group(group) = token else { return false };
        let condition = if group.delimiter() == Delimiter::Bracket { group.to_string() } else { String::new() };
        condition.starts_with("[cfg") && condition.contains("test") && !condition.contains("not")
    };
    let ends_item = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        token => is(Some(token), ';'),
    };
    let (mut kept, mut tokens) = (Vec::new(), tokens.into_iter());
    while let Some(token) = tokens.next() {
        if is_for_tests(&token) {
            tokens.find(ends_item);
        } else {
            kept.push(token);
        }
    }
    kept
}

/// Tokens of a `use` up to its end.
fn of_use(tokens: &[TokenTree]) -> &[TokenTree] {
    tokens.split(|token| is(Some(token), ';')).next().unwrap()
}

/// Name and path of each import; a glob has no name.
fn imports(tokens: &[TokenTree], before: &[String]) -> Vec<(Option<String>, Names)> {
    let mut found = Vec::new();
    for tree in tokens.split(|token| is(Some(token), ',')) {
        let mut path = before.to_vec();
        let mut words = tree.iter().filter(|token| !is(Some(token), ':'));
        let name = loop {
            match words.next() {
                Some(TokenTree::Group(group)) => {
                    found.extend(imports(&group.stream().into_iter().collect::<Vec<_>>(), &path));
                    break None;
                }
                Some(TokenTree::Ident(word)) if word == "as" => break words.next().map(|name| Some(name.to_string())),
                Some(TokenTree::Ident(word)) if word == "self" && !path.is_empty() => {}
                Some(TokenTree::Ident(word)) => path.push(word.to_string()),
                Some(_) => break Some(None),
                None => break path.last().filter(|_| !tree.is_empty()).map(|name| Some(name.clone())),
            }
        };
        found.extend(name.map(|name| (name, path)));
    }
    found
}

/// Paths that code names: names with `::` between them, and single names of types or of what is called.
fn paths(tokens: &[TokenTree], used: &mut Vec<Names>) {
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let before = at.checked_sub(1).map(|before| &tokens[before]);
        let is_word = |word: &str| matches!(before, Some(TokenTree::Ident(before)) if before == word);
        match token {
            TokenTree::Group(group) => paths(&without_tests(group.stream()), used),
            TokenTree::Ident(word) if word == "use" => {
                let tree = of_use(&tokens[at + 1..]);
                // A re-export is an edge only of code that uses the name.
                let is_public = is_word("pub") || matches!(before, Some(TokenTree::Group(_)) if is_pub(tokens, at));
                used.extend(imports(tree, &[]).into_iter().map(|(_, path)| path).filter(|_| !is_public));
                at += tree.len();
            }
            TokenTree::Ident(word) => {
                let mut path = vec![word.to_string()];
                while let (true, true, Some(TokenTree::Ident(next))) =
                    (is(tokens.get(at + 1), ':'), is(tokens.get(at + 2), ':'), tokens.get(at + 3))
                {
                    path.push(next.to_string());
                    at += 3;
                }
                let arguments = tokens.get(at + 1 + usize::from(is(tokens.get(at + 1), '!')));
                let is_called = matches!(arguments, Some(TokenTree::Group(_))) && !is(before, '.') && !is_word("fn");
                if path.len() > 1 || is_called || path[0].starts_with(char::is_uppercase) {
                    used.push(path);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// True if `pub(…)` stands before the token.
fn is_pub(tokens: &[TokenTree], at: usize) -> bool {
    matches!(at.checked_sub(2).map(|at| &tokens[at]), Some(TokenTree::Ident(word)) if word == "pub")
}

#[test]
fn a_circle_is_of_files_that_need_each_other() {
    let (child, circle) = ("use super::S; pub fn f(_: S) {}", vec![vec!["child.rs", "lib.rs"]]);
    let cases: [(&[(&str, &str)], _); 9] = [
        (&[("lib.rs", "mod child; pub struct S;"), ("child.rs", child)], vec![]),
        (&[("lib.rs", "mod child; pub use child::f; pub struct S;"), ("child.rs", child)], vec![]),
        (&[("lib.rs", "mod child; pub struct S; fn g() { child::f(S) }"), ("child.rs", child)], circle.clone()),
        (&[("lib.rs", "mod child; use child::f; pub struct S;"), ("child.rs", child)], circle.clone()),
        (
            &[("lib.rs", "mod child; pub use child::f; pub struct S; fn g() { f(S) }"), ("child.rs", child)],
            circle.clone(),
        ),
        (&[("lib.rs", "mod child; struct S; fn g() { p!(\"{:?}\", child::f(S)) }"), ("child.rs", child)], circle),
        (&[("lib.rs", "mod child; struct S; fn g() -> u8 { let child = 1; child }"), ("child.rs", child)], vec![]),
        (&[("lib.rs", "mod child; struct S; #[cfg(test)] fn g() { child::f(S) }"), ("child.rs", child)], vec![]),
        (
            &[
                ("lib.rs", "mod a; mod b;"),
                ("a/mod.rs", "mod inner; mod other; pub use inner::T; pub use self::other::*;"),
                ("a/inner.rs", "use crate::b::U; pub struct T(U);"),
                ("a/other.rs", "pub struct V;"),
                ("b.rs", "use crate::a::{T, V}; pub struct U(V); fn f() -> Option<T> { None }"),
            ],
            vec![vec!["a/inner.rs", "b.rs"]],
        ),
    ];
    for (sources, expected) in cases {
        let dir = kmemtrace_tests::recording::Directory::new(&[]);
        sources.iter().for_each(|(name, text)| dir.write(name, text.as_bytes()));
        let expected = expected.iter().map(|circle| circle.iter().map(|name| dir.file(name)).collect()).collect();
        assert_eq!(circles(&files(&dir.file("lib.rs"))), expected, "{sources:?}");
    }
}
