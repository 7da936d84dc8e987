//! Files of a crate that use each other in a circle.
//!
//! An edge leads from a file that names an item to the file that defines it, through re-exports. A module that declares and
//! re-exports its children does not use them. Code for tests counts in neither.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, UseTree, Visibility};

use super::sources::{Folder, Offender};

/// The files of a crate that stand in circles, each with the files of its circle that it uses.
pub(crate) fn files_in_circles(folder: &Folder) -> Vec<Offender> {
    offenders(folder, |edges, _| edges)
}

/// The folders of a crate's `src` that stand in circles. A file there is a folder of its own.
pub(crate) fn folders_in_circles(folder: &Folder) -> Vec<Offender> {
    offenders(folder, |edges, root| {
        let src = root.parent().unwrap();
        let room =
            |file: &Path| src.join(file.strip_prefix(src).unwrap().components().next().unwrap()).with_extension("");
        let mut rooms = Edges::new();
        for (from, to) in edges.iter().filter(|(from, _)| *from != root) {
            let to = to.iter().map(|file| room(file)).filter(|to| *to != room(from));
            rooms.entry(room(from)).or_default().extend(to);
        }
        // Whatever the root itself defines is used by files: the circles of files tell that.
        let known: BTreeSet<PathBuf> = rooms.keys().cloned().collect();
        rooms.values_mut().for_each(|to| to.retain(|room| known.contains(room)));
        rooms
    })
}

/// Circles among the nodes that `nodes` makes of the files of a crate, whose root is given, too.
fn offenders(folder: &Folder, nodes: impl Fn(Edges, &Path) -> Edges) -> Vec<Offender> {
    let roots = ["src/lib.rs", "src/main.rs"].map(|root| folder.path.join(root));
    let mut found = Vec::new();
    for root in roots.into_iter().filter(|root| root.is_file()) {
        let edges = nodes(Crate::read(&root).edges(), &root);
        for circle in circles(&edges) {
            let shown = |node: &Path| node.strip_prefix(&folder.path).unwrap_or(node).display().to_string();
            for node in &circle {
                let to: Vec<String> = edges[node].intersection(&circle).map(|node| shown(node)).collect();
                let what = format!("one of a circle of {}, uses {}", circle.len(), to.join(", "));
                found.push(Offender { file: format!("{}/{}", folder.name, shown(node)), line: 1, what });
            }
        }
    }
    found
}

type Edges = BTreeMap<PathBuf, BTreeSet<PathBuf>>;
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
#[derive(Default)]
struct Crate {
    modules: BTreeMap<Names, Module>,
}

impl Crate {
    fn read(root: &Path) -> Crate {
        let mut read = Crate::default();
        read.file(Vec::new(), root, root.parent().unwrap());
        read
    }

