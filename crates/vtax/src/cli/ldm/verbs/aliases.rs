//! Other names of verbs in Oracle's `ldm`, and tips for unknown verbs.

use std::{collections::BTreeMap, sync::OnceLock};

use clap::{
    Command,
    error::{ContextKind, ContextValue},
};
use vtax_model::spelling::letters_apart;

/// Actions and their short forms.
const ACTIONS: &[&[&str]] = &[&["list", "ls"], &["remove", "rm"]];

/// Resources and their other forms, as listed in ldm(8), "Aliases".
const RESOURCES: &[&[&str]] = &[
    &["spconfig", "config"],
    &["crypto", "mau"],
    &["domain", "dom"],
    &["memory", "mem"],
    &["variable", "var"],
    &["vcc", "vconscon"],
    &["vcons", "vconsole"],
    &["vds", "vdiskserver"],
    &["vdsdev", "vdiskserverdevice"],
    &["vsw", "vswitch"],
    &["reconf", "reconfig"],
    &["bindings", "bind"],
    &["constraints", "cons"],
    &["dependencies", "deps"],
    &["devices", "dev"],
    &["services", "serv"],
];

/// Whole verbs and their other names.
const SHORTCUTS: &[(&str, &str)] = &[("set-domain", "modify")];

/// Number of verbs in a tip.
const TIPS: usize = 3;

/// Other names of each verb, which clap borrows until the program ends.
static ALIASES: OnceLock<BTreeMap<String, Vec<String>>> = OnceLock::new();

/// Adds the other names of each verb of `ldm`. The help shows `rm-x` and `ls-x`, and the names that belong to the verb
/// itself.
pub(in crate::cli) fn with_aliases(ldm: Command) -> Command {
    let aliases = ALIASES.get_or_init(|| of_verbs(&ldm));
    let with_own = |verb: Command| {
        let own = aliases.get(verb.get_name()).into_iter().flatten().map(String::as_str);
        let resource = verb.get_name().split_once('-').map(|(_, resource)| resource.to_owned());
        let is_shown = |name: &&str| name.split_once('-').map(|(_, resource)| resource) == resource.as_deref();
        let (shown, hidden): (Vec<&str>, Vec<&str>) = own.partition(is_shown);
        verb.visible_aliases(shown).aliases(hidden)
    };
    ldm.mut_subcommands(with_own)
}

/// A name that is already a verb's stays that verb's only.
fn of_verbs(ldm: &Command) -> BTreeMap<String, Vec<String>> {
    let mut taken: Vec<String> = ldm.get_subcommands().flat_map(names).collect();
    let mut fresh = |verb: &Command| {
        let fresh: Vec<String> = forms(verb.get_name()).into_iter().filter(|form| !taken.contains(form)).collect();
        taken.extend(fresh.iter().cloned());
        (verb.get_name().to_owned(), fresh)
    };
    ldm.get_subcommands().map(&mut fresh).collect()
}

fn names(verb: &Command) -> Vec<String> {
    [verb.get_name()].into_iter().chain(verb.get_all_aliases()).map(str::to_owned).collect()
}

/// Returns the other names of a verb.
pub(super) fn forms(verb: &str) -> Vec<String> {
    let mut forms: Vec<String> =
        SHORTCUTS.iter().filter(|(of, _)| *of == verb).map(|(_, short)| (*short).to_owned()).collect();
    if let Some((action, resource)) = verb.split_once('-') {
        for action in group(ACTIONS, action) {
            forms.extend(group(RESOURCES, resource).iter().map(|resource| format!("{action}-{resource}")));
        }
    }
    forms.retain(|form| form != verb);
    forms
}

/// Returns all forms of a word.
fn group<'a>(groups: &[&'a [&'a str]], word: &'a str) -> Vec<&'a str> {
    groups.iter().find(|group| group.contains(&word)).map_or_else(|| vec![word], |group| group.to_vec())
}

