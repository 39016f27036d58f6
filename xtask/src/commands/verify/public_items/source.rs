//! The modules of the crates whose items are read, and where a name leads.
//!
//! In: source files. Out: modules with their items, and for a path the definitions that it names.
//! It knows as much of name resolution as these crates use.

use std::collections::BTreeMap;

use syn::{Attribute, Item, UseTree, Visibility};

use super::super::tree::Tree;

/// How many `use` lines a name may lead through: a circle must end.
const HOPS_MAX: usize = 16;

/// The modules of all crates, by their whole paths: `["tenure", "fence"]`.
pub(super) struct Sources {
    pub(super) modules: BTreeMap<ModulePath, Vec<Item>>,
}

pub(super) type ModulePath = Vec<String>;

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Definition {
    Module(ModulePath),
    /// An item of a module.
    Item(ModulePath, String),
    /// Something of a crate that is not read here.
    Outside(String),
}

/// One name that a `use` brings.
pub(super) struct Import {
    /// The name in the module with the `use`; `*` for all names of `target`.
    pub(super) name: String,
    pub(super) target: Vec<String>,
}

/// A file that cannot be read as Rust.
pub(super) struct Unreadable {
    pub(super) path: String,
    pub(super) why: String,
}

impl Sources {
    /// Reads the crates of these names, each from its folder in `crates/`.
    pub(super) fn read(tree: &Tree, crates: &[(&str, &str)]) -> Result<Self, Unreadable> {
        let mut sources = Sources { modules: BTreeMap::new() };
        for (name, folder) in crates {
            let top = format!("crates/{folder}/src");
            sources.read_file(tree, vec![(*name).to_owned()], &format!("{top}/lib.rs"), &top)?;
        }
        Ok(sources)
    }

    fn read_file(
        &mut self,
        tree: &Tree,
        module: ModulePath,
        path: &str,
        folder: &str,
    ) -> Result<(), Unreadable> {
        let Some(file) = tree.get(path) else { return Ok(()) };
        let parsed = syn::parse_file(&file.text)
            .map_err(|error| Unreadable { path: path.to_owned(), why: error.to_string() })?;
        self.add_module(tree, module, parsed.items, folder)
    }

    fn add_module(
        &mut self,
        tree: &Tree,
        module: ModulePath,
        items: Vec<Item>,
        folder: &str,
    ) -> Result<(), Unreadable> {
        let items: Vec<Item> = items.into_iter().filter(|item| !is_for_tests(item)).collect();
        for item in &items {
            let Item::Mod(child) = item else { continue };
            let name = child.ident.to_string();
            let below = format!("{folder}/{name}");
            let path = [module.as_slice(), &[name]].concat();
            match &child.content {
                Some((_, items)) => self.add_module(tree, path, items.clone(), &below)?,
                None => {
                    let [file, with_folder] = [format!("{below}.rs"), format!("{below}/mod.rs")];
                    let file = if tree.get(&file).is_some() { file } else { with_folder };
                    self.read_file(tree, path, &file, &below)?;
                }
            }
        }
        self.modules.insert(module, items);
        Ok(())
    }

    /// What `path` names inside `module`: a type and a function may share a name.
    pub(super) fn resolve(&self, module: &ModulePath, path: &[String]) -> Vec<Definition> {
        self.resolve_within(module, path, HOPS_MAX)
    }

    fn resolve_within(&self, module: &ModulePath, path: &[String], hops: usize) -> Vec<Definition> {
        let Some((first, rest)) = path.split_first().filter(|_| hops > 0) else { return vec![] };
        let mut found = match first.as_str() {
            "self" => vec![Definition::Module(module.clone())],
            "crate" => vec![Definition::Module(module[..1].to_vec())],
            "super" => vec![Definition::Module(module[..module.len() - 1].to_vec())],
            name => self.look_up(module, name, hops),
        };
        if found.is_empty() {
            let top = vec![first.clone()];
            found = vec![match self.modules.contains_key(&top) {
                true => Definition::Module(top),
                false => return vec![Definition::Outside(path.join("::"))],
            }];
        }
        for name in rest {
            let inner = found.iter().filter_map(|definition| match definition {
                Definition::Module(module) if name == "super" => {
                    Some(vec![Definition::Module(module[..module.len() - 1].to_vec())])
                }
                Definition::Module(module) => Some(self.look_up(module, name, hops)),
                _ => None,
            });
            found = inner.flatten().collect();
        }
        found
    }