    /// Reads the module `path` from its file; `dir` has the files of its children.
    fn file(&mut self, path: Names, file: &Path, dir: &Path) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let items = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display())).items;
        self.module(path, file, dir, &items);
    }

    fn module(&mut self, path: Names, file: &Path, dir: &Path, items: &[Item]) {
        let mut module = Module { file: file.to_owned(), ..Module::default() };
        for item in items.iter().filter(|item| !attributes(item).iter().any(is_for_tests)) {
            if let Item::Mod(child) = item {
                let name = child.ident.to_string();
                module.children.insert(name.clone());
                let child_path = [path.clone(), vec![name.clone()]].concat();
                let named = child.attrs.iter().find_map(named_file).map(|name| file.with_file_name(name));
                match (&child.content, named) {
                    (Some((_, items)), _) => self.module(child_path, file, &dir.join(&name), items),
                    (None, Some(named)) => self.file(child_path, &named, named.parent().unwrap_or(dir)),
                    (None, None) => {
                        let files = [dir.join(format!("{name}.rs")), dir.join(&name).join("mod.rs")];
                        let there = files.into_iter().find(|file| file.is_file());
                        let there = there.unwrap_or_else(|| panic!("{}: no file of `mod {name}`", file.display()));
                        self.file(child_path, &there, &dir.join(&name));
                    }
                }
                continue;
            }
            module.items.extend(name(item));
            if let Item::Use(import) = item {
                module.import(import);
            }
            Paths { used: &mut module.used }.visit_item(item);
        }
        self.modules.insert(path, module);
    }

    /// Uses between files.
    fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (path, module) in &self.modules {
            let from = edges.entry(module.file.clone()).or_default();
            // A lone name of a child module is a variable: modules are no values.
            let is_variable = |used: &Names| used.len() == 1 && module.children.contains(&used[0]);
            let used = module.used.iter().filter(|used| !is_variable(used));
            let to = used.filter_map(|used| self.definition(path, used, 0));
            from.extend(to.filter(|file| **file != module.file).cloned());
        }
        edges
    }

    /// The file that defines what `names` stands for in module `scope`; `None` for another crate's items and local names.
    fn definition(&self, scope: &[String], names: &[String], depth: usize) -> Option<&PathBuf> {
        let module = self.modules.get(scope)?;
        let Some((first, rest)) = names.split_first() else { return Some(&module.file) };
        // Two globs may import each other's module.
        if depth > 16 {
            return None;
        }
        let parent = scope.split_last().map_or(scope, |(_, parent)| parent);
        match first.as_str() {
            "crate" => return self.definition(&[], rest, depth + 1),
            "self" => return self.definition(scope, rest, depth + 1),
            "super" => return self.definition(parent, rest, depth + 1),
            _ => {}
        }
        if module.children.contains(first) {
            let child = [scope, std::slice::from_ref(first)].concat();
            return self.definition(&child, rest, depth + 1);
        }
        if module.items.contains(first) {
            return Some(&module.file);
        }
        if let Some(import) = module.imports.get(first).filter(|import| *import != names) {
            return self.definition(scope, &[import, rest].concat(), depth + 1);
        }
        let with_glob = |glob: &Names| self.definition(scope, &[glob, names].concat(), depth + 1);
        module.globs.iter().find_map(with_glob)
    }
}

impl Module {
    fn import(&mut self, import: &ItemUse) {
        let mut leaves = Vec::new();
        flatten(&import.tree, &mut Vec::new(), &mut leaves);
        for (name, path) in leaves {
            match name {
                Some(name) => drop(self.imports.insert(name, path)),
                None => self.globs.push(path),
            }
        }
    }
}

/// Name and path of each import of a `use`; a glob has no name.
fn flatten(tree: &UseTree, before: &mut Names, out: &mut Vec<(Option<String>, Names)>) {
    let with = |last: String| [before.clone(), vec![last]].concat();
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, out);
            before.pop();
        }
        UseTree::Name(name) if name.ident == "self" => out.push((before.last().cloned(), before.clone())),
        UseTree::Name(name) => out.push((Some(name.ident.to_string()), with(name.ident.to_string()))),
        UseTree::Rename(name) => out.push((Some(name.rename.to_string()), with(name.ident.to_string()))),
        UseTree::Glob(_) => out.push((None, before.clone())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, out)),
    }
}

/// Collects the paths that code names.
struct Paths<'a> {
    used: &'a mut Vec<Names>,
}

impl<'a> Visit<'a> for Paths<'_> {
    fn visit_path(&mut self, path: &'a syn::Path) {
        self.used.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, import: &'a ItemUse) {
        // A re-export is an edge only of code that uses the name.
        if matches!(import.vis, Visibility::Inherited) {
            let mut leaves = Vec::new();
            flatten(&import.tree, &mut Vec::new(), &mut leaves);
            self.used.extend(leaves.into_iter().map(|(_, path)| path));
        }
    }

    // `pub(crate)` names no item.
    fn visit_visibility(&mut self, _: &'a Visibility) {}

    fn visit_item_mod(&mut self, module: &'a ItemMod) {
        if !module.attrs.iter().any(is_for_tests) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_macro(&mut self, called: &'a Macro) {
        visit::visit_path(self, &called.path);
        paths_of_tokens(called.tokens.clone(), self.used);
    }
}

/// Paths in the arguments of a macro: names with `::` between them, and single names of types.
fn paths_of_tokens(tokens: TokenStream, used: &mut Vec<Names>) {
    let mut path = Names::new();
    let mut colons = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) if colons == 2 => path.push(ident.to_string()),
            TokenTree::Ident(ident) => finish(&mut path, vec![ident.to_string()], used),
            TokenTree::Punct(punct) if punct.as_char() == ':' => {
                colons += 1;
                continue;
            }
            TokenTree::Group(group) => {
                finish(&mut path, Names::new(), used);
                paths_of_tokens(group.stream(), used);
            }
            _ => finish(&mut path, Names::new(), used),
        }
        colons = 0;
    }
    finish(&mut path, Names::new(), used);
}

