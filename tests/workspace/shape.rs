//! The structure of the sources: which files use which, and the names of their types.
//!
//! A file is a module. It uses another one if one of its `use` lines names something that the other one defines. A
//! re-export (`pub use`) is followed to the file that defines the name, and does not count as a use itself: it is a
//! table of contents.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
};

use cargo_metadata::Package;
use syn::{Attribute, GenericArgument, Item, PathArguments, Type, UseTree, Visibility};

/// Maximum number of files that use each other in a circle, because such files can only be read together.
const CIRCLE_MOST: usize = 4;

type Module = Vec<String>;

/// The product files of a crate, by module.
struct Sources {
    files: BTreeMap<Module, Vec<Item>>,
}

impl Sources {
    fn of(package: &Package) -> Sources {
        let root = package.manifest_path.parent().expect("a manifest is in a folder").join("src");
        let mut found = Vec::new();
        super::collect(root.as_std_path(), &mut found);
        let files = found.iter().filter_map(|path| Some((module(root.as_std_path(), path)?, items(path)))).collect();
        Sources { files }
    }

    /// Returns the modules that each module uses.
    fn uses(&self) -> BTreeMap<&Module, BTreeSet<&Module>> {
        let imports: HashMap<&Module, Imports> =
            self.files.iter().map(|(module, items)| (module, Imports::of(module, items))).collect();
        let of = |module: &Module| {
            let named = imports[module].own.iter().filter_map(|path| self.defines(path, &imports, 0));
            named.filter(|used| *used != module).collect()
        };
        self.files.keys().map(|module| (module, of(module))).collect()
    }

    /// Returns the module that defines what a path names.
    fn defines<'a>(&'a self, path: &[String], imports: &HashMap<&Module, Imports>, depth: usize) -> Option<&'a Module> {
        const LONGEST_CHAIN: usize = 8;
        let known = (0..=path.len()).rev().find_map(|len| self.files.get_key_value(&path[..len]))?.0;
        let Some(name) = path.get(known.len()) else { return Some(known) };
        match imports.get(known).and_then(|imports| imports.names.get(name)) {
            Some(origin) if depth < LONGEST_CHAIN => {
                let rest = [origin, &path[known.len() + 1..]].concat();
                self.defines(&rest, imports, depth + 1).or(Some(known))
            }
            _ => Some(known),
        }
    }

    /// Returns the groups of files that use each other in a circle, if a group is too large.
    fn circles(&self) -> Vec<Vec<String>> {
        let uses = self.uses();
        let reached: BTreeMap<&Module, BTreeSet<&Module>> =
            uses.keys().map(|module| (*module, reach(module, &uses))).collect();
        let circle = |module: &Module| -> Vec<String> {
            let back = |other: &&&Module| reached[**other].contains(module);
            reached[module].iter().filter(back).map(|other| other.join("::")).collect()
        };
        let circles: BTreeSet<Vec<String>> = uses.keys().map(|module| circle(module)).collect();
        circles.into_iter().filter(|circle| circle.len() > CIRCLE_MOST).collect()
    }
}

fn reach<'a>(from: &'a Module, uses: &BTreeMap<&'a Module, BTreeSet<&'a Module>>) -> BTreeSet<&'a Module> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        next.extend(uses[module].iter().filter(|used| reached.insert(**used)));
    }
    reached
}

/// The paths in the `use` lines of a file, from the crate's root.
#[derive(Default)]
struct Imports {
    /// All except re-exports.
    own: Vec<Module>,
    /// Each name that the lines import, including re-exports.
    names: HashMap<String, Module>,
}

impl Imports {
    fn of(module: &Module, items: &[Item]) -> Imports {
        let mut imports = Imports::default();
        let uses = items.iter().filter_map(|item| if let Item::Use(line) = item { Some(line) } else { None });
        for line in uses.filter(|line| !is_test(&line.attrs)) {
            let mut named = Vec::new();
            flatten(&line.tree, &mut Vec::new(), &mut named);
            for (path, name) in named {
                let Some(path) = absolute(module, path, items) else { continue };
                if matches!(line.vis, Visibility::Inherited) {
                    imports.own.push(path.clone());
                }
                imports.names.insert(name, path);
            }
        }
        imports
    }
}

/// Returns a path from the crate's root; `None` for a path into another crate.
fn absolute(module: &Module, mut path: Module, items: &[Item]) -> Option<Module> {
    let child = |item: &Item| matches!(item, Item::Mod(child) if child.ident == path[0]);
    let mut base = module.clone();
    match path[0].as_str() {
        "crate" => base.clear(),
        "self" => {}
        "super" => drop(base.pop()),
        _ if items.iter().any(child) => return Some([base, path].concat()),
        _ => return None,
    }
    path.remove(0);
    while path.first().is_some_and(|name| name == "super") {
        base.pop();
        path.remove(0);
    }
    Some([base, path].concat())
}

fn flatten(tree: &UseTree, before: &mut Module, found: &mut Vec<(Module, String)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, found);
            before.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, found)),
        UseTree::Name(name) if name.ident == "self" => {
            found.push((before.clone(), before.last().cloned().unwrap_or_default()));
        }
        UseTree::Name(name) => found.push((joined(before, &name.ident), name.ident.to_string())),
        UseTree::Rename(name) => found.push((joined(before, &name.ident), name.rename.to_string())),
        UseTree::Glob(_) => found.push((before.clone(), "*".to_owned())),
    }
}

