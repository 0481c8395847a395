//! The order in which a function takes locks, as its text shows it.
//!
//! Purpose: a build with debug assertions checks the order where a test runs; this looks at every function,
//! run or not. It knows a lock by the field that it is, and a guard's life by its block: a guard that `let`
//! binds lives to the block's end or to its `drop`, any other to the end of its statement. What a function that
//! is called takes is known of few ([`TAKERS`]). Attempts (`try_lock`) wait for nothing.

use crate::code::Parsed;
use std::collections::BTreeMap;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Fields that are locks with a rank, and the constants of their ranks.
const FIELDS: [(&str, &str); 8] = [
    ("gc", "GC"),
    ("cp", "CP"),
    ("wb", "WB"),
    ("ops", "OPS"),
    ("renames", "RENAMES"),
    ("lock", "INODE"),
    ("chain", "CHAIN"),
    ("segs", "SEGS"),
];

/// Functions that take a lock, and the outermost that they take.
const TAKERS: [(&str, &str); 5] = [
    ("op", "OPS"),
    ("change_alone", "WB"),
    ("change_settled", "WB"),
    ("write_batch", "WB"),
    ("rewrite_pages", "WB"),
];

/// Functions that run a closure under the locks that they take, and the innermost of these.
const UNDER: [(&str, &str); 2] = [("change_alone", "INODE"), ("change_settled", "INODE")];

/// Ranks by the names of their constants.
pub type Ranks = BTreeMap<String, u64>;

/// The ranks that files define: `const WB: Rank = Rank::several(3, "wb");`.
pub fn ranks(files: &[&Parsed]) -> Ranks {
    let constants = files.iter().flat_map(|file| file.items()).filter_map(|item| match item {
        syn::Item::Const(constant) => Some(constant),
        _ => None,
    });
    let ranked = constants.filter_map(|constant| {
        let syn::Expr::Call(call) = &*constant.expr else { return None };
        let Some(syn::Expr::Lit(number)) = call.args.first() else { return None };
        let syn::Lit::Int(number) = &number.lit else { return None };
        Some((constant.ident.to_string(), number.base10_parse().ok()?))
    });
    ranked.collect()
}

/// The rank of the lock that a field is.
pub fn rank_of(field: &str, ranks: &Ranks) -> Option<u64> {
    ranks.get(&constant_of(&FIELDS, field)?).copied()
}

/// Where functions of a file take a lock while they hold one that is further in.
pub fn out_of_order(file: &Parsed, ranks: &Ranks) -> Vec<String> {
    let mut order = Order { ranks, path: &file.path, held: Vec::new(), found: Vec::new() };
    file.items().iter().for_each(|item| order.visit_item(item));
    order.found
}

/// A guard that lives.
struct Held {
    /// The variable that it is bound to.
    name: Option<String>,
    lock: String,
    rank: u64,
}

struct Order<'a> {
    ranks: &'a Ranks,
    path: &'a str,
    held: Vec<Held>,
    found: Vec<String>,
}

fn last_name(expr: &syn::Expr) -> Option<String> {
    match expr {
        syn::Expr::Field(field) => match &field.member {
            syn::Member::Named(name) => Some(name.to_string()),
            syn::Member::Unnamed(_) => None,
        },
        syn::Expr::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    }
}

fn constant_of(of: &[(&str, &str)], name: &str) -> Option<String> {
    of.iter().find(|(known, _)| *known == name).map(|(_, constant)| (*constant).to_owned())
}

/// The lock whose guard a call gives back.
fn guard_of(call: &syn::ExprMethodCall) -> Option<String> {
    let method = call.method.to_string();
    if method == "op" && call.args.is_empty() {
        return constant_of(&TAKERS, "op");
    }
    let takes =
        ["lock", "read", "write", "shared", "alone"].contains(&method.as_str()) && call.args.is_empty();
    takes.then(|| last_name(&call.receiver)).flatten().and_then(|field| constant_of(&FIELDS, &field))
}

/// The guard that an expression is, through `?`, references and dereferences.
fn is_guard(expr: &syn::Expr) -> bool {
    match expr {
        syn::Expr::MethodCall(call) => guard_of(call).is_some(),
        syn::Expr::Try(inner) => is_guard(&inner.expr),
        syn::Expr::Reference(inner) => is_guard(&inner.expr),
        syn::Expr::Unary(inner) => is_guard(&inner.expr),
        syn::Expr::Paren(inner) => is_guard(&inner.expr),
        _ => false,
    }
}

fn names_of(pattern: &syn::Pat) -> Vec<Option<String>> {
    match pattern {
        syn::Pat::Ident(ident) => vec![Some(ident.ident.to_string())],
        syn::Pat::Tuple(tuple) => tuple.elems.iter().flat_map(names_of).collect(),
        syn::Pat::Type(typed) => names_of(&typed.pat),
        _ => vec![None],
    }
}

