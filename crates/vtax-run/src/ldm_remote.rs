//! Orders to a host of logical domains on another machine.
//!
//! `vtax ldm serve --stdio` runs there, started over ssh. Each side sends the magic of vtax's control streams and a
//! hello, which are the same in every version, so each can report the other's version. After that, each frame to the
//! server is an order, answered by any number of notices and its result. Orders are executed one after another.
//!
//! An order is all that either side can do to the other. The server executes only [`DomainOrder`]s: it starts no
//! program of the other's choice, and reads no file for it except a domain's own. The client only prints what it
//! receives: a reply names no file that the client would open.

use std::{
    io::{BufReader, Read, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Stdio},
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, sync_channel},
    },
    time::Duration,
};

use miette::{MietteDiagnostic, Report, miette};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use vtax_domain::{BindError, DomainNotice, DomainOrder, DomainReply};
use vtax_model::{endpoint::LabHost, foreign::ForeignText, units::ByteSize};
use vtax_sys::process::{Pid, ProcessId};
use vtax_wire::{
    frame::{self, FrameError, HELLO_MOST, MAGIC},
    protocol::VERSION,
    ssh::Ssh,
};

use crate::{
    stop::{Blamed, Stop},
    threads::start,
};

/// Version of orders and replies. It grows with each change that the other side would not understand.
const ORDERS: u32 = 6;
/// Maximum size of an order: a configuration of the maximum number of domains.
const ORDER_MOST: ByteSize = ByteSize(32 << 20);
/// Maximum size of an answer: such a configuration, and the resources bound to the domains.
const ANSWER_MOST: ByteSize = ByteSize(128 << 20);
/// Maximum quoted standard error of ssh and the login shell, in bytes.
const ERRORS_MOST: u64 = 4 << 10;
/// Time limit for ssh to exit after its connection has failed.
const ENDING: Duration = Duration::from_secs(1);

/// First frame of each side. Its fields are the same in every version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LdmHello {
    orders: u32,
    /// Version of vtax, for errors.
    program: ForeignText,
}

impl LdmHello {
    fn own() -> LdmHello {
        LdmHello { orders: ORDERS, program: VERSION.into() }
    }

    fn check(&self, other: &str) -> Result<(), Stop> {
        if self.orders == ORDERS {
            return Ok(());
        }
        let LdmHello { orders, program } = self;
        Err(Stop::infrastructure(miette!(
            code = "ldm-version",
            "vtax {program} at {other} uses version {orders} of the domain protocol, and this vtax {VERSION} uses \
             version {ORDERS}; install the same vtax on both"
        )))
    }
}

/// Frame from the server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OrderFrame {
    Notice(DomainNotice),
    Done(Box<DomainReply>),
    Refused(OrderRefusal),
}

/// Error of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderRefusal {
    code: Option<String>,
    message: ForeignText,
    /// True if the order itself is at fault, and not the host.
    is_of_input: bool,
}

impl From<BindError> for OrderRefusal {
    fn from(error: BindError) -> OrderRefusal {
        (&Stop::from(error)).into()
    }
}

impl From<&Stop> for OrderRefusal {
    fn from(stop: &Stop) -> OrderRefusal {
        OrderRefusal { code: stop.code(), message: stop.to_string().into(), is_of_input: stop.is_of_input() }
    }
}

impl From<OrderRefusal> for Stop {
    fn from(refusal: OrderRefusal) -> Stop {
        let OrderRefusal { code, message, is_of_input } = refusal;
        let error = MietteDiagnostic { code, ..MietteDiagnostic::new(message.to_string()) };
        if is_of_input { Stop::input(Report::new(error)) } else { Stop::infrastructure(Report::new(error)) }
    }
}

