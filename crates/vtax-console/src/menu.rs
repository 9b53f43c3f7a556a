//! The menu of a group with several consoles.

use crate::table::{Console, ConsoleGroup};

/// A line of the menu is no longer: names of domains have 32 characters.
pub(crate) const LONGEST_LINE: usize = 64;

/// What a user wants who is at the menu.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MenuChoice {
    Help,
    List,
    Connect(Console),
    Quit,
    /// Why there is no such console.
    Unknown(String),
    Nothing,
}

/// What is printed before a line is read.
pub(crate) fn prompt(host: &str, group: &str) -> String {
    format!("{host}-vnts-{group}: h, l, c{{id}}, n{{name}}, q:")
}

pub(crate) fn choice(line: &str, group: &ConsoleGroup) -> MenuChoice {
    let line = line.trim();
    let found = |is: &dyn Fn(&Console) -> bool| {
        let console = group.consoles.iter().find(|console| is(console)).cloned();
        console.map_or_else(
            || MenuChoice::Unknown(format!("There is no console `{}` here.", &line[1..])),
            MenuChoice::Connect,
        )
    };
    match line.as_bytes() {
        [] => MenuChoice::Nothing,
        b"h" => MenuChoice::Help,
        b"l" => MenuChoice::List,
        b"q" => MenuChoice::Quit,
        [b'c', ..] => found(&|console| line[1..].trim().parse() == Ok(console.id)),
        [b'n', ..] => found(&|console| console.domain == line[1..].trim()),
        _ => MenuChoice::Unknown("Write h for help.".to_owned()),
    }
}

pub(crate) fn list(group: &ConsoleGroup) -> String {
    let line = |id: &str, name: &str, state: &str| format!("{id:<20}{name:<30}{state:<25}\r\n");
    let mut text = line("DOMAIN ID", "DOMAIN NAME", "DOMAIN STATE");
    for console in &group.consoles {
        let state = if console.socket.exists() { "online" } else { "offline" };
        text += &line(&console.id.to_string(), &console.domain, state);
    }
    text
}

pub(crate) const HELP: &str = "\
h          this help\r
l          list the consoles of this group\r
c{id}      connect to the console of the domain with this number, as c2\r
n{name}    connect to the console of the domain with this name, as npluto\r
q          end this session\r
";

/// What is printed when somebody has connected to a console.
pub(crate) fn connecting(domain: &str, group: &str) -> String {
    format!("Connecting to console \"{domain}\" in group \"{group}\" ....\r\nPress ~? for control options ..\r\n")
}

pub(crate) const CONTROL_OPTIONS: &str = "\r
~.   leave this console\r
~w   take write access from who has it\r
~#   send a break\r
~^B  send an alternate break\r
~n   go to the next console of the group\r
~p   go to the previous console of the group\r
~~   send one ~\r
~?   this help\r
";

#[cfg(test)]
mod tests {
    use super::*;

    fn planets() -> ConsoleGroup {
        let console = |id, domain: &str| Console {
            id,
            domain: domain.to_owned(),
            socket: "/dev/null".into(),
            log: "/dev/null".into(),
        };
        ConsoleGroup {
            name: "planets".to_owned(),
            port: 5002,
            consoles: vec![console(2, "jupiter"), console(3, "pluto")],
        }
    }

    /// As an article of 2012 shows it.
    #[test]
    fn the_menu_is_that_of_vntsd() {
        assert_eq!(prompt("sun", "planets"), "sun-vnts-planets: h, l, c{id}, n{name}, q:");
        let shown = "\
DOMAIN ID           DOMAIN NAME                   DOMAIN STATE             \r
2                   jupiter                       online                   \r
3                   pluto                         online                   \r
";
        assert_eq!(list(&planets()), shown);
        assert_eq!(
            connecting("pluto", "planets"),
            "Connecting to console \"pluto\" in group \"planets\" ....\r\nPress ~? for control options ..\r\n"
        );
    }

    #[test]
    fn a_console_is_chosen_by_number_or_name() {
        let planets = planets();
        let chosen = |line: &str| match choice(line, &planets) {
            MenuChoice::Connect(console) => console.domain,
            other => format!("{other:?}"),
        };
        assert_eq!([chosen("c2"), chosen("npluto"), chosen(" n pluto ")], ["jupiter", "pluto", "pluto"]);
        assert_eq!(
            [choice("l", &planets), choice("h", &planets), choice("q", &planets)],
            [MenuChoice::List, MenuChoice::Help, MenuChoice::Quit]
        );
        assert_eq!(choice("", &planets), MenuChoice::Nothing);
        for odd in ["c9", "nmars", "x", "c", "n", "cé", "~", "C2"] {
            assert!(matches!(choice(odd, &planets), MenuChoice::Unknown(_)), "{odd}");
        }
    }
}
