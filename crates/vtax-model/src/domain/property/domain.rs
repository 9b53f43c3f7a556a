//! Properties of domains themselves.

use super::{Configured, Property, PropertyEffect, joined, set, set_all, written};
use crate::{
    domain::{Constraints, DomainSettings},
    topology::Name,
};

type DomainProperty = Property<Constraints>;

impl Configured for Constraints {
    type Change = DomainSettings;
    const EFFECT: PropertyEffect<Constraints> = PropertyEffect::AtBoot;
    const PROPERTIES: &'static [Property<Constraints>] = &[
        DomainProperty::new(
            "failure-policy",
            "ignore|panic|reset|stop",
            "What happens to the domains that have this one as a master when it fails. Default: ignore",
            |settings, text| set(&mut settings.policy, text),
            |domain| written(Some(domain.failure_policy)),
        )
        .now(|domain, wanted| domain.failure_policy = wanted.failure_policy),
        DomainProperty::new(
            "master",
            "DOMAIN,…",
            "Domains that it depends on, at most four",
            |settings, text| set_all::<Name, _>(&mut settings.masters, text),
            |domain| joined(&domain.masters),
        )
        .unlisted()
        .now(|domain, wanted| domain.masters.clone_from(&wanted.masters)),
        DomainProperty::new(
            "autostart",
            "yes|no",
            "It is bound and started when the host has booted. Default: no",
            |settings, text| {
                settings.autostart = Some(yes_or_no(text)?);
                Ok(())
            },
            |domain| domain.autostart.then(|| "yes".to_owned()),
        )
        .shown("autostart", |domain, _| written(Some(if domain.autostart { "yes" } else { "no" })))
        .now(|domain, wanted| domain.autostart = wanted.autostart),
    ];
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("`{text}` is neither yes nor no")),
    }
}