fn greet(reader: &mut BufReader<impl Read>, writer: &mut impl Write, other: &str) -> Result<(), Stop> {
    let own = frame::encode(&LdmHello::own(), HELLO_MOST).or_infrastructure()?;
    // If the other side is gone, the read below reports the reason.
    let _ = writer.write_all(&[MAGIC.as_slice(), &own].concat()).and_then(|()| writer.flush());
    let magic = frame::read_magic(reader).or_infrastructure()?;
    let hello: Option<LdmHello> = magic.map(|()| next(reader, HELLO_MOST)).transpose().or_infrastructure()?.flatten();
    let gone = || Stop::infrastructure(miette!(code = "ssh-failed", "no vtax answered at {other}"));
    hello.ok_or_else(gone)?.check(other)
}

fn next<T: DeserializeOwned>(reader: &mut impl Read, most: ByteSize) -> Result<Option<T>, FrameError> {
    frame::read_frame(reader, most)?.map(|body| frame::parse(&body)).transpose()
}

/// Side that executes orders.
#[derive(Debug)]
pub struct OrderServer<W> {
    writer: Mutex<W>,
}

impl<W: Write> OrderServer<W> {
    pub fn new(writer: W) -> OrderServer<W> {
        OrderServer { writer: Mutex::new(writer) }
    }

    /// Passes on a notice while an order is executed.
    pub fn notice(&self, notice: DomainNotice) {
        // Even without a reader, the order is executed.
        let _ = self.send(&OrderFrame::Notice(notice));
    }

    fn send(&self, answer: &OrderFrame) -> Result<(), Stop> {
        let bytes = frame::encode(answer, ANSWER_MOST).or_infrastructure()?;
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let written = writer.write_all(&bytes).and_then(|()| writer.flush());
        written.map_err(FrameError::Io).or_infrastructure()
    }

    /// Executes orders until `reader` ends. An order that can't be parsed is refused.
    pub fn serve(
        &self,
        reader: impl Read,
        mut execute: impl FnMut(DomainOrder) -> Result<DomainReply, OrderRefusal>,
    ) -> Result<(), Stop> {
        let mut reader = BufReader::new(reader);
        greet(&mut reader, &mut *self.writer.lock().unwrap_or_else(PoisonError::into_inner), "the other side")?;
        while let Some(body) = frame::read_frame(&mut reader, ORDER_MOST).or_infrastructure()? {
            let order = frame::parse::<DomainOrder>(&body).map_err(|error| OrderRefusal::from(&Stop::input(error)));
            let ended = order.and_then(&mut execute).map(Box::new);
            self.send(&ended.map_or_else(OrderFrame::Refused, OrderFrame::Done))?;
        }
        Ok(())
    }
}

/// Side that gives orders.
pub struct OrderLink<R, W> {
    name: String,
    reader: BufReader<R>,
    writer: W,
    hear: Box<dyn Fn(DomainNotice) + Send + Sync>,
}

impl<R: Read, W: Write> OrderLink<R, W> {
    /// Greets a server. `hear` receives its notices.
    pub fn open(
        name: &str,
        reader: R,
        mut writer: W,
        hear: impl Fn(DomainNotice) + Send + Sync + 'static,
    ) -> Result<OrderLink<R, W>, Stop> {
        let mut reader = BufReader::new(reader);
        greet(&mut reader, &mut writer, name)?;
        Ok(OrderLink { name: name.to_owned(), reader, writer, hear: Box::new(hear) })
    }

    /// Sends an order, and waits for its result.
    pub fn order(&mut self, order: &DomainOrder) -> Result<DomainReply, Stop> {
        Ok(self.exchange(order)??)
    }

    /// Does the same, and distinguishes a refusal from a lost connection.
    fn exchange(&mut self, order: &DomainOrder) -> Result<Result<DomainReply, OrderRefusal>, Stop> {
        let bytes = frame::encode(order, ORDER_MOST).or_input()?;
        self.writer.write_all(&bytes).and_then(|()| self.writer.flush()).map_err(FrameError::Io).or_infrastructure()?;
        loop {
            match next(&mut self.reader, ANSWER_MOST).or_infrastructure()? {
                Some(OrderFrame::Notice(notice)) => (self.hear)(notice),
                Some(OrderFrame::Done(reply)) => return Ok(Ok(*reply)),
                Some(OrderFrame::Refused(refusal)) => return Ok(Err(refusal)),
                None => {
                    return Err(Stop::infrastructure(miette!(
                        code = "agent-lost",
                        "vtax at {} exited before the command was complete; check its effects there (vtax ldm list)",
                        self.name
                    )));
                }
            }
        }
    }
}

