//! Grammars of the verbs that configure objects with properties.

use vtax_model::domain::VirtualNic;

use super::words::Grammar;

pub(super) const ADD_VNET: Grammar = Grammar::add::<VirtualNic>("add-vnet", &["VNET", "SWITCH", "DOMAIN"]);
pub(super) const SET_VNET: Grammar = Grammar::set::<VirtualNic>("set-vnet", &["VNET", "DOMAIN"]);
