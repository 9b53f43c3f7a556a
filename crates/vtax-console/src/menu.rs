//! Menu of a group with several consoles.

use std::fmt::Write as _;

use crate::table::{ConsoleId, GroupName};

/// User's choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MenuChoice {
    Nothing,
    Help,
    List,
    Quit,
    Id(ConsoleId),
    Name(String),
    Unknown,
}

impl MenuChoice {
    pub(crate) fn of(line: &str) -> MenuChoice {
        let line = line.trim();
        match line {
            "" => MenuChoice::Nothing,
            "h" | "?" => MenuChoice::Help,
            "l" => MenuChoice::List,
            "q" => MenuChoice::Quit,
            _ => MenuChoice::console(line).unwrap_or(MenuChoice::Unknown),
        }
    }

    fn console(line: &str) -> Option<MenuChoice> {
        if let Some(id) = line.strip_prefix('c') {
            return id.trim().parse().ok().map(|id| MenuChoice::Id(ConsoleId(id)));
        }
        let name = line.strip_prefix('n')?.trim();
        (!name.is_empty()).then(|| MenuChoice::Name(name.to_owned()))
    }
}

/// Text printed by `h`.
pub(crate) const HELP: &str = "  h        show this help
  l        list the consoles of the group
  c{id}    connect to the console of the domain with this number, e.g. c2
  n{name}  connect to the console of the domain with this name
  q        end the session
";

/// Returns the prompt, which scripts wait for. It begins with the host name.
pub(crate) fn prompt(host: &str, group: &GroupName) -> String {
    format!("\n{host}-vnts-{}: h, l, c{{id}}, n{{name}}, q:", group.name)
}

/// Returns the list, whose columns programs rely on.
pub(crate) fn list(consoles: impl Iterator<Item = (ConsoleId, String, bool)>) -> String {
    let mut list = format!("{:<20}{:<30}{:<25}\n", "DOMAIN ID", "DOMAIN NAME", "DOMAIN STATE");
    for (id, domain, online) in consoles {
        let state = if online { "online" } else { "offline" };
        writeln!(list, "{:<20}{domain:<30}{state:<25}", id.0).expect("a string takes all");
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_as_they_are_typed() {
        for (line, choice) in [
            ("", MenuChoice::Nothing),
            (" h ", MenuChoice::Help),
            ("l", MenuChoice::List),
            ("q", MenuChoice::Quit),
            ("c12", MenuChoice::Id(ConsoleId(12))),
            ("c 12", MenuChoice::Id(ConsoleId(12))),
            ("npluto", MenuChoice::Name("pluto".into())),
            ("n pluto", MenuChoice::Name("pluto".into())),
            ("nn", MenuChoice::Name("n".into())),
        ] {
            assert_eq!(MenuChoice::of(line), choice, "{line}");
        }
        for line in ["n", "c", "c-1", "c99999999999", "cpluto", "list", "x"] {
            assert_eq!(MenuChoice::of(line), MenuChoice::Unknown, "{line}");
        }
    }

    #[test]
    fn the_list_has_the_columns_that_programs_know() {
        let consoles = [(ConsoleId(2), "jupiter".into(), true), (ConsoleId(3), "pluto".into(), false)];
        assert_eq!(
            list(consoles.into_iter()),
            "DOMAIN ID           DOMAIN NAME                   DOMAIN STATE             \n\
             2                   jupiter                       online                   \n\
             3                   pluto                         offline                  \n"
        );
    }
}