/// A host of logical domains on another machine, reached over ssh.
pub struct RemoteLdm {
    link: OrderLink<ChildStdout, ChildStdin>,
    ssh: Child,
}

impl RemoteLdm {
    /// Logs in to `host`, in ssh's notation, and starts the server there: for that machine, or for a host of a lab on
    /// it.
    pub fn connect(
        ssh: &Ssh,
        host: &str,
        within: Option<&LabHost>,
        hear: impl Fn(DomainNotice) + Send + Sync + 'static,
    ) -> Result<RemoteLdm, Stop> {
        let within = within.map(|within| format!("--in {within} ")).unwrap_or_default();
        let mut command = ssh.remote(host, format!("vtax ldm {within}serve --stdio")).or_input()?;
        // A separate process group: Ctrl-C is for vtax, which may still have to send an order that undoes its changes.
        let started =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn();
        let mut ssh = started.map_err(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            Stop::infrastructure(miette!(
                code = "no-ssh-client",
                "cannot reach {host}: cannot start `{program}`: {error}; install the OpenSSH client"
            ))
        })?;
        let errors = ssh.stderr.take().map(errors_of).transpose().or_infrastructure()?;
        let (reader, writer) = (ssh.stdout.take().expect("it is piped"), ssh.stdin.take().expect("it is piped"));
        match OrderLink::open(host, reader, writer, hear) {
            Ok(link) => Ok(RemoteLdm { link, ssh }),
            Err(stop) => Err(explained(stop, host, &mut ssh, errors.as_ref())),
        }
    }

    pub fn order(&mut self, order: &DomainOrder) -> Result<DomainReply, Stop> {
        self.link.order(order)
    }

    /// Does the same. After an outer error, the connection is lost.
    pub(crate) fn exchange(&mut self, order: &DomainOrder) -> Result<Result<DomainReply, OrderRefusal>, Stop> {
        self.link.exchange(order)
    }
}

/// Collects the standard error of ssh and the login shell, which is text of the other machine. ssh asks for a password
/// at the terminal itself.
fn errors_of(mut errors: ChildStderr) -> miette::Result<Receiver<ForeignText>> {
    let (sender, receiver) = sync_channel(1);
    start("ssh-errors", move || {
        let mut told = Vec::new();
        let _ = errors.by_ref().take(ERRORS_MOST).read_to_end(&mut told);
        // After a successful connection, nobody waits for it.
        let _ = sender.try_send(String::from_utf8_lossy(&told).trim().into());
        // ssh must not block on the rest.
        let _ = std::io::copy(&mut errors, &mut std::io::sink());
    })?;
    Ok(receiver)
}

/// Adds the reason why ssh ended.
fn explained(stop: Stop, host: &str, ssh: &mut Child, errors: Option<&Receiver<ForeignText>>) -> Stop {
    const NOT_FOUND: i32 = 127;
    // It is still running if something other than vtax has answered.
    if !ProcessId::of(Pid(ssh.id())).is_ok_and(|process| matches!(process.wait_end(ENDING), Ok(true))) {
        let _ = ssh.kill();
    }
    let has_failed = stop.code().as_deref() == Some("ssh-failed");
    let said = errors.filter(|_| has_failed).and_then(|errors| errors.recv_timeout(ENDING).ok());
    match ssh.wait().ok().and_then(|status| status.code()) {
        Some(NOT_FOUND) => Stop::infrastructure(miette!(
            code = "ssh-failed",
            "vtax is not in the login PATH of {host}; install this version of vtax there"
        )),
        _ => match said.filter(|said| !said.is_empty()) {
            Some(said) => Stop::infrastructure(miette!(code = "ssh-failed", "{stop}; ssh printed: {said}")),
            None => stop,
        },
    }
}

