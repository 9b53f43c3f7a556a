//! Writer of such a document.

use std::fmt::{Display, Write};

use vtax_model::domain::{
    Configuration, Configured, Constraints, CpuDemand, HostDevices, PRIMARY, Property, VolumeName, XML_ADDRESS,
};

use super::kind;

const HEAD: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<LDM_interface version="1.3" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:ovf="./schemas/envelope" xmlns:rasd="./schemas/CIM_ResourceAllocationSettingData" xmlns:gprop="./schemas/GenericProperty">
  <data version="3.0">
    <Envelope>
      <References/>
"#;
const FOOT: &str = "    </Envelope>\n  </data>\n</LDM_interface>\n";

/// Returns the whole configuration as XML.
pub fn write(all: &Configuration) -> String {
    let mut document = Document(HEAD.to_owned());
    document.content(PRIMARY, |items| {
        items.of_domain(&all.primary);
        for (name, switch) in &all.switches {
            items.object(kind::SWITCH, &[("service_name", name), ("ldom", &switch.service)], switch);
        }
        for (name, service) in &all.consoles {
            let mut ports = service.ports.ports();
            let first = ports.next().expect("a range isn't empty");
            let last = ports.last().unwrap_or(first);
            let names: [(&str, &dyn Display); 4] =
                [("service_name", name), ("ldom", &service.domain), ("min_port", &first), ("max_port", &last)];
            items.object(kind::CONSOLE_SERVICE, &names, service);
        }
        items.disk_services(all);
        items.of_devices(&all.devices);
    });
    for (name, domain) in &all.domains {
        document.content(name.as_str(), |items| items.of_domain(domain));
    }
    document.0 + FOOT
}

struct Document(String);

impl Document {
    fn content(&mut self, id: &str, items: impl FnOnce(&mut Document)) {
        let _ = writeln!(self.0, "      <Content xsi:type=\"ovf:VirtualSystem_Type\" ovf:id=\"{id}\">");
        items(self);
        self.0 += "      </Content>\n";
    }

    fn item(&mut self, kind: &str, parts: impl FnOnce(&mut Document)) {
        let section =
            if kind == kind::DOMAIN { "ovf:ResourceAllocationSection_Type" } else { "ovf:VirtualHardwareSection_Type" };
        let _ = writeln!(self.0, "        <Section xsi:type=\"{section}\">\n          <Item>");
        self.element("rasd:OtherResourceType", "", kind);
        parts(self);
        self.0 += "          </Item>\n        </Section>\n";
    }

    fn units(&mut self, count: u64) {
        self.element("rasd:AllocationUnits", "", count);
    }

    fn property(&mut self, key: &str, value: impl Display) {
        self.element("gprop:GenericProperty", &format!(" key=\"{key}\""), value);
    }

    fn optional(&mut self, key: &str, value: Option<impl Display>) {
        value.into_iter().for_each(|value| self.property(key, value));
    }

    /// Adds a property that is omitted if the list is empty.
    fn list<T: Display>(&mut self, key: &str, values: impl IntoIterator<Item = T>) {
        let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
        self.optional(key, Some(values.join(",")).filter(|_| !values.is_empty()));
    }

    fn element(&mut self, name: &str, attributes: &str, text: impl Display) {
        let text = text.to_string().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(self.0, "            <{name}{attributes}>{text}</{name}>");
    }

    fn of_domain(&mut self, domain: &Constraints) {
        self.object(kind::DOMAIN, &[], domain);
        match &domain.cpus {
            Some(CpuDemand::Vcpus(count)) => self.item(kind::VCPUS, |item| item.units((*count).into())),
            Some(CpuDemand::Cores(count)) => self.item(kind::CORES, |item| item.units((*count).into())),
            Some(CpuDemand::Cids(ids)) => self.item(kind::CORES, |item| {
                item.units(ids.len() as u64);
                item.list("cid", ids);
            }),
            None => {}
        }
        if let Some(memory) = domain.memory {
            self.item(kind::MEMORY, |item| item.units(memory.0));
        }
        for (variable, value) in &domain.variables {
            self.item(kind::VARIABLE, |item| {
                item.property("name", variable);
                item.property("value", value);
            });
        }
        domain.vnets.iter().for_each(|vnet| self.object(kind::VNET, &[("vnet_name", &vnet.name)], vnet));
        for disk in &domain.disks {
            let VolumeName { volume, service } = &disk.volume;
            let names: [(&str, &dyn Display); 3] =
                [("vdisk_name", &disk.name), ("vol_name", volume), ("service_name", service)];
            self.object(kind::DISK, &names, disk);
        }
        for device in &domain.io {
            self.object(kind::DEVICE, &[("name", &device.name), ("type", &device.kind)], &device.settings);
        }
        let console = &domain.console;
        if *console != Default::default() {
            self.object(kind::CONSOLE, &[], console);
        }
    }

    /// Adds an item with names and the properties of a table. Its address comes first.
    fn object<T: Configured>(&mut self, kind: &str, names: &[(&str, &dyn Display)], object: &T) {
        let is_address = |property: &&Property<T>| property.xml == XML_ADDRESS;
        self.item(kind, |item| {
            let address = T::PROPERTIES.iter().find(is_address).and_then(|property| property.own(object));
            address.into_iter().for_each(|address| item.element("rasd:Address", "", address));
            names.iter().for_each(|(key, name)| item.property(key, name));
            let rest = T::PROPERTIES.iter().filter(|property| !property.xml.is_empty() && !is_address(property));
            rest.for_each(|property| item.optional(property.xml, property.own(object)));
        });
    }

    fn disk_services(&mut self, all: &Configuration) {
        for (name, service) in &all.disk_services {
            self.item(kind::DISK_SERVICE, |item| {
                item.property("service_name", name);
                item.property("ldom", &service.domain);
            });
        }
        for (name, volume) in all.volumes() {
            let VolumeName { volume: own, service } = &name;
            let names: [(&str, &dyn Display); 3] =
                [("vol_name", own), ("service_name", service), ("block_dev", &volume.backend)];
            self.object(kind::VOLUME, &names, volume);
        }
    }

    fn of_devices(&mut self, devices: &HostDevices) {
        for name in &devices.released {
            self.item(kind::RELEASED, |item| item.property("name", name));
        }
        for (bus, on) in &devices.iov {
            self.item(kind::BUS_IOV, |item| {
                item.property("name", bus);
                item.property("iov", if *on { "on" } else { "off" });
            });
        }
        for (name, settings) in &devices.functions {
            self.object(kind::FUNCTION, &[("name", name)], settings);
        }
    }
}
