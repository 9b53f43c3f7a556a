//! Pairs whose endpoints are logical domains, or a domain and its host.

use std::rc::Rc;

use miette::miette;
use vtax_domain::{BindError, SwitchPort};
use vtax_model::endpoint::{Control, DomainEnd, Endpoint, LabHost};

use super::{
    attachment::{
        Attachment,
        lab_place::LabPlace,
        ldm_domain::{LdmEnd, PrimaryEnd},
        machine::MachineEnd,
    },
    domain_place::DomainPlace,
    endpoints::EndpointConnector,
};
use crate::{
    labs,
    stop::{Blamed, Stop},
};

impl EndpointConnector<'_> {
    /// Resolves two endpoints if at least one is a logical domain. Both are checked, and nothing is changed.
    pub(super) fn domains_at(&mut self, endpoints: [&Endpoint; 2]) -> Result<Option<[Box<dyn Attachment>; 2]>, Stop> {
        let ends = match endpoints.map(|endpoint| &endpoint.control) {
            [Control::Domain(one), Control::Domain(other)] => [Some(one.clone()), Some(other.clone())],
            [Control::Domain(one), _] => [Some(one.clone()), self.as_primary(one, endpoints[1])?],
            [_, Control::Domain(other)] => [self.as_primary(other, endpoints[0])?, Some(other.clone())],
            _ => return Ok(None),
        };
        if let [Some(one), Some(other)] = &ends
            && one.within == other.within
        {
            return self.on_one_switch([one, other]).map(Some);
        }
        let mut places = self.places(endpoints)?.into_iter();
        let mut attached = Vec::new();
        for (endpoint, end) in endpoints.into_iter().zip(ends) {
            let place = places.next().flatten();
            attached.push(match end {
                Some(end) => {
                    let host = self.domain_place(end.within.as_ref())?;
                    let port = host.ports(&end)?.into_iter().next();
                    let none = || Stop::from(BindError::NoNic { domain: end.domain.clone() });
                    self.switch_end(&host, &end, port.ok_or_else(none)?)?
                }
                None => self.attach(endpoint, place)?,
            });
        }
        Ok(attached.try_into().ok())
    }

    /// Returns the other endpoint as the domain `primary`, if it is the domain's host and has no explicit address.
    fn as_primary(&mut self, domain: &DomainEnd, other: &Endpoint) -> Result<Option<DomainEnd>, Stop> {
        let is_host = match (&other.control, &domain.within) {
            (Control::Local, None) => true,
            (Control::Zone { lab, domain }, Some(within)) if *domain == within.host => {
                self.lab(lab.as_ref(), domain)?.blueprint().lab == within.lab
            }
            _ => false,
        };
        Ok((is_host && other.address.is_none()).then(|| DomainEnd::primary(domain.within.clone())))
    }

    fn on_one_switch(&mut self, ends: [&DomainEnd; 2]) -> Result<[Box<dyn Attachment>; 2], Stop> {
        let host = self.domain_place(ends[0].within.as_ref())?;
        if ends[0].domain == ends[1].domain {
            let domain = &ends[0].domain;
            let instead = if ends[0].is_primary() { "a domain" } else { "another domain, or primary," };
            return Err(Stop::input(miette!(
                code = "ends-not-paired",
                "both endpoints are {domain}, whose packets to itself use no NIC; name {instead} as one of them"
            )));
        }
        let [ones, others] = [host.ports(ends[0])?, host.ports(ends[1])?];
        let [one, other] = SwitchPort::pair(&ones, &others).map_err(Stop::from)?;
        Ok([self.switch_end(&host, ends[0], one)?, self.switch_end(&host, ends[1], other)?])
    }

    fn switch_end(
        &mut self,
        host: &Rc<DomainPlace>,
        end: &DomainEnd,
        port: SwitchPort,
    ) -> Result<Box<dyn Attachment>, Stop> {
        if end.is_primary() {
            let stack: Box<dyn Attachment> = match &host.lab {
                Some(place) => place.clone().attach(false).or_infrastructure()?,
                None => Box::new(MachineEnd::Local),
            };
            return Ok(Box::new(PrimaryEnd::new(Rc::clone(host), port, stack)));
        }
        Ok(Box::new(LdmEnd::new(Rc::clone(host), host.active(end)?, port)?))
    }

    pub(super) fn domain_place(&mut self, within: Option<&LabHost>) -> Result<Rc<DomainPlace>, Stop> {
        if let Some(place) = self.hosts.iter().find(|place| place.host.within() == within) {
            return Ok(Rc::clone(place));
        }
        let lab = within.map(|host| self.lab_host(host)).transpose()?;
        let place = Rc::new(DomainPlace::open(self.locations, within, lab)?);
        self.hosts.push(Rc::clone(&place));
        Ok(place)
    }

    fn lab_host(&mut self, host: &LabHost) -> Result<LabPlace, Stop> {
        let lab = self.lab(Some(&host.lab), &host.host)?;
        let endpoint = labs::end_of_wire(&lab, host)?;
        Ok(LabPlace { lab, endpoint })
    }
}
