//! Doc comments of public items that have no content.
//!
//! A doc comment has no content if each of its words is part of the item's name or of its type, or has no meaning of
//! its own: an article, a pronoun, a preposition, or the kind of the item. "`Round` newtype." has no content, and
//! neither does "The state of a domain." for `DomainState`. A unit, a bound, a source or a value of a format is
//! content.

use std::collections::BTreeSet;

use syn::{
    Attribute, Expr, Fields, GenericArgument, ImplItem, Item, Lit, Meta, PathArguments, ReturnType, Signature,
    TraitItem, Type, Visibility,
};

const FILLERS: &str = "a an and are as at be by for from has have how in is it its of on one or our that the their these \
    this those to what whether which with constant enum field function method newtype return struct trait type variant";

/// Items whose doc comments have no content, each with its doc comment.
type Empty = Vec<(String, String)>;

fn look(items: &[Item], found: &mut Empty) {
    for item in items {
        match item {
            Item::Struct(item) if is_public(&item.vis) => {
                judge(&item.attrs, &item.ident.to_string(), None, found);
                fields(&item.fields, false, found);
            }
            Item::Enum(item) if is_public(&item.vis) => {
                judge(&item.attrs, &item.ident.to_string(), None, found);
                for variant in &item.variants {
                    judge(&variant.attrs, &variant.ident.to_string(), None, found);
                    fields(&variant.fields, true, found);
                }
            }
            Item::Fn(item) if is_public(&item.vis) => function(&item.attrs, &item.sig, found),
            Item::Const(item) if is_public(&item.vis) => {
                judge(&item.attrs, &item.ident.to_string(), Some(&item.ty), found);
            }
            Item::Type(item) if is_public(&item.vis) => judge(&item.attrs, &item.ident.to_string(), None, found),
            Item::Trait(item) if is_public(&item.vis) => in_trait(item, found),
            Item::Impl(item) if item.trait_.is_none() => in_impl(&item.items, found),
            Item::Mod(item) if is_public(&item.vis) => {
                look(item.content.as_ref().map_or(&[], |(_, items)| items), found);
            }
            _ => {}
        }
    }
}

fn in_trait(item: &syn::ItemTrait, found: &mut Empty) {
    judge(&item.attrs, &item.ident.to_string(), None, found);
    for inner in &item.items {
        match inner {
            TraitItem::Fn(inner) => function(&inner.attrs, &inner.sig, found),
            TraitItem::Const(inner) => judge(&inner.attrs, &inner.ident.to_string(), Some(&inner.ty), found),
            TraitItem::Type(inner) => judge(&inner.attrs, &inner.ident.to_string(), None, found),
            _ => {}
        }
    }
}

fn in_impl(items: &[ImplItem], found: &mut Empty) {
    for inner in items {
        match inner {
            ImplItem::Fn(inner) if is_public(&inner.vis) => function(&inner.attrs, &inner.sig, found),
            ImplItem::Const(inner) if is_public(&inner.vis) => {
                judge(&inner.attrs, &inner.ident.to_string(), Some(&inner.ty), found);
            }
            _ => {}
        }
    }
}

fn fields(fields: &Fields, all: bool, found: &mut Empty) {
    for field in fields.iter().filter(|field| all || is_public(&field.vis)) {
        let Some(name) = &field.ident else { continue };
        judge(&field.attrs, &name.to_string(), Some(&field.ty), found);
    }
}

fn function(attributes: &[Attribute], signature: &Signature, found: &mut Empty) {
    let gives = if let ReturnType::Type(_, ty) = &signature.output { Some(&**ty) } else { None };
    judge(attributes, &signature.ident.to_string(), gives, found);
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn judge(attributes: &[Attribute], name: &str, ty: Option<&Type>, found: &mut Empty) {
    let doc: Vec<String> = attributes.iter().filter_map(line).collect();
    let doc = doc.join(" ");
    let mut names = vec![name.to_owned()];
    ty.into_iter().for_each(|ty| named_by(ty, &mut names));
    if !doc.trim().is_empty() && says_nothing(&doc, &names) {
        found.push((name.to_owned(), doc.trim().to_owned()));
    }
}

/// Returns a line of a doc comment.
fn line(attribute: &Attribute) -> Option<String> {
    match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => {
                if let Lit::Str(text) = &literal.lit {
                    Some(text.value())
                } else {
                    None
                }
            }
            _ => None,
        },
        _ => None,
    }
}