fn joined(before: &[String], name: &syn::Ident) -> Module {
    before.iter().cloned().chain([name.to_string()]).collect()
}

/// Returns the module of a product file; `None` for tests.
fn module(root: &Path, path: &Path) -> Option<Module> {
    let path = path.strip_prefix(root).expect("below the root").with_extension("");
    let names: Module = path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    match names.last().map(String::as_str) {
        _ if names.iter().any(|name| name == "tests") => None,
        Some("lib" | "main") => Some(Vec::new()),
        _ => Some(names),
    }
}

pub(super) fn items(path: &PathBuf) -> Vec<Item> {
    let text = fs::read_to_string(path).expect("a source of ours");
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())).items
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("cfg") && quoted(attribute).contains("test"))
}

fn quoted(attribute: &Attribute) -> String {
    attribute.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default()
}

/// Returns the name of a type or trait, if it is visible to other modules.
fn public_name(item: &Item) -> Option<String> {
    let (vis, ident) = match item {
        Item::Struct(item) => (&item.vis, &item.ident),
        Item::Enum(item) => (&item.vis, &item.ident),
        Item::Trait(item) => (&item.vis, &item.ident),
        Item::Type(item) => (&item.vis, &item.ident),
        Item::Union(item) => (&item.vis, &item.ident),
        _ => return None,
    };
    (!matches!(vis, Visibility::Inherited)).then(|| ident.to_string())
}

#[test]
fn no_large_circle_of_files() {
    for package in super::metadata().workspace_packages() {
        let circles = Sources::of(package).circles();
        assert!(circles.is_empty(), "{}: these files use each other in a circle: {circles:#?}", package.name);
    }
}

#[test]
fn a_name_of_a_type_has_one_meaning() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in super::metadata().workspace_packages() {
        for (module, items) in Sources::of(package).files {
            // A crate's own `Result` has the name of std's, which it replaces.
            for name in items.iter().filter_map(public_name).filter(|name| name != "Result") {
                places.entry(name).or_default().push(format!("{}::{}", package.name, module.join("::")));
            }
        }
    }
    places.retain(|_, places| places.len() > 1);
    assert!(places.is_empty(), "{places:#?}");
}

#[test]
fn modules_have_one_style() {
    let metadata = super::metadata();
    for path in metadata.workspace_packages().into_iter().flat_map(super::sources) {
        assert!(!path.ends_with("mod.rs"), "{}: name it after the module, beside the folder", path.display());
    }
}

#[test]
fn a_circle_is_found() {
    let circles = |front: &str, last: &str| {
        let ring = ["b", "c", "d", "e"].map(|next| format!("use crate::{next}::In_{next};"));
        let texts = [&ring[0], &ring[1], &ring[2], &ring[3], last, front];
        let items = |text: &str| syn::parse_file(text).expect("Rust").items;
        let files = ["a", "b", "c", "d", "e", "front"].iter().zip(texts);
        Sources { files: files.map(|(name, text)| (vec![(*name).to_owned()], items(text))).collect() }.circles()
    };
    let five = [["a", "b", "c", "d", "e"]];
    assert_eq!(circles("", "use crate::a::In_a;"), five);
    // A re-export is followed to the file behind it.
    assert_eq!(circles("pub use crate::a::In_a;", "use super::front::In_a;"), five);
    assert!(circles("", "#[cfg(test)] use crate::a::In_a;").is_empty());
}

/// Data from an agent may have been written by anyone on its host or with access to a guest.
#[test]
fn texts_of_agents_are_foreign() {
    // Keys and identifiers are only compared; the others are what we send ourselves.
    const PLAIN: [&str; 4] = ["argv", "boot_id", "key", "mac"];
    const SAID: [&str; 3] =
        ["vtax-wire/src/protocol.rs", "vtax-wire/src/protocol/greeting.rs", "vtax-tune/src/order.rs"];
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found: Vec<String> = SAID.iter().flat_map(|path| plain_texts(&items(&crates.join(path)))).collect();
    found.retain(|field| !PLAIN.contains(&field.as_str()));
    assert!(found.is_empty(), "make these a ForeignText, which can't be printed as it came: {found:?}");
    let text = "struct A { name: Option<String>, key: u8 } struct B { text: Vec<(u8, String)>, said: ForeignText }";
    assert_eq!(plain_texts(&syn::parse_file(text).expect("Rust").items), ["name", "text"]);
}

/// Returns the fields whose types contain a `String`.
fn plain_texts(items: &[Item]) -> Vec<String> {
    let structs = items.iter().filter_map(|item| match item {
        Item::Struct(item) => Some(&item.fields),
        _ => None,
    });
    let plain = |field: &&syn::Field| mentions(&field.ty, "String");
    structs.flatten().filter(plain).filter_map(|field| Some(field.ident.as_ref()?.to_string())).collect()
}

fn mentions(ty: &Type, name: &str) -> bool {
    match ty {
        Type::Path(path) => path.path.segments.iter().any(|segment| {
            let inner = match &segment.arguments {
                PathArguments::AngleBracketed(inner) => &inner.args,
                _ => return segment.ident == name,
            };
            inner.iter().any(|inner| matches!(inner, GenericArgument::Type(inner) if mentions(inner, name)))
        }),
        Type::Tuple(tuple) => tuple.elems.iter().any(|inner| mentions(inner, name)),
        _ => false,
    }
}
