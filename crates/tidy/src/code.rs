//! The code as the compiler sees it: functions and their lengths, methods of types, and who names whom.
//!
//! Purpose: rules that text alone cannot check. A file is parsed, its tests are left out, and paths are
//! resolved as far as the modules of its own crate go: macros are not expanded, and a re-export leads to the
//! file that re-exports.

use crate::Source;
use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;
use std::collections::{BTreeMap, BTreeSet};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A Rust file of a crate's `src`, without its tests.
pub struct Parsed {
    /// Path from the repository's root.
    pub path: String,
    /// The crate's folder.
    pub folder: String,
    /// Where it is in the crate's tree of modules.
    module: Vec<String>,
    /// Its items, those that only tests have left out.
    items: Vec<syn::Item>,
    methods: BTreeMap<String, Vec<String>>,
    calls: Calls,
    /// Lines, those of tests left out.
    pub lines: usize,
}

/// Sentences among the literals of some code: of expressions, of what macros are given, and of attributes
/// that are no documentation.
#[derive(Default)]
struct Sentences(BTreeSet<String>);

impl Sentences {
    /// Notes a literal of three words or more.
    fn note(&mut self, text: &str) {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let words = text.split(' ').filter(|word| word.chars().any(char::is_alphabetic));
        if words.count() >= 3 {
            self.0.insert(text);
        }
    }

    fn note_tokens(&mut self, tokens: proc_macro2::TokenStream) {
        for token in tokens {
            match token {
                proc_macro2::TokenTree::Group(group) => self.note_tokens(group.stream()),
                proc_macro2::TokenTree::Literal(literal) => {
                    if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                        self.note(&text.value());
                    }
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Sentences {
    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        self.note(&text.value());
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.note_tokens(called.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            self.note_tokens(list.tokens.clone());
        }
    }
}

/// A function with a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// The type it is a method of, where it is one, and its name.
    pub name: String,
    /// Lines from its signature to its last brace.
    pub lines: usize,
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        let of_test = |list: &syn::MetaList| list.path.is_ident("cfg") && list.tokens.to_string() == "test";
        a.path().is_ident("test") || a.meta.require_list().is_ok_and(of_test)
    })
}

fn lines_of(spanned: &impl Spanned) -> usize {
    let span = spanned.span();
    span.end().line - span.start().line + 1
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Fn(i) => &i.attrs,
        syn::Item::Mod(i) => &i.attrs,
        syn::Item::Impl(i) => &i.attrs,
        syn::Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// `crates/x/src/a/b.rs` is `[a, b]` in `crates/x`; `None` where it is no file of a crate's library or program.
fn place(path: &str) -> Option<(String, Vec<String>)> {
    let (folder, inside) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let mut module: Vec<String> = inside.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
        module.pop();
    }
    Some((format!("crates/{folder}"), module))
}

impl Parsed {
    /// Parses a file; `None` where it is no part of a crate's `src`, or does not parse.
    pub fn new(source: &Source) -> Option<Parsed> {
        let (folder, module) = place(&source.path)?;
        let file = syn::parse_file(&source.text).ok()?;
        let whole = is_test(&file.attrs);
        let (tests, items): (Vec<_>, Vec<_>) =
            file.items.into_iter().partition(|i| whole || is_test(attributes(i)));
        let lines = source.text.lines().count() - tests.iter().map(lines_of).sum::<usize>();
        let (methods, mut calls) = (methods_of(&items), Calls::default());
        items.iter().for_each(|item| calls.visit_item(item));
        Some(Parsed { path: source.path.clone(), folder, module, items, methods, calls, lines })
    }

    /// Its items, those that only tests have left out.
    pub(crate) fn items(&self) -> &[syn::Item] {
        &self.items
    }

    /// Methods that it calls on `self`, or on a variable or field of one of these names.
    pub fn calls_on(&self, names: &[&str]) -> BTreeSet<String> {
        let mut calls = CallsOn { names, found: BTreeSet::new() };
        self.items.iter().for_each(|item| calls.visit_item(item));
        calls.found
    }

