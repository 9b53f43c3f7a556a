//! Owner of the other end of a connection on loopback. Requires root, to start a program as another user.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use vtax_sys::netlink::{UserId, owner_of_peer};

fn v4(address: SocketAddr) -> SocketAddrV4 {
    match address {
        SocketAddr::V4(address) => address,
        SocketAddr::V6(_) => panic!("{address} is of IPv6"),
    }
}

fn owner(stream: &TcpStream) -> Option<UserId> {
    owner_of_peer(v4(stream.local_addr().unwrap()), v4(stream.peer_addr().unwrap())).unwrap()
}

fn client_of(user: u32, port: u16) -> Child {
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; read -r");
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).stdin(Stdio::piped()).current_dir("/").uid(user).spawn().expect("these tests need root")
}

#[test]
fn the_owner_of_a_connection_is_reported_while_its_program_holds_it() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    for user in [0, 12345] {
        let mut client = client_of(user, port);
        let (mut stream, _) = listener.accept().unwrap();
        assert_eq!(owner(&stream), Some(UserId(user)));
        drop(client.stdin.take());
        client.wait().unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        assert_eq!(owner(&stream), None, "nobody holds it, and that isn't root");
    }
}

#[test]
fn a_program_that_listens_at_the_port_of_a_peer_is_not_its_owner() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = v4(listener.local_addr().unwrap());
    let nobody = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
    assert_eq!(owner_of_peer(nobody, address).unwrap(), None);
}
