//! The short help of the whole program: every command in a line, in the order in which a newcomer needs them.

use clap::{Command, Error, error::ErrorKind};

use super::PROGRAM;

/// The overview: at most 24 lines of at most 80 columns.
const TEXT: &str = "\
Measure network and disk overhead of virtualization
Usage: vtax [OPTIONS] COMMAND    (options: `vtax --help`, `vtax COMMAND -h`)
Start here  demo         Compare zone attachment methods (about 2 min)
            methods      List I/O methods available on this host
            studies      List built-in studies and their run times
Measure     run          Run or resume a study
            measure      Measure a single path or disk
            fleet        Measure many hosts, and name the slow ones
            calibrate    Check accuracy: clock, noise floor, references
            crosscheck   Compare with iperf3, sockperf, qperf, netperf, neper
Results     results      Manage stored results
            report       Create a report: HTML, charts, text or data
            ui           Browse results and watch runs
Decide      advise       Find the I/O methods that meet requirements
            size         Size an I/O domain: cores and memory
Host        tune         Check, apply, prove and revert tuning
            io           List PCI devices and manage virtual functions
            lab          Manage labs: hosts, wires, zones and guests
            ldm          Manage logical domains (Oracle ldm syntax)
            server       Manage a persistent emulated server
            agent        Check the agent on another host
More        explain      Explain an error code
            completions  Generate shell completions
            man          Generate manual pages
";

/// Returns the overview if `error` is the short help of the whole program, which clap gives for `-h` and for a command
/// line without words.
pub(super) fn in_place_of(error: &Error, program: &mut Command) -> Option<Error> {
    let words: &[&str] = match error.kind() {
        ErrorKind::DisplayHelp => &[PROGRAM, "-h"],
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => &[PROGRAM],
        _ => return None,
    };
    // The error doesn't say whose help it is.
    if error.render().to_string() != program.render_help().to_string() {
        return None;
    }
    let overview = Command::new(PROGRAM).override_help(TEXT).arg_required_else_help(true);
    overview.try_get_matches_from(words).err()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::CommandFactory;

    use super::{
        super::{CommandLine, arguments},
        *,
    };

    fn shown(words: &str) -> Error {
        arguments::read(words.split(' ').map(OsString::from)).expect_err("help")
    }

    #[test]
    fn the_overview_fits_on_a_small_screen() {
        assert!(TEXT.lines().count() <= 24, "{} lines", TEXT.lines().count());
        for line in TEXT.lines() {
            assert!(line.chars().count() <= 80 && line == line.trim_end(), "{line}");
        }
    }

    #[test]
    fn the_overview_names_every_command_in_the_order_of_the_long_help() {
        let named = TEXT.lines().skip(2).filter_map(|line| line.get(12..)?.split(' ').next());
        let named: Vec<&str> = named.collect();
        let program = CommandLine::command();
        let commands = program.get_subcommands().filter(|command| !command.is_hide_set());
        let commands: Vec<&str> = commands.map(Command::get_name).collect();
        assert_eq!(named, commands);
    }

    #[test]
    fn the_overview_is_the_short_help_of_the_whole_program_only() {
        for words in ["vtax -h", "/usr/bin/vtax --quiet -h"] {
            let help = shown(words);
            assert_eq!((help.kind(), help.to_string().as_str()), (ErrorKind::DisplayHelp, TEXT), "{words}");
        }
        let nothing = shown("vtax");
        assert_eq!(nothing.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
        assert_eq!(nothing.to_string(), TEXT);
        for words in ["vtax --help", "vtax help", "vtax run -h", "vtax lab", "vtax ldm -h"] {
            let help = shown(words).to_string();
            assert!(help.contains("Usage: ") && help != TEXT, "{words}: {help}");
        }
    }
}