    /// What it may say to people: its string literals of three words or more, documentation left out.
    pub fn sentences(&self) -> BTreeSet<String> {
        let mut found = Sentences::default();
        self.items.iter().for_each(|item| found.visit_item(item));
        found.0
    }

    /// Its functions and methods.
    pub fn functions(&self) -> Vec<Function> {
        let mut found = Functions::default();
        self.items.iter().for_each(|item| found.visit_item(item));
        found.functions
    }

    /// The methods of each type that an `impl` without a trait gives it.
    pub fn methods(&self) -> &BTreeMap<String, Vec<String>> {
        &self.methods
    }

    /// The modules of its own crate that it names, itself left out.
    fn names(&self, modules: &BTreeSet<Vec<String>>) -> BTreeSet<Vec<String>> {
        let mut paths = Paths::default();
        self.items.iter().for_each(|item| paths.visit_item(item));
        let resolved = paths.0.iter().filter_map(|path| self.resolve(path, modules));
        resolved.filter(|module| *module != self.module).collect()
    }

    /// The module that holds what a path names.
    fn resolve(&self, path: &[String], modules: &BTreeSet<Vec<String>>) -> Option<Vec<String>> {
        let (mut at, rest) = match path.first()?.as_str() {
            "crate" => (Vec::new(), &path[1..]),
            "self" => (self.module.clone(), &path[1..]),
            "super" => {
                let ups = path.iter().take_while(|s| *s == "super").count();
                (self.module[..self.module.len().checked_sub(ups)?].to_vec(), &path[ups..])
            }
            first => {
                let child: Vec<String> = self.module.iter().cloned().chain([first.to_owned()]).collect();
                (modules.contains(&child).then_some(child)?, &path[1..])
            }
        };
        for segment in rest {
            at.push(segment.clone());
            if !modules.contains(&at) {
                at.pop();
                break;
            }
        }
        Some(at)
    }
}

fn methods_of(items: &[syn::Item]) -> BTreeMap<String, Vec<String>> {
    let mut methods: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for item in items {
        if let syn::Item::Impl(block) = item
            && block.trait_.is_none()
        {
            let named = block.items.iter().filter_map(|item| match item {
                syn::ImplItem::Fn(f) => Some(f.sig.ident.to_string()),
                _ => None,
            });
            methods.entry(type_name(&block.self_ty)).or_default().extend(named);
        }
    }
    methods
}

fn type_name(ty: &syn::Type) -> String {
    match ty {
        syn::Type::Path(path) => path.path.segments.last().map_or(String::new(), |s| s.ident.to_string()),
        syn::Type::Reference(reference) => type_name(&reference.elem),
        _ => String::new(),
    }
}

#[derive(Default)]
struct Functions {
    of: String,
    functions: Vec<Function>,
}

impl Functions {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let lines = block.span().end().line - signature.span().start().line + 1;
        let of = if self.of.is_empty() { String::new() } else { format!("{}::", self.of) };
        self.functions.push(Function { name: format!("{of}{}", signature.ident), lines });
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        let before = std::mem::replace(&mut self.of, type_name(&block.self_ty));
        visit::visit_item_impl(self, block);
        self.of = before;
    }
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }
    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            self.add(&function.sig, &function.block);
            visit::visit_impl_item_fn(self, function);
        }
    }
    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.add(&function.sig, block);
        }
    }
}

/// Every path that is written out, in `use` and elsewhere.
#[derive(Default)]
struct Paths(Vec<Vec<String>>);

