//! Sessions at a console server: real sockets on loopback, guests that are nothing but a serial socket.

mod access;
mod bounds;
mod changes;
mod flow;
mod menu;
mod rig;
mod telnet;
mod writing;
