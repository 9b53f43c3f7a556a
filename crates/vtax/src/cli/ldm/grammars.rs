//! Grammars of the verbs that configure objects with properties.

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