/// Collects the names that make up a type.
fn named_by(ty: &Type, names: &mut Vec<String>) {
    match ty {
        Type::Path(path) => {
            for segment in &path.path.segments {
                names.push(segment.ident.to_string());
                let PathArguments::AngleBracketed(inner) = &segment.arguments else { continue };
                let types = inner
                    .args
                    .iter()
                    .filter_map(|inner| if let GenericArgument::Type(ty) = inner { Some(ty) } else { None });
                types.for_each(|ty| named_by(ty, names));
            }
        }
        Type::Reference(inner) => named_by(&inner.elem, names),
        Type::Slice(inner) => named_by(&inner.elem, names),
        Type::Array(inner) => named_by(&inner.elem, names),
        Type::Tuple(inner) => inner.elems.iter().for_each(|ty| named_by(ty, names)),
        _ => {}
    }
}

fn says_nothing(doc: &str, names: &[String]) -> bool {
    // A value, a call or a format is something that a name cannot express.
    let is_more = |code: &str| code.contains(|letter: char| !letter.is_alphanumeric() && !matches!(letter, '_' | ':'));
    let known: BTreeSet<String> = names.iter().flat_map(|name| words(name)).chain(words(FILLERS)).collect();
    !doc.split('`').skip(1).step_by(2).any(is_more) && words(doc).iter().all(|word| known.contains(word))
}

/// Returns the words of a text or a name, in lower case and singular.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for letter in text.chars() {
        let begins = letter.is_uppercase() && was_lower;
        if begins || !letter.is_alphanumeric() {
            words.push(String::new());
        }
        if letter.is_alphanumeric() {
            words.last_mut().expect("there is one").extend(letter.to_lowercase());
        }
        was_lower = letter.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words.into_iter().map(singular).collect()
}

fn singular(word: String) -> String {
    match word.strip_suffix('s') {
        Some(stem) if stem.len() > 2 && !stem.ends_with('s') => stem.to_owned(),
        _ => word,
    }
}

#[test]
fn every_public_doc_has_content() {
    let mut empty = Vec::new();
    for package in super::metadata().workspace_packages() {
        for path in
            super::sources(package).iter().filter(|path| !path.iter().any(|part| part == "tests" || part == "benches"))
        {
            let mut found = Vec::new();
            look(&super::shape::items(path), &mut found);
            empty.extend(found.into_iter().map(|(name, doc)| format!("{}: {name}: {doc}", path.display())));
        }
    }
    assert!(empty.is_empty(), "{} docs say nothing: {empty:#?}", empty.len());
}

#[test]
fn docs_without_content_are_found() {
    let text = "
        /// `Round` newtype.
        pub struct Round(u32);
        /// The round of a run, from 1.
        pub struct RunRound {
            /// Its number.
            pub number: u32,
            /// Bytes, at most 4096.
            pub size: u32,
            /// The tax.
            pub costs: Vec<Tax>,
            /// Private.
            private: u32,
        }
        impl Round {
            /// Returns the states.
            pub fn state(&self) -> State { todo!() }
            /// Its name, e.g. `rack/web`.
            pub fn lab(&self) -> Name { todo!() }
        }
        pub enum Kind {
            /// It is gone.
            Gone,
            /// Which it is.
            Other { /** The file. */ file: File },
        }";
    let mut found = Vec::new();
    look(&syn::parse_file(text).expect("Rust").items, &mut found);
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["Round", "number", "costs", "state", "Gone", "Other", "file"]);
}
