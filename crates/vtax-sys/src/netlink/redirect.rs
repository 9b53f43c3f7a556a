//! Redirection of a port's received frames through another link first, so that this link's queueing discipline limits
//! them.
//!
//! A qdisc limits what a link *sends*. The frames that a guest sends are those that its tap receives. They take a
//! detour through an `ifb`, which has a qdisc for what it sends, and then continue as if the tap had just received
//! them. A policer would need no such link, but drops bursts instead of queueing them.

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use super::create::{LinkKind, NewLink};
use super::name::IfIndex;
use super::qdisc::{HEADER, TCA_KIND, TCA_OPTIONS};
use super::reply::{attribute, number32, text};
use super::request::{NetlinkRequest, emitted, nested, text_attribute};
use super::socket::{CHANGE, Rtnl, Subject};
use crate::error::{Feature, Result, SysError};
use crate::netns::NetNs;

/// From `linux/pkt_cls.h` and `linux/tc_act/tc_mirred.h`.
const TCA_U32_SEL: u16 = 5;
const TCA_U32_ACT: u16 = 7;
const TC_U32_TERMINAL: u8 = 1;
const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TCA_MIRRED_PARMS: u16 = 2;
const TC_ACT_STOLEN: u32 = 4;
const TCA_EGRESS_REDIR: u32 = 1;
/// Number of the action that is executed first.
const FIRST: u16 = 1;
/// Length of `struct tc_u32_sel` without keys, and the offset of the numbers in `struct tc_mirred`.
const SELECTOR: usize = 16;
const ACTION_AT: usize = 8;
const WHAT_AT: usize = 20;
const TARGET_AT: usize = 24;
const MIRRED: usize = 28;

/// Handle of the qdisc for received frames.
const HANDLE: TcHandle = TcHandle { major: 0xffff, minor: 0 };
/// Priority 1, every protocol (`ETH_P_ALL`, in network order).
const EVERYTHING: u32 = 1 << 16 | (libc::ETH_P_ALL as u16).to_be() as u32;

impl Rtnl {
    /// Sends every frame that a link receives through another link of the same namespace before it continues. The other
    /// link must be an `ifb` and up.
    ///
    /// # Errors
    /// `EEXIST` if something already processes what the link receives; [`SysError::NoFeature`] if this kernel doesn't
    /// support it.
    pub fn redirect_received(&mut self, link: IfIndex, through: IfIndex) -> Result<()> {
        let subject =
            Subject { operation: "redirect the received frames of", object: &format_args!("link number {link}") };
        let new = NLM_F_CREATE | NLM_F_EXCL;
        self.change(&NetlinkRequest::new(libc::RTM_NEWQDISC, &ingress(link)), new, subject).map_err(feature)?;
        let filter = NetlinkRequest::new(libc::RTM_NEWTFILTER, &everything(link, through));
        self.change(&filter, new, subject).map_err(|error| {
            // The filter's error is the one to report.
            let _ = self.stop_redirecting(link);
            feature(error)
        })
    }

    /// Ends the redirection, so frames take the direct path again. Call this before deleting the other link, because
    /// otherwise all frames would be lost in the meantime.
    ///
    /// # Errors
    /// `ENOENT` or `EINVAL` if the link has no redirection.
    pub fn stop_redirecting(&mut self, link: IfIndex) -> Result<()> {
        let object = format_args!("link number {link}");
        let subject = Subject { operation: "stop redirecting the received frames of", object: &object };
        self.change(&NetlinkRequest::new(libc::RTM_DELQDISC, &ingress(link)), CHANGE, subject)
    }

    /// Returns the link through which every frame received by this one is redirected.
    pub fn redirected_to(&mut self, link: IfIndex) -> Result<Option<IfIndex>> {
        let subject = Subject { operation: "read the filters of", object: &format_args!("link number {link}") };
        let mut message = TcMessage::with_index(link.0.cast_signed());
        message.header.parent = HANDLE;
        let request = NetlinkRequest::new(libc::RTM_GETTFILTER, &message);
        let found = self.dump(&request, subject, |body| Ok(redirection(body)))?;
        Ok(found.into_iter().next())
    }
}

