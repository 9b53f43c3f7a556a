//! Sessions on a console server: real sockets on loopback, with guests that only consist of a serial socket.

mod access;
mod bounds;
mod changes;
mod flow;
mod menu;
mod rig;
mod telnet;
mod writing;