impl Order<'_> {
    /// A lock is waited for, at a place.
    fn take(&mut self, constant: String, at: &impl Spanned, stays: bool) {
        let Some(&rank) = self.ranks.get(&constant) else { return };
        if let Some(held) = self.held.iter().find(|held| held.rank > rank) {
            let line = at.span().start().line;
            self.found.push(format!("{}:{line}: {constant} is taken while {} is held", self.path, held.lock));
        }
        if stays {
            self.held.push(Held { name: None, lock: constant, rank });
        }
    }

    /// Looks at what holds nothing of what is held here.
    fn apart(&mut self, held: Vec<Held>, look: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.held, held);
        look(self);
        self.held = before;
    }

    /// Keeps the guards that a `let` binds, under their names; the others of its statement are gone.
    fn bind(&mut self, from: usize, local: &syn::Local) {
        let Some(init) = &local.init else { return self.held.truncate(from) };
        let (names, values): (_, Vec<&syn::Expr>) = match &*init.expr {
            syn::Expr::Tuple(tuple) => (names_of(&local.pat), tuple.elems.iter().collect()),
            one => (names_of(&local.pat), vec![one]),
        };
        let mut made = self.held.split_off(from);
        let guards = values.iter().zip(names.iter().cycle()).filter(|(value, _)| is_guard(value));
        for (_, name) in guards {
            // Guards are made in the order in which they are written, the bound one last of its value.
            if let Some(mut held) = made.pop() {
                held.name.clone_from(name);
                self.held.push(held);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Order<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.apart(Vec::new(), |order| visit::visit_item_fn(order, function));
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        let outside = self.held.len();
        for statement in &block.stmts {
            let from = self.held.len();
            visit::visit_stmt(self, statement);
            match statement {
                syn::Stmt::Local(local) => self.bind(from, local),
                _ => self.held.truncate(from.min(self.held.len())),
            }
        }
        self.held.truncate(outside);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        visit::visit_expr_call(self, call);
        let drops = matches!(&*call.func, syn::Expr::Path(path) if path.path.is_ident("drop"));
        if drops && let Some(name) = call.args.first().and_then(last_name) {
            self.held.retain(|held| held.name.as_ref() != Some(&name));
        }
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        self.apart(Vec::new(), |order| visit::visit_expr_closure(order, closure));
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let method = call.method.to_string();
        self.visit_expr(&call.receiver);
        let under = constant_of(&UNDER, &method).and_then(|lock| {
            let rank = *self.ranks.get(&lock)?;
            Some((lock, rank))
        });
        for argument in &call.args {
            match (argument, &under) {
                (syn::Expr::Closure(closure), Some((lock, rank))) => {
                    let held = vec![Held { name: None, lock: lock.clone(), rank: *rank }];
                    self.apart(held, |order| visit::visit_expr_closure(order, closure));
                }
                _ => self.visit_expr(argument),
            }
        }
        if let Some(lock) = guard_of(call) {
            self.take(lock, call, true);
        } else if let Some(lock) = constant_of(&TAKERS, &method) {
            self.take(lock, call, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    const RANKS: &str = "const WB: Rank = Rank::several(3, \"wb\"); const OPS: Rank = Rank::one(4, \"ops\");
        const INODE: Rank = Rank::several(6, \"inode\"); const SEGS: Rank = Rank::one(12, \"segs\");";

    fn found(body: &str) -> Vec<String> {
        let parsed = |path: &str, text: &str| Parsed::new(&Source::new(path, text)).expect("parses");
        let ranks = ranks(&[&parsed("crates/x/src/ranks.rs", RANKS)]);
        assert_eq!(ranks.len(), 4);
        out_of_order(&parsed("crates/x/src/a.rs", &format!("impl T {{ fn f(&self) {{ {body} }} }}")), &ranks)
    }

    #[test]
    fn locks_out_of_order_are_found_however_they_are_held() {
        for body in [
            "let state = inode.lock.write(); let _wb = inode.wb.lock();",
            "let mut state = &mut *inode.lock.write(); let op = self.op()?;",
            "let (now, mut segs) = (self.elapsed(), self.segs.lock()); let _op = self.fs.op()?;",
            "let (segs, now) = (self.segs.lock(), 1); { if now { inode.lock.read(); } }",
            "inode.lock.read().f(self.op()?); ",
            "match inode.lock.read().kind() { A => self.change_alone(inode, |s| 1), _ => 2 }",
            "self.change_alone(inode, |state| { let _op = self.op()?; })",
            "let _op = self.op()?; { let s = inode.lock.read(); } inode.wb.lock();",
            "if let Some(x) = self.segs.lock().find() { inode.lock.read(); }",
            "list.map(|x| { let s = x.lock.read(); x.wb.lock(); })",
        ] {
            assert_eq!(found(body).len(), 1, "{body}: {:?}", found(body));
        }
    }

    #[test]
    fn guards_that_are_gone_are_in_no_way() {
        for body in [
            "let _wb = inode.wb.lock(); let _op = self.op()?; let mut state = inode.lock.write(); self.segs.lock().x();",
            "let state = inode.lock.write(); drop(state); let _wb = inode.wb.lock();",
            "let size = inode.lock.read().size(); let _wb = inode.wb.lock();",
            "{ let state = inode.lock.write(); } self.op()?;",
            "let state = inode.lock.write(); inode.wb.try_lock();",
            "let state = inode.lock.write(); let later = || inode.wb.lock();",
            "let a = first.lock.write(); let b = second.lock.write();",
        ] {
            assert_eq!(found(body), [""; 0], "{body}");
        }
    }
}