/// Names the verbs nearest to an unknown one, the nearest first. clap lists all similar ones, with the nearest last.
pub(in crate::cli) fn tip(error: &mut clap::Error, command: &Command) {
    let Some(ContextValue::String(written)) = error.get(ContextKind::InvalidSubcommand) else { return };
    let written = written.clone();
    let Some(ContextValue::Strings(alike)) = error.get(ContextKind::SuggestedSubcommand) else { return };
    let is_below = |command: &&Command| alike.iter().all(|name| command.find_subcommand(name).is_some());
    let Some(parent) = [command].into_iter().chain(command.get_subcommands()).find(is_below) else { return };
    let mut ranked: Vec<(usize, &str)> = parent
        .get_subcommands()
        .filter(|verb| !verb.is_hide_set() && names(verb).iter().any(|name| alike.contains(name)))
        .filter_map(|verb| Some((names(verb).iter().map(|name| distance(&written, name)).min()?, verb.get_name())))
        .collect();
    ranked.sort_by_key(|(distance, _)| *distance);
    let tips = ranked.into_iter().take(TIPS).map(|(_, verb)| verb.to_owned()).collect();
    error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(tips));
}

/// A different action counts for more than a few letters of the resource.
fn distance(written: &str, name: &str) -> usize {
    match (written.split_once('-'), name.split_once('-')) {
        (Some((action, resource)), Some((other, known))) => {
            2 * letters_apart(action, other) + letters_apart(resource, known)
        }
        _ => 2 * letters_apart(written, name),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::arguments;

    fn refused(verb: &str) -> Option<String> {
        let words = ["vtax", "ldm", verb].map(OsString::from);
        let error = arguments::read(words).err()?;
        error.get(ContextKind::InvalidSubcommand)?;
        Some(error.to_string())
    }

    #[test]
    fn every_name_of_a_verb_is_taken() {
        let verbs = "add-vswitch set-vswitch rm-vswitch remove-vswitch add-config set-config rm-config list-config ls-config \
                     ls-spconfig add-dom set-dom rm-dom remove-dom ls-dom list-dom bind-dom unbind-dom start-dom stop-dom \
                     add-mem set-mem rm-mem remove-mem rm-memory add-vcpu rm-vcpu remove-vcpu add-core rm-core remove-core \
                     add-var set-var rm-var add-variable add-vconscon rm-vconscon set-vconsole add-vdiskserver \
                     remove-vdiskserver add-vdiskserverdevice rm-vdiskserverdevice remove-vdsdev ls-bindings ls-constraints \
                     ls-services ls-devices ls-dependencies ls-io ls list create destroy bind unbind start stop modify \
                     cancel-op start-reconfig panic panic-dom cancel-reconfig remove-vnet rm-io ls-var";
        for verb in verbs.split_whitespace() {
            assert_eq!(refused(verb), None, "{verb}");
        }
    }

    #[test]
    fn the_first_tip_is_the_right_verb() {
        for (written, right) in [
            ("add-cpu", "add-vcpu"),
            ("rm-cpu", "remove-vcpu"),
            ("set-cpu", "set-vcpu"),
            ("add-vconfig", "add-spconfig"),
            ("list-configs", "list-spconfig"),
            ("add-switch", "add-vsw"),
            ("set-cores", "set-core"),
            ("add-disk", "add-vdisk"),
            ("remove-net", "remove-vnet"),
            ("list-binding", "list-bindings"),
            ("stop-domains", "stop-domain"),
            ("strat", "start-domain"),
            ("lst", "list-domain"),
        ] {
            let told = refused(written).expect("no such verb");
            let tip = told.split("tip:").nth(1).and_then(|tip| tip.lines().next()).expect("a tip");
            let first = tip.split('\'').nth(1).expect("a verb");
            assert_eq!(first, right, "{told}");
            assert!(tip.matches('\'').count() <= 2 * TIPS, "{told}");
        }
    }
}