impl Drop for RemoteLdm {
    fn drop(&mut self) {
        // The server exits at the end of its input; an ssh that still runs after that is killed.
        let _ = self.ssh.kill();
        let _ = self.ssh.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::{io::pipe, thread};

    use proptest::prelude::*;
    use vtax_domain::{ChosenDomains, DomainChange};

    use super::*;

    fn stop_all() -> DomainOrder {
        DomainOrder::Change(Box::new(DomainChange::Unbind { which: ChosenDomains::All }))
    }

    /// Returns the output of a server that reads these bytes, and the orders that it has executed.
    fn served(input: &[u8]) -> (Result<(), Stop>, Vec<u8>, Vec<DomainOrder>) {
        let (server, mut orders) = (OrderServer::new(Vec::new()), Vec::new());
        let ended = server.serve(input, |order| {
            orders.push(order);
            Ok(DomainReply::Done)
        });
        (ended, server.writer.into_inner().expect("no panic"), orders)
    }

    fn greeting(hello: &LdmHello) -> Vec<u8> {
        [MAGIC.to_vec(), frame::encode(hello, HELLO_MOST).expect("short")].concat()
    }

    #[test]
    fn notices_come_before_the_end() {
        let ((to_server, orders), (answers, from_server)) = (pipe().expect("made"), pipe().expect("made"));
        let server = thread::spawn(move || {
            let server = OrderServer::new(from_server);
            server.serve(to_server, |order| {
                server.notice(DomainNotice::Stopped("mars".parse().expect("a name")));
                match order {
                    DomainOrder::ListDevices => {
                        Err((&Stop::input(miette!(code = "no-such-object", "there is none"))).into())
                    }
                    _ => Ok(DomainReply::Done),
                }
            })
        });
        let (sender, heard) = std::sync::mpsc::channel();
        let hear = move |notice| sender.send(notice).expect("heard");
        let mut link = OrderLink::open("here", answers, orders, hear).expect("the same version");
        assert_eq!(link.order(&stop_all()).expect("carried out"), DomainReply::Done);
        let refused = link.order(&DomainOrder::ListDevices).expect_err("refused");
        assert_eq!((refused.to_string().as_str(), refused.status()), ("there is none", 2));
        assert_eq!(refused.code().as_deref(), Some("no-such-object"));
        drop(link);
        server.join().expect("no panic").expect("it ends with its input");
        assert_eq!(heard.iter().count(), 2);
    }

    #[test]
    fn another_version_is_refused_by_name() {
        let other = LdmHello { orders: ORDERS + 1, program: "9.9.9".into() };
        let (ended, _, orders) =
            served(&[greeting(&other), frame::encode(&stop_all(), ORDER_MOST).expect("short")].concat());
        let told = ended.expect_err("refused").to_string();
        assert!(told.contains("9.9.9") && told.contains(VERSION), "{told}");
        assert!(orders.is_empty());
        let refused = OrderLink::open("mars", greeting(&other).as_slice(), Vec::new(), drop).err().expect("refused");
        assert!(refused.to_string().contains("vtax 9.9.9 at mars"), "{refused}");
    }

    /// A login shell wrote arbitrary text to the terminal, and one that didn't exit was waited for.
    #[test]
    fn the_standard_error_of_ssh_is_quoted_in_the_error() {
        let folder = tempfile::tempdir().expect("a directory");
        let [source, program] = ["source", "ssh"].map(|name| folder.path().join(name));
        let refused = |script: &str| {
            std::fs::write(&source, format!("#!/bin/sh\n{script}\n")).expect("ours");
            // Not by `fs::copy`: a child of another test could inherit the open descriptor (ETXTBSY, execve(2)).
            let copied = std::process::Command::new("install").args(["-m", "755"]).args([&source, &program]).status();
            assert!(copied.is_ok_and(|status| status.success()), "install(1) is there");
            let connected = RemoteLdm::connect(&Ssh::by(program.clone(), ["-T"]), "vm1", None, |_| ());
            connected.err().expect("nobody answers").to_string()
        };
        let told = refused("printf '\\033[31mno\\nvtax: error[forged]: x' >&2; exit 255");
        assert_eq!(told, "no vtax answered at vm1; ssh printed: \\u001b[31mno\\nvtax: error[forged]: x");
        assert_eq!(refused("exit 255"), "no vtax answered at vm1");
        assert!(refused("exit 127").contains("vtax is not in the login PATH"));
        let flooded = refused("head -c 1000000 /dev/zero >&2; exit 255");
        assert!(flooded.len() < 8 * 4096, "{}", flooded.len());
        assert!(refused("exec 1>&-; exec sleep 600").contains("no vtax answered"));
    }

    #[test]
    fn a_login_banner_is_quoted() {
        let error = OrderLink::open("mars", b"Welcome!\n".as_slice(), Vec::new(), drop).err().expect("no vtax");
        assert!(error.to_string().contains("Welcome!"), "{error}");
    }

    /// Anything else is refused, and the next order is executed.
    #[test]
    fn hostile_orders_are_refused() {
        let hostile = [
            r#"{"exec":{"command":["reboot"]}}"#,
            r#"{"read":{"path":"/etc/shadow"}}"#,
            r#"{"change":{"add-domains":{"file":"/etc/shadow","until":"started"}}}"#,
            r#"{"change":{"bind":{"domains":["../../etc"]}}}"#,
            r#"{"change":{"save-configuration":{"name":"../state"}}}"#,
            r#"{"change":{"load-configuration":{"name":"/etc/passwd"}}}"#,
            r#"{"change":{"edit":{"edit":{"set-console-service":{"name":"vcc","ports":null,"users":["-h"]}}}}}"#,
            r#"{"change":{"start":{"which":"all","program":"/bin/sh"}}}"#,
            r#"{"change":{"create-functions":{"physical":"eno1","new":{"vlan":4096}}}}"#,
            r#"{"change":{"create-functions":{"physical":"eno1","new":{"driver":"/tmp/evil.ko"}}}}"#,
            r#"{"change":{"destroy-functions":{"physical":"eno1","count":0}}}"#,
            r#"{"import":{"source":"/etc/libvirt/qemu/web.xml","name":"mars"}}"#,
            r#"{"import":{"source":"libvirt:web\u0000","name":"mars"}}"#,
            r#"{"import":{"source":"libvirt:web","name":"../mars"}}"#,
            r#"{"import":{"source":"libvirt:web","name":"mars","uri":"qemu+ssh://evil/system"}}"#,
            r#"{"offer-migration":{"domain":"../../etc"}}"#,
            r#"{"check-migration":{"name":"mars","offer":{"domain":"mars","read":"/etc/shadow"}}}"#,
            "[]",
            "",
        ];
        let mut input = greeting(&LdmHello::own());
        for text in hostile {
            input.extend(u32::try_from(text.len()).expect("short").to_le_bytes());
            input.extend(text.as_bytes());
        }
        input.extend(frame::encode(&stop_all(), ORDER_MOST).expect("short"));
        let (ended, answers, orders) = served(&input);
        ended.expect("it goes on");
        assert_eq!(orders, [stop_all()]);
        let mut answers = &answers[greeting(&LdmHello::own()).len()..];
        for text in hostile {
            let answer = next(&mut answers, ANSWER_MOST).expect("a frame");
            assert!(matches!(answer, Some(OrderFrame::Refused(OrderRefusal { is_of_input: true, .. }))), "{text}");
        }
        assert!(matches!(next(&mut answers, ANSWER_MOST), Ok(Some(OrderFrame::Done(_)))));
    }

    proptest! {
        #[test]
        fn no_bytes_are_an_order_by_chance(bytes: Vec<u8>) {
            let (_, _, orders) = served(&[greeting(&LdmHello::own()), bytes.clone()].concat());
            prop_assert!(orders.is_empty());
            let link = OrderLink::open("mars", [greeting(&LdmHello::own()), bytes].concat().as_slice(), Vec::new(), drop)
                .map(|mut link| link.order(&stop_all()).is_err());
            prop_assert!(link.unwrap_or(true));
        }
    }
}
