//! Other tools: their command lines, the parsers of their output, and their definitions.

use std::{env, net::IpAddr, path::PathBuf, process::Command};

use super::{
    contest::{Contest, Length},
    tools,
};

/// A measuring tool that may be installed. All of it is data and pure functions.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    /// The programs that must be in the PATH. The first one reports the version.
    pub(crate) programs: &'static [&'static str],
    /// The argument with which it reports the version.
    pub(crate) version: &'static str,
    /// Returns true if it has this test.
    pub(crate) has: fn(&Contest) -> bool,
    /// The reason why it cannot measure for less than a second. None if it accepts a number of transactions or bytes.
    pub(crate) whole_seconds: fn(&Contest) -> Option<&'static str>,
    /// The command of its server, and how long that lives.
    pub(crate) server: fn(&Contest, IpAddr) -> ToolCommand,
    pub(crate) lifetime: ServerLifetime,
    pub(crate) client: fn(&Contest, IpAddr, Length) -> ToolCommand,
    /// The figure in the contest's unit: whole round trips, goodput at the receiver.
    pub(crate) read: fn(&Contest, &str) -> Result<f64, String>,
    /// The difference between its definition and vtax's, and its treatment.
    pub(crate) difference: fn(&Contest) -> &'static str,
}

/// A program and its arguments.
pub(crate) type ToolCommand = Vec<String>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerLifetime {
    /// It serves clients one after another.
    Contest,
    /// It ends with its client.
    Client,
}

pub(crate) const TOOLS: [&Tool; 5] =
    [&tools::iperf3::TOOL, &tools::sockperf::TOOL, &tools::qperf::TOOL, &tools::netperf::TOOL, &tools::neper::TOOL];

impl Tool {
    /// Returns the reason why it cannot take part in this contest although it has the test.
    pub(crate) fn left_out(&self, contest: &Contest) -> Option<&'static str> {
        if contest.is_short() && (self.has)(contest) { (self.whole_seconds)(contest) } else { None }
    }

    /// Returns the figure in its output, which must be a number above 0 to be comparable.
    pub(crate) fn figure(&self, contest: &Contest, text: &str) -> Result<f64, String> {
        let figure = (self.read)(contest, text)?;
        let good = figure.is_finite() && figure > 0.0;
        good.then_some(figure).ok_or_else(|| format!("its output gives a figure of {figure}"))
    }

    /// Returns true if it is called for the contest.
    pub(crate) fn takes(&self, contest: &Contest) -> bool {
        (self.has)(contest) && self.left_out(contest).is_none()
    }

    /// Returns the programs that are not in the PATH.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        self.programs.iter().copied().filter(|program| find(program).is_none()).collect()
    }

    /// Returns the first line of its output that contains a number.
    pub(crate) fn version(&self) -> Option<String> {
        let output = Command::new(self.programs[0]).arg(self.version).output().ok()?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().find(|line| line.bytes().any(|byte| byte.is_ascii_digit()))?;
        Some(line.trim().to_owned())
    }
}

fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

