//! Grammars of the verbs that configure objects with properties.

use clap::Command;
use vtax_model::domain::{
    ConsoleService, Constraints, FunctionSettings, Switch, VirtualConsole, VirtualDisk, VirtualNic, Volume,
};

use super::words::Grammar;

pub(super) const ADD_DOMAIN: Grammar = Grammar::add::<Constraints>("add-domain", &["DOMAIN"]);
pub(super) const SET_DOMAIN: Grammar = Grammar::set::<Constraints>("set-domain", &["DOMAIN"]);
pub(super) const ADD_VSW: Grammar = Grammar::add::<Switch>("add-vsw", &["SWITCH", "DOMAIN"]).options("[-q] ");
pub(super) const SET_VSW: Grammar = Grammar::set::<Switch>("set-vsw", &["SWITCH", "DOMAIN"]).or_one_less();
pub(super) const ADD_VNET: Grammar = Grammar::add::<VirtualNic>("add-vnet", &["VNET", "SWITCH", "DOMAIN"]);
pub(super) const SET_VNET: Grammar = Grammar::set::<VirtualNic>("set-vnet", &["VNET", "DOMAIN"]);
pub(super) const ADD_VDSDEV: Grammar =
    Grammar::add::<Volume>("add-vdsdev", &["BACKEND", "VOLUME@SERVICE"]).options("[-q] ");
pub(super) const SET_VDSDEV: Grammar = Grammar::set::<Volume>("set-vdsdev", &["VOLUME@SERVICE"]);
pub(super) const ADD_VDISK: Grammar = Grammar::add::<VirtualDisk>("add-vdisk", &["DISK", "VOLUME@SERVICE", "DOMAIN"]);
pub(super) const SET_VDISK: Grammar = Grammar::set::<VirtualDisk>("set-vdisk", &["DISK", "DOMAIN"]);
pub(super) const ADD_VCC: Grammar = Grammar::add::<ConsoleService>("add-vcc", &["SERVICE", "DOMAIN"]);
pub(super) const SET_VCC: Grammar = Grammar::set::<ConsoleService>("set-vcc", &["SERVICE"]);
pub(super) const SET_VCONS: Grammar = Grammar::set::<VirtualConsole>("set-vcons", &["DOMAIN"]);
pub(super) const CREATE_VF: Grammar =
    Grammar::add::<FunctionSettings>("create-vf", &["PF"]).options("[-n N|max] [OPTIONS] ");
pub(super) const SET_IO: Grammar = Grammar::set::<FunctionSettings>("set-io", &["DEVICE"]).and(&["iov", "vid"]);

/// Grammars that are the whole usage of their verbs.
const WHOLE_USAGE: [Grammar; 12] = [
    ADD_VSW, SET_VSW, ADD_VNET, SET_VNET, ADD_VDSDEV, SET_VDSDEV, ADD_VDISK, SET_VDISK, ADD_VCC, SET_VCC, SET_VCONS,
    CREATE_VF,
];

/// Shows the grammars of verbs in their help.
pub(in crate::cli) fn with_grammars(ldm: Command) -> Command {
    ldm.mut_subcommands(|verb| match WHOLE_USAGE.iter().find(|grammar| grammar.is_of(verb.get_name())) {
        Some(grammar) => verb.override_usage(grammar.help()),
        None => verb,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_shows_what_a_verb_accepts() {
        let usage = "vtax ldm set-vsw [net-dev=[LINK]] [mac-addr=MAC] [pvid=VLAN] [vid=[+|-][VLAN,…]] [mtu=BYTES] SWITCH \
                     [DOMAIN]";
        assert_eq!(SET_VSW.help(), usage);
        let usage = "vtax ldm add-vdisk [id=NUMBER] [timeout=SECONDS] DISK VOLUME@SERVICE DOMAIN";
        assert_eq!(ADD_VDISK.help(), usage);
        let usage = "vtax ldm create-vf [-n N|max] [OPTIONS] [mac-addr=MAC] [pvid=VLAN] [mtu=BYTES] PF";
        assert_eq!(CREATE_VF.help(), usage);
    }
}