impl Paths {
    fn tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |ident: &syn::Ident| before.iter().cloned().chain([ident.to_string()]).collect::<Vec<_>>();
        match tree {
            syn::UseTree::Path(path) => self.tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.0.push(with(&name.ident)),
            syn::UseTree::Rename(rename) => self.0.push(with(&rename.ident)),
            syn::UseTree::Glob(_) => self.0.push(before.to_vec()),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(before, tree)),
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    /// What a module hands on it does not need itself.
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if matches!(item.vis, syn::Visibility::Inherited) {
            self.tree(&[], &item.tree);
        }
    }
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.0.push(path.segments.iter().map(|s| s.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

/// The methods that a file calls, by what it calls them on.
#[derive(Default)]
struct Calls {
    /// The type that `self` is of.
    inside: String,
    /// On `self`, by its type.
    own: BTreeMap<String, BTreeSet<String>>,
    /// On variables, by their names.
    on: BTreeMap<String, BTreeSet<String>>,
}

impl Calls {
    /// Those on `self` where that is of a type, or on something called as the type in small letters, by their names.
    fn of(&self, of: &str) -> impl Iterator<Item = &String> {
        self.own.get(of).into_iter().chain(self.on.get(&of.to_lowercase())).flatten()
    }
}

impl<'ast> Visit<'ast> for Calls {
    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        let before = std::mem::replace(&mut self.inside, type_name(&block.self_ty));
        visit::visit_item_impl(self, block);
        self.inside = before;
    }
    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if let syn::Expr::Path(receiver) = &*call.receiver
            && let Some(name) = receiver.path.get_ident()
        {
            let calls = match name == "self" {
                true => self.own.entry(self.inside.clone()),
                false => self.on.entry(name.to_string()),
            };
            calls.or_default().insert(call.method.to_string());
        }
        visit::visit_expr_method_call(self, call);
    }
}

struct CallsOn<'a> {
    names: &'a [&'a str],
    found: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for CallsOn<'_> {
    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let receiver = match &*call.receiver {
            syn::Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
            syn::Expr::Field(syn::ExprField { member: syn::Member::Named(name), .. }) => {
                Some(name.to_string())
            }
            _ => None,
        };
        if receiver.is_some_and(|receiver| receiver == "self" || self.names.contains(&receiver.as_str())) {
            self.found.insert(call.method.to_string());
        }
        visit::visit_expr_method_call(self, call);
    }
}

/// A graph of files.
struct Files<'a>(DiGraph<&'a str, ()>);

impl<'a> Files<'a> {
    /// Of files and the files that each needs, by their positions.
    fn new(files: &[&'a Parsed], needs: &[BTreeSet<usize>]) -> Files<'a> {
        let mut graph = DiGraph::new();
        let nodes: Vec<_> = files.iter().map(|file| graph.add_node(file.path.as_str())).collect();
        for (from, needed) in needs.iter().enumerate() {
            for to in needed.iter().filter(|to| **to != from) {
                graph.add_edge(nodes[from], nodes[*to], ());
            }
        }
        Files(graph)
    }

    /// The largest set of files each of which needs every other, directly or not: none where there is no circle.
    fn largest_circle(&self) -> Vec<String> {
        let circles = tarjan_scc(&self.0).into_iter().filter(|circle| circle.len() > 1);
        let mut largest: Vec<String> = circles
            .max_by_key(Vec::len)
            .unwrap_or_default()
            .into_iter()
            .map(|node| self.0[node].to_owned())
            .collect();
        largest.sort();
        largest
    }
}

/// The files of each crate, by its folder.
pub fn by_crate(files: &[Parsed]) -> BTreeMap<&str, Vec<&Parsed>> {
    let mut crates: BTreeMap<&str, Vec<&Parsed>> = BTreeMap::new();
    for file in files {
        crates.entry(&file.folder).or_default().push(file);
    }
    crates
}

/// The files of one crate that each of its files names, by their positions.
fn imports_of(files: &[&Parsed]) -> Vec<BTreeSet<usize>> {
    let modules: BTreeSet<Vec<String>> = files.iter().map(|file| file.module.clone()).collect();
    let at: BTreeMap<&Vec<String>, usize> = files.iter().enumerate().map(|(i, f)| (&f.module, i)).collect();
    let named = |file: &&Parsed| file.names(&modules).iter().filter_map(|m| at.get(m).copied()).collect();
    files.iter().map(named).collect()
}

/// Who names whom among the files of one crate, by their paths.
pub fn imports<'a>(files: &[&'a Parsed]) -> Vec<(&'a str, &'a str)> {
    let path = |at: usize| files[at].path.as_str();
    let named = imports_of(files).into_iter().enumerate();
    named.flat_map(|(from, to)| to.into_iter().map(move |to| (path(from), path(to)))).collect()
}