pub(crate) fn call(words: &[&str]) -> ToolCommand {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Returns the number directly after the first `key`.
pub(crate) fn number_after(text: &str, key: &str) -> Result<f64, String> {
    let rest = text.split_once(key).ok_or_else(|| format!("no `{key}` in its output"))?.1.trim_start();
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
    let number = rest[..end].parse::<f64>().map_err(|_| format!("no number after `{key}`"))?;
    (number > 0.0).then_some(number).ok_or_else(|| format!("`{key}` is 0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vtax_model::units::Span;

    #[test]
    fn each_tool_has_a_name_a_call_and_a_difference_for_each_contest_that_it_has() {
        let address = IpAddr::from([192, 0, 2, 1]);
        for tool in TOOLS {
            let contests = Contest::all(Span::from_millis(1000), 2);
            let its: Vec<&Contest> = contests.iter().filter(|contest| (tool.has)(contest)).collect();
            assert!(!its.is_empty(), "{}", tool.name);
            for contest in its {
                let client = (tool.client)(contest, address, Length::Seconds(1));
                assert!(tool.programs.contains(&client[0].as_str()) && client.contains(&address.to_string()));
                assert!(tool.programs.contains(&(tool.server)(contest, address)[0].as_str()));
                assert!((tool.difference)(contest).ends_with('.'), "{}", tool.name);
            }
        }
    }

    #[test]
    fn a_tool_that_takes_a_short_turn_is_called_with_a_number() {
        for tool in TOOLS {
            for contest in Contest::all(Span::from_millis(100), 2).iter().filter(|contest| tool.takes(contest)) {
                let call = (tool.client)(contest, std::net::Ipv4Addr::LOCALHOST.into(), Length::Count(54_321));
                assert!(call.iter().any(|word| word.contains("54321")), "{contest}: {call:?}");
            }
        }
    }

    #[test]
    fn a_tool_of_whole_seconds_is_omitted_in_short_turns_only() {
        let qperf = &tools::qperf::TOOL;
        let [short, long] = [100, 1000].map(|span| Contest::all(Span::from_millis(span), 2)[0]);
        assert_eq!((qperf.takes(&short), qperf.left_out(&short).is_some()), (false, true));
        assert_eq!((qperf.takes(&long), qperf.left_out(&long)), (true, None));
    }

    #[test]
    fn numbers_are_found_behind_their_keys() {
        assert_eq!(number_after("a = 1 latency  =  24830 ns", "latency  ="), Ok(24830.0));
        assert!(number_after("latency = -1", "latency =").is_err());
        assert!(number_after("x=0", "x=").is_err());
        assert!(number_after("", "x=").is_err());
    }

    proptest! {
        #[test]
        fn no_output_makes_a_reader_panic(text: String) {
            for tool in TOOLS {
                for contest in Contest::all(Span::from_millis(1000), 2) {
                    let _ = (tool.read)(&contest, &text);
                }
            }
        }
    }

    /// A loss above 100 % made the figure negative; too many digits made it infinite.
    #[test]
    fn an_impossible_figure_is_refused() {
        let udp = |contest: &Contest| contest.to_string() == "udp-stream-64";
        let contest = Contest::all(vtax_model::units::Span::from_millis(1000), 2).into_iter().find(udp).expect("one");
        let json = |lost: &str| format!(r#"{{"end":{{"sum":{{"bits_per_second":1e9,"lost_percent":{lost}}}}}}}"#);
        assert!(tools::iperf3::TOOL.figure(&contest, &json("25")).is_ok());
        assert!(tools::iperf3::TOOL.figure(&contest, &json("101")).is_err());
        let digits = format!("recv_bw  =  {}", "9".repeat(400));
        assert!(tools::qperf::TOOL.figure(&contest, &digits).is_err());
    }

    /// Every tool's parser on every output.
    #[test]
    fn fuzz_tools() {
        let seeds = [
            r#"{"end":{"sum":{"bits_per_second":1e9,"lost_percent":25},"sum_received":{"bits_per_second":8e9}}}"#,
            "tcp_lat:\n    latency  =  24830 ns\n",
            "udp_bw:\n    send_bw  =  876394400 bytes/sec\n    recv_bw  =  500000000 bytes/sec\n",
        ];
        let contests = Contest::all(vtax_model::units::Span::from_millis(1000), 2);
        vtax_fuzz::fuzz_text("tools", &seeds, move |text| {
            let mut understood = None;
            for (tool, contest) in TOOLS.iter().flat_map(|tool| contests.iter().map(move |contest| (tool, contest))) {
                if (tool.has)(contest)
                    && let Ok(figure) = tool.figure(contest, text)
                {
                    assert!(figure.is_finite() && figure > 0.0, "{} says {figure} of {contest}", tool.name);
                    understood = Some(());
                }
            }
            understood
        });
    }
}