    fn look_up(&self, module: &ModulePath, name: &str, hops: usize) -> Vec<Definition> {
        let Some(items) = self.modules.get(module) else { return vec![] };
        let mut found = Vec::new();
        for item in items {
            match item {
                Item::Mod(child) if child.ident == name => {
                    found.push(Definition::Module([module.as_slice(), &[name.to_owned()]].concat()))
                }
                Item::Use(item) => {
                    for import in imports(&item.tree) {
                        let mut target = import.target;
                        match import.name.as_str() {
                            "*" => target.push(name.to_owned()),
                            imported if imported == name => {}
                            _ => continue,
                        }
                        // A name that itself leads here would look for itself.
                        if target == [name] {
                            if self.modules.contains_key(&target) {
                                found.push(Definition::Module(target));
                            }
                            continue;
                        }
                        found.extend(self.resolve_within(module, &target, hops - 1));
                    }
                }
                item if name_of(item).is_some_and(|(_, own)| own == name) => {
                    found.push(Definition::Item(module.clone(), name.to_owned()));
                }
                _ => {}
            }
        }
        found.dedup();
        found
    }
}

/// The kind and name of an item that has one.
pub(super) fn name_of(item: &Item) -> Option<(&'static str, String)> {
    let (kind, ident) = match item {
        Item::Const(item) => ("const", &item.ident),
        Item::Enum(item) => ("enum", &item.ident),
        Item::Fn(item) => ("fn", &item.sig.ident),
        Item::Static(item) => ("static", &item.ident),
        Item::Struct(item) => ("struct", &item.ident),
        Item::Trait(item) => ("trait", &item.ident),
        Item::Type(item) => ("type", &item.ident),
        _ => return None,
    };
    Some((kind, ident.to_string()))
}

/// Whether everybody who can name the module can name the item.
pub(super) fn is_public(item: &Item) -> bool {
    let visibility = match item {
        Item::Const(item) => &item.vis,
        Item::Enum(item) => &item.vis,
        Item::Fn(item) => &item.vis,
        Item::Mod(item) => &item.vis,
        Item::Static(item) => &item.vis,
        Item::Struct(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::Type(item) => &item.vis,
        Item::Use(item) => &item.vis,
        _ => return false,
    };
    matches!(visibility, Visibility::Public(_))
}

/// The names that a `use` brings, each with its whole path.
pub(super) fn imports(tree: &UseTree) -> Vec<Import> {
    fn collect(tree: &UseTree, before: &[String], found: &mut Vec<Import>) {
        let path_to = |name: &str| match name {
            "self" => before.to_vec(),
            _ => [before, &[name.to_owned()]].concat(),
        };
        let last_of = |target: &[String]| target.last().cloned().unwrap_or_default();
        match tree {
            UseTree::Path(path) => {
                collect(&path.tree, &[before, &[path.ident.to_string()]].concat(), found)
            }
            UseTree::Name(name) => {
                let target = path_to(&name.ident.to_string());
                found.push(Import { name: last_of(&target), target });
            }
            UseTree::Rename(rename) => {
                let target = path_to(&rename.ident.to_string());
                found.push(Import { name: rename.rename.to_string(), target });
            }
            UseTree::Glob(_) => found.push(Import { name: "*".into(), target: before.to_vec() }),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| collect(tree, before, found));
            }
        }
    }
    let mut found = Vec::new();
    collect(tree, &[], &mut found);
    found
}

fn is_for_tests(item: &Item) -> bool {
    let attributes: &[Attribute] = match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    };
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|path| path.is_ident("test") || path.is_ident("doctest"))
    })
}
