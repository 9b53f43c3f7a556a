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
            |to, text| set(&mut to.policy, text),
            |it| written(Some(it.failure_policy)),
        )
        .means("Action on the domains that have this one as a master when it fails. Default: ignore")
        .now(|domain, wanted| domain.failure_policy = wanted.failure_policy),
        DomainProperty::new(
            "master",
            "DOMAIN,…",
            |to, text| set_all::<Name, _>(&mut to.masters, text),
            |it| joined(&it.masters),
        )
        .means("Domains that it depends on, at most four")
        .unlisted()
        .now(|domain, wanted| domain.masters.clone_from(&wanted.masters)),
        DomainProperty::new(
            "autostart",
            "yes|no",
            |to, text| {
                to.autostart = Some(yes_or_no(text)?);
                Ok(())
            },
            |it| it.autostart.then(|| "yes".to_owned()),
        )
        .means("Bind and start the domain when the host boots. Default: no")
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