/// The largest circle of files of one crate that name each other.
pub fn import_circle(files: &[&Parsed]) -> Vec<String> {
    Files::new(files, &imports_of(files)).largest_circle()
}

/// The largest circle of files of one crate whose methods of a type call each other.
pub fn call_circle(files: &[&Parsed], of: &str) -> Vec<String> {
    let mut defined: BTreeMap<String, usize> = BTreeMap::new();
    for (at, file) in files.iter().enumerate() {
        let methods = file.methods().get(of).into_iter().flatten();
        defined.extend(methods.map(|method| (method.clone(), at)));
    }
    let called = |file: &&Parsed| file.calls.of(of).filter_map(|m| defined.get(m).copied()).collect();
    Files::new(files, &files.iter().map(called).collect::<Vec<_>>()).largest_circle()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(path: &str, text: &str) -> Parsed {
        Parsed::new(&Source::new(path, text)).expect("parses")
    }

    #[test]
    fn functions_are_measured_without_tests() {
        let file = parsed(
            "crates/x/src/a.rs",
            "struct T;\nimpl T {\n    fn m(&self) {\n        f();\n    }\n}\nfn f() {}\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n",
        );
        let functions: Vec<_> = file.functions().into_iter().map(|f| (f.name, f.lines)).collect();
        assert_eq!(functions, [("T::m".to_owned(), 3), ("f".to_owned(), 1)]);
        assert_eq!(file.lines, 7);
        assert_eq!(file.methods()["T"], ["m"]);
        let of_tests = parsed("crates/x/src/b.rs", "//! For tests.\n\n#![cfg(test)]\n\nfn f() {}\n");
        assert_eq!((of_tests.functions(), of_tests.lines), (Vec::new(), 4));
    }

    #[test]
    fn circles_of_imports_are_found_through_folders() {
        let files = [
            parsed("crates/x/src/lib.rs", "mod a; mod b;"),
            parsed("crates/x/src/a.rs", "use crate::b::inner::Thing;"),
            parsed("crates/x/src/b/mod.rs", "mod inner; use inner::Thing;"),
            parsed("crates/x/src/b/inner.rs", "fn f() { super::super::a::g(); }"),
            parsed("crates/x/src/c.rs", "use crate::a::X;"),
        ];
        let circle = import_circle(&files.iter().collect::<Vec<_>>());
        assert_eq!(circle, ["crates/x/src/a.rs", "crates/x/src/b/inner.rs"]);
        assert!(import_circle(&files[..3].iter().collect::<Vec<_>>()).is_empty());
    }

    #[test]
    fn circles_of_calls_are_those_of_one_type() {
        let files = [
            parsed("crates/x/src/a.rs", "impl T { fn a(&self) { self.b(); } }"),
            parsed("crates/x/src/b.rs", "impl T { fn b(&self) { self.c(); self.a(); } }"),
            parsed("crates/x/src/c.rs", "impl T { fn c(&self) {} } impl U { fn a(&self) { self.b(); } }"),
            parsed("crates/x/src/d.rs", "impl T { fn d(&self) {} } fn f(t: &T) { t.e(); }"),
            parsed("crates/x/src/e.rs", "impl T { fn e(&self) { self.d() } }"),
        ];
        let circle = |files: &[Parsed]| call_circle(&files.iter().collect::<Vec<_>>(), "T");
        assert_eq!(circle(&files[..3]), ["crates/x/src/a.rs", "crates/x/src/b.rs"]);
        assert_eq!(circle(&files[1..]), ["crates/x/src/d.rs", "crates/x/src/e.rs"]);
        assert!(circle(&files[..1]).is_empty());
    }
}