fn finish(path: &mut Names, next: Names, used: &mut Vec<Names>) {
    let path = std::mem::replace(path, next);
    // A lone small name is a variable, mostly.
    if path.len() > 1 || path.first().is_some_and(|name| name.starts_with(char::is_uppercase)) {
        used.push(path);
    }
}

/// File that `#[path = "…"]` names for a module.
fn named_file(attribute: &Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    match &pair.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) if pair.path.is_ident("path") => {
            Some(text.value())
        }
        _ => None,
    }
}

fn is_for_tests(attribute: &Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let condition = list.tokens.to_string();
    list.path.is_ident("cfg") && condition.contains("test") && !condition.contains("not")
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The name that an item defines.
fn name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// Sets of several files of which each reaches each other one.
fn circles(edges: &Edges) -> BTreeSet<BTreeSet<PathBuf>> {
    let reached: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> = edges.keys().map(|file| (file, reach(file, edges))).collect();
    let circle = |file: &PathBuf| -> BTreeSet<PathBuf> {
        reached[file].iter().filter(|other| reached[**other].contains(file)).map(|other| (*other).clone()).collect()
    };
    edges.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}

/// The files that `file` uses, and that these use.
fn reach<'a>(file: &PathBuf, edges: &'a Edges) -> BTreeSet<&'a PathBuf> {
    let mut reached = BTreeSet::new();
    let mut to_visit: Vec<&PathBuf> = edges[file].iter().collect();
    while let Some(next) = to_visit.pop() {
        if reached.insert(next) {
            to_visit.extend(&edges[next]);
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Circles of a crate with these files, the root first.
    fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let shown = |file: &PathBuf| file.strip_prefix(dir.path()).unwrap().display().to_string();
        let circles = circles(&Crate::read(&dir.path().join(files[0].0)).edges());
        circles.iter().map(|circle| circle.iter().map(shown).collect()).collect()
    }

    #[test]
    fn a_parent_that_uses_its_child_and_is_used_by_it_is_a_circle() {
        let child = ("child.rs", "use super::S; pub fn f(_: S) {}");
        assert_eq!(circles_of(&[("lib.rs", "mod child; pub struct S;"), child]), [[""; 0]; 0]);
        assert_eq!(circles_of(&[("lib.rs", "mod child; pub use child::f; pub struct S;"), child]), [[""; 0]; 0]);
        let circle = [["child.rs", "lib.rs"]];
        assert_eq!(circles_of(&[("lib.rs", "mod child; pub struct S; fn g() { child::f(S) }"), child]), circle);
        assert_eq!(circles_of(&[("lib.rs", "mod child; use child::f; pub struct S;"), child]), circle);
        assert_eq!(
            circles_of(&[("lib.rs", "mod child; pub use child::f; pub struct S; fn g() { f(S) }"), child]),
            circle
        );
        let in_macro = "mod child; pub struct S; fn g() { println!(\"{:?}\", child::f(S)) }";
        assert_eq!(circles_of(&[("lib.rs", in_macro), child]), circle);
        let variable = "mod child; pub struct S; fn g() -> usize { let child = 1; child }";
        assert_eq!(circles_of(&[("lib.rs", variable), child]), [[""; 0]; 0]);
        let in_tests = "mod child; pub struct S; #[cfg(test)] mod tests { fn g() { super::child::f(super::S) } }";
        assert_eq!(circles_of(&[("lib.rs", in_tests), child]), [[""; 0]; 0]);
    }

    #[test]
    fn names_lead_through_re_exports_to_the_file_that_defines_them() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod inner; mod other; pub use inner::T; pub use self::other::*;"),
            ("a/inner.rs", "use crate::b::U; pub struct T(U);"),
            ("a/other.rs", "pub struct V;"),
            ("b.rs", "use crate::a::{T, V}; pub struct U(V); fn f() -> Option<T> { None }"),
        ];
        assert_eq!(circles_of(&files), [["a/inner.rs", "b.rs"]]);
    }
}
