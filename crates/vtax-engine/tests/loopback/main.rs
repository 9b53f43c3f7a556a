//! Both ends of every test on the loopback interface; no privilege is needed.

mod faults;
mod loss;
mod pair;
mod workloads;
