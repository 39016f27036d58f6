//! Every public item that a user of a crate can name.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Fields, ImplItem, Item, TraitItem, Type, Visibility};

use super::source::{Definition, ModulePath, Sources, imports, is_public, name_of};

/// How deep modules may lie in each other: a circle of re-exports must end.
const DEPTH_MAX: usize = 8;

/// One line per item of the crate `root`, in order. An item that has several paths is listed with
/// its members at the shortest; each other path is one `use` line.
pub(super) fn public_items(sources: &Sources, root: &str) -> BTreeSet<String> {
    let mut walk = Walk { sources, paths: BTreeMap::new() };
    walk.module(&vec![root.to_owned()], root, 0);
    let members = members(sources);
    let mut lines = BTreeSet::new();
    for (definition, paths) in &walk.paths {
        let home = paths.iter().min_by_key(|path| (path.matches("::").count(), *path));
        let home = home.expect("what was found has a path");
        for path in paths.iter().filter(|path| *path != home) {
            lines.insert(format!("{path} (use of {home})"));
        }
        match definition {
            Definition::Module(_) => lines.insert(format!("{home} (mod)")),
            Definition::Outside(name) => lines.insert(format!("{home} (use of {name})")),
            Definition::Item(module, name) => {
                lines.insert(format!("{home} ({})", kind_of(sources, module, name)));
                let own = members.get(definition).into_iter().flatten();
                lines.extend(own.map(|(member, kind)| format!("{home}::{member} ({kind})")));
                true
            }
        };
    }
    lines
}

struct Walk<'a> {
    sources: &'a Sources,
    paths: BTreeMap<Definition, BTreeSet<String>>,
}

impl Walk<'_> {
    fn module(&mut self, module: &ModulePath, shown: &str, depth: usize) {
        let sources = self.sources;
        let Some(items) = sources.modules.get(module).filter(|_| depth < DEPTH_MAX) else { return };
        for item in items.iter().filter(|item| is_public(item)) {
            if let Item::Use(item) = item {
                for import in imports(&item.tree) {
                    for definition in sources.resolve(module, &import.target) {
                        match (import.name.as_str(), &definition) {
                            ("*", Definition::Module(inner)) => {
                                self.module(inner, shown, depth + 1);
                            }
                            (name, _) => {
                                self.export(definition, &format!("{shown}::{name}"), depth)
                            }
                        }
                    }
                }
            } else if let Item::Mod(child) = item {
                let name = child.ident.to_string();
                let inner = [module.as_slice(), std::slice::from_ref(&name)].concat();
                self.export(Definition::Module(inner), &format!("{shown}::{name}"), depth);
            } else if let Some((_, name)) = name_of(item) {
                let definition = Definition::Item(module.clone(), name.clone());
                self.export(definition, &format!("{shown}::{name}"), depth);
            }
        }
    }

    fn export(&mut self, definition: Definition, shown: &str, depth: usize) {
        self.paths.entry(definition.clone()).or_default().insert(shown.to_owned());
        if let Definition::Module(module) = definition {
            self.module(&module, shown, depth + 1);
        }
    }
}

fn kind_of(sources: &Sources, module: &ModulePath, name: &str) -> &'static str {
    let items = sources.modules.get(module).into_iter().flatten();
    let mut named = items.filter_map(name_of);
    named.find(|(_, own)| own == name).map_or("item", |(kind, _)| kind)
}

type Members = BTreeMap<Definition, BTreeSet<(String, &'static str)>>;

/// What belongs to each item: fields, variants, methods and constants that are public.
fn members(sources: &Sources) -> Members {
    let mut members = Members::new();
    for (module, items) in &sources.modules {
        for item in items {
            let (owner, found) = match item {
                Item::Impl(item) if item.trait_.is_none() => {
                    let Some(owner) = owner_of(sources, module, &item.self_ty) else { continue };
                    (owner, item.items.iter().filter_map(associated).collect())
                }
                item => match name_of(item) {
                    Some((_, name)) => (Definition::Item(module.clone(), name), inner(item)),
                    None => continue,
                },
            };
            members.entry(owner).or_default().extend(found);
        }
    }
    members
}

/// The type of an inherent `impl`.
fn owner_of(sources: &Sources, module: &ModulePath, own: &Type) -> Option<Definition> {
    let Type::Path(path) = own else { return None };
    let segments: Vec<String> = path.path.segments.iter().map(|s| s.ident.to_string()).collect();
    let found = sources.resolve(module, &segments);
    found.into_iter().find(|definition| matches!(definition, Definition::Item(..)))
}

fn associated(item: &ImplItem) -> Option<(String, &'static str)> {
    let (visibility, ident, kind) = match item {
        ImplItem::Fn(item) => (&item.vis, &item.sig.ident, "fn"),
        ImplItem::Const(item) => (&item.vis, &item.ident, "const"),
        _ => return None,
    };
    matches!(visibility, Visibility::Public(_)).then(|| (ident.to_string(), kind))
}

fn inner(item: &Item) -> Vec<(String, &'static str)> {
    match item {
        Item::Struct(item) => public_fields(&item.fields),
        Item::Enum(item) => {
            let variants = item.variants.iter().flat_map(|variant| {
                let name = variant.ident.to_string();
                let fields = named_fields(&variant.fields);
                let fields = fields.map(|field| (format!("{name}::{field}"), "field"));
                std::iter::once((name.clone(), "variant")).chain(fields.collect::<Vec<_>>())
            });
            variants.collect()
        }
        Item::Trait(item) => {
            let named = item.items.iter().filter_map(|item| match item {
                TraitItem::Fn(item) => Some((item.sig.ident.to_string(), "fn")),
                TraitItem::Const(item) => Some((item.ident.to_string(), "const")),
                TraitItem::Type(item) => Some((item.ident.to_string(), "type")),
                _ => None,
            });
            named.collect()
        }
        _ => Vec::new(),
    }
}

fn public_fields(fields: &Fields) -> Vec<(String, &'static str)> {
    let public =
        fields.iter().enumerate().filter(|(_, field)| matches!(field.vis, Visibility::Public(_)));
    let named = public.map(|(index, field)| {
        (field.ident.as_ref().map_or(index.to_string(), ToString::to_string), "field")
    });
    named.collect()
}

fn named_fields(fields: &Fields) -> impl Iterator<Item = String> {
    fields.iter().filter_map(|field| field.ident.as_ref().map(ToString::to_string))
}
