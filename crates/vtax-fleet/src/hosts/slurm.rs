//! Output of `scontrol show nodes`.

use std::ops::Range;

use vtax_model::{
    foreign::ForeignText,
    located::{FileError, Source},
};

use super::{FleetHost, HostList};

/// The beginning of each node.
pub(super) const FIRST: &str = "NodeName=";
/// States in which a node's agent cannot be expected to answer (scontrol(1), "NODE STATE CODES").
const UNAVAILABLE: [&str; 6] = ["DOWN", "FAIL", "FUTURE", "NO_RESPOND", "POWERED_DOWN", "UNKNOWN"];

pub(super) fn read(source: Source<'_>) -> Result<HostList, FileError> {
    let hosts = nodes(source.text).map(|span| node(source, span)).collect::<Result<_, _>>()?;
    Ok(HostList { hosts, ..HostList::default() })
}

/// Each node, from its name up to the next one's.
fn nodes(text: &str) -> impl Iterator<Item = Range<usize>> {
    let is_first = |at: usize| text[..at].chars().next_back().is_none_or(|before| before == '\n');
    let starts: Vec<usize> = text.match_indices(FIRST).map(|(at, _)| at).filter(|at| is_first(*at)).collect();
    let ends: Vec<usize> = starts.iter().copied().skip(1).chain([text.len()]).collect();
    starts.into_iter().zip(ends).map(|(start, end)| start..end)
}

fn node(source: Source<'_>, span: Range<usize>) -> Result<FleetHost, FileError> {
    let text = &source.text[span.clone()];
    // Values such as a reason may contain anything, so the first occurrence of a name counts.
    let value = |name: &str| text.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let refused = |message: String| source.coded("bad-inventory", &span, message);
    let name = value("NodeName").unwrap_or_default();
    let mut host = FleetHost::named(name.parse().map_err(|error| refused(format!("{error}")))?);
    if let Some(address) = value("NodeAddr").filter(|address| *address != name) {
        host.control = format!("ssh:{address}").parse().map_err(|error| refused(format!("{error}")))?;
    }
    let lists = ["Partitions", "ActiveFeatures"].into_iter().filter_map(value);
    // A text that isn't a valid name can't be requested either.
    host.groups = lists.flat_map(|list| list.split(',')).filter_map(|group| group.parse().ok()).collect();
    let state = value("State").unwrap_or_default();
    let is_down =
        |state: &str| UNAVAILABLE.iter().any(|down| state.trim_end_matches('*') == *down) || state.ends_with('*');
    host.unavailable = state.split('+').any(is_down).then(|| ForeignText::from(format!("state {state}")));
    Ok(host)
}
