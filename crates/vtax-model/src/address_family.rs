//! IPv4 and IPv6.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use strum::Display;
use toml::Spanned;

use crate::located::{FileError, Source};

/// Address family of a lab or a study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
pub enum AddressFamily {
    #[default]
    #[strum(to_string = "IPv4")]
    Ipv4,
    #[strum(to_string = "IPv6")]
    Ipv6,
}

impl AddressFamily {
    pub fn of(address: IpAddr) -> AddressFamily {
        if address.is_ipv4() { AddressFamily::Ipv4 } else { AddressFamily::Ipv6 }
    }

    /// Returns the family of a file that may name one, a range of addresses, or both.
    pub(crate) fn in_file(
        source: Source<'_>,
        family: Option<&Spanned<AddressFamily>>,
        addresses: Option<IpNet>,
    ) -> Result<AddressFamily, FileError> {
        let of_range = addresses.map(|range| AddressFamily::of(range.addr()));
        match (family, addresses, of_range) {
            (Some(named), Some(range), Some(other)) if *named.get_ref() != other => {
                let message =
                    format!("`family` is {}, and `addresses` are {other} ({range}); omit one", named.get_ref());
                Err(source.coded("address-families", &named.span(), message))
            }
            (Some(named), ..) => Ok(*named.get_ref()),
            (None, ..) => Ok(of_range.unwrap_or_default()),
        }
    }

    /// Returns the bytes of the IP header, without options and extensions.
    pub fn header(self) -> u32 {
        match self {
            AddressFamily::Ipv4 => 20,
            AddressFamily::Ipv6 => 40,
        }
    }

    /// Returns the smallest MTU of a link that carries it (RFC 791, RFC 8200).
    pub fn least_mtu(self) -> u32 {
        match self {
            AddressFamily::Ipv4 => 68,
            AddressFamily::Ipv6 => 1280,
        }
    }
}
