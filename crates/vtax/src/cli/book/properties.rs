//! The properties in `docs/ldm.md`: generated from their tables, and compared with them.

use std::fmt::Write;

use vtax_model::domain::{
    Configured, ConsoleService, Constraints, FunctionSettings, Property, PropertyEffect, PropertyVerb, Switch,
    VirtualConsole, VirtualDisk, VirtualNic, Volume,
};

use super::generated;

#[test]
fn the_page_has_the_tables_of_properties() {
    let tables = [
        table::<Constraints>("Domains", "domain"),
        table::<Switch>("Virtual switches", "vsw"),
        table::<VirtualNic>("Virtual NICs", "vnet"),
        table::<Volume>("Volumes", "vdsdev"),
        table::<VirtualDisk>("Virtual disks", "vdisk"),
        table::<FunctionSettings>("Virtual functions", "io"),
        table::<ConsoleService>("Console services", "vcc"),
        table::<VirtualConsole>("Consoles", "vcons"),
    ];
    generated::check("ldm.md", "tables of properties", &format!("\n{}", tables.concat()));
}

fn table<T: Configured>(title: &str, object: &str) -> String {
    let mut text = format!("**{title}** (`set-{object}`)\n\n| property | meaning | takes effect |\n|---|---|---|\n");
    for property in T::PROPERTIES {
        let verb = if can_be_set(property) { PropertyVerb::Set } else { PropertyVerb::Add };
        let value = property.usage(verb).replace('|', "\\|");
        let Property { key, meaning, requires, .. } = property;
        let requires = if requires.is_empty() { String::new() } else { format!(". Requires {requires}") };
        let _ = writeln!(text, "| `{key}={value}` | {meaning}{requires} | {} |", effect(property));
    }
    text + "\n"
}

fn can_be_set<T: Configured>(property: &Property<T>) -> bool {
    Property::<T>::of_verb(PropertyVerb::Set).any(|known| known.key == property.key)
}

fn effect<T: Configured>(property: &Property<T>) -> &'static str {
    match property.effect {
        _ if !can_be_set(property) => "when it is added",
        PropertyEffect::Now(_) | PropertyEffect::OnHost => "immediately",
        PropertyEffect::AtBoot => "at the domain's next boot",
        PropertyEffect::Unused => "immediately; no bound domain may use it",
    }
}
