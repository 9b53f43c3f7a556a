//! Both ends of every test on the loopback interface; no privilege is needed.

mod connections;
mod engines;
mod faults;
mod handover;
mod load;
mod loss;
mod outage;
mod packets;
mod pair;
mod places;
mod processor;
mod series;
mod slices;
mod stages;
mod strangers;
mod workloads;