/// Redirects a link in a temporary namespace, to check whether this kernel can. The kernel may load modules for it.
///
/// # Errors
/// [`SysError::NoSuchKind`] or [`SysError::NoFeature`] if it cannot; any other error means that the privilege is
/// missing.
pub fn probe_redirection() -> Result<()> {
    let (loopback, name) = (IfIndex(1), "probe".parse()?);
    let mut rtnl = Rtnl::open_in(&NetNs::scratch()?)?;
    rtnl.create_link(&NewLink::new(name, LinkKind::Ifb))?;
    let ifb = rtnl.existing_link(&"probe".parse()?)?.index;
    rtnl.redirect_received(loopback, ifb)
}

fn ingress(link: IfIndex) -> TcMessage {
    let mut message = TcMessage::with_index(link.0.cast_signed());
    (message.header.parent, message.header.handle) = (TcHandle::INGRESS, HANDLE);
    message.attributes = vec![TcAttribute::Kind("ingress".into())];
    message
}

/// Returns a filter without keys, which matches every frame, even one too short for a key.
fn everything(link: IfIndex, through: IfIndex) -> TcMessage {
    let mut message = TcMessage::with_index(link.0.cast_signed());
    (message.header.parent, message.header.info) = (HANDLE, EVERYTHING);
    let mut selector = vec![0; SELECTOR];
    selector[0] = TC_U32_TERMINAL;
    let options = [DefaultNla::new(TCA_U32_SEL, selector), nested(TCA_U32_ACT, &[mirred(through)])];
    let options = DefaultNla::new(TCA_OPTIONS, emitted(&options.as_slice()));
    message.attributes = vec![TcAttribute::Kind("u32".into()), TcAttribute::Other(options)];
    message
}

fn mirred(through: IfIndex) -> DefaultNla {
    let mut parms = vec![0; MIRRED];
    for (at, number) in [(ACTION_AT, TC_ACT_STOLEN), (WHAT_AT, TCA_EGRESS_REDIR), (TARGET_AT, through.0)] {
        parms[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }
    let options = nested(TCA_ACT_OPTIONS, &[DefaultNla::new(TCA_MIRRED_PARMS, parms)]);
    nested(FIRST, &[text_attribute(TCA_ACT_KIND, "mirred"), options])
}

/// Returns the target of a filter that redirects everything; none if it does something else.
pub(super) fn redirection(body: &[u8]) -> Option<IfIndex> {
    let attributes = body.get(HEADER..)?;
    let is = |attributes, kind, name: &str| attribute(attributes, kind).and_then(text).is_some_and(|text| text == name);
    let options = attribute(attributes, TCA_OPTIONS).filter(|_| is(attributes, TCA_KIND, "u32"))?;
    let action = attribute(attribute(options, TCA_U32_ACT)?, FIRST)?;
    let parms = attribute(attribute(action, TCA_ACT_OPTIONS)?, TCA_MIRRED_PARMS)?;
    let number = |at: usize| parms.get(at..).and_then(number32);
    let redirects = is(action, TCA_ACT_KIND, "mirred") && number(WHAT_AT)? == TCA_EGRESS_REDIR;
    redirects.then(|| number(TARGET_AT).map(IfIndex))?
}

/// Recognizes a missing qdisc, classifier or action, which the kernel reports as a missing file.
fn feature(error: SysError) -> SysError {
    if error.is_missing() { SysError::NoFeature { feature: Feature::Redirection } } else { error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_redirection_is_read_back_as_requested() {
        assert_eq!(redirection(&emitted(&everything(IfIndex(4), IfIndex(9)))), Some(IfIndex(9)));
        assert_eq!(redirection(&emitted(&ingress(IfIndex(4)))), None);
    }

    /// The request of `tc filter add parent ffff: protocol all prio 1 u32 match u32 0 0 action mirred egress redirect`,
    /// without the key.
    #[test]
    fn the_filter_has_no_key_and_one_action() {
        let bytes = emitted(&everything(IfIndex(4), IfIndex(9)));
        let word = |word: &[u8]| word.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let words: Vec<_> = bytes.chunks(4).map(word).collect();
        let expected = [
            "00000000 04000000 00000000 0000ffff 00030100",
            "08000100 75333200",
            "50000200 14000500 01000000 00000000 00000000 00000000",
            "38000780 34000180 0b000100 6d697272 65640000",
            "24000280 20000200 00000000 00000000 04000000 00000000 00000000 01000000 09000000",
        ];
        assert_eq!(words.join(" "), expected.join(" "));
    }

    proptest! {
        #[test]
        fn hostile_filters_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = redirection(&bytes);
        }
    }
}
