//! Text form of a disk test: `random:reads=60,block=8KiB`.

use std::{fmt, str::FromStr};

use super::{DiskRate, DiskTest, DiskTestError};

/// The settings, in the order in which they are written.
pub(super) const KEYS: [&str; 12] =
    ["reads", "block", "depth", "jobs", "targets", "rate", "range", "engine", "direct", "duration", "ramp", "verify"];

/// Value of a rate without a limit.
const UNLIMITED: &str = "max";

impl DiskTest {
    fn set(&mut self, key: &'static str, value: &str) -> Result<(), DiskTestError> {
        match key {
            "reads" => self.reads = value.parse()?,
            "block" => self.block = value.parse()?,
            "depth" => self.depth = value.parse()?,
            "jobs" => self.jobs = value.parse()?,
            "targets" => self.targets = value.parse()?,
            "rate" => self.rate = rate(value)?,
            "range" => self.range = value.parse()?,
            "engine" => self.engine = value.parse()?,
            "direct" => self.direct = switch(key, value)?,
            "duration" => self.duration = value.parse()?,
            "ramp" => self.ramp = value.parse()?,
            _ => self.verify = switch(key, value)?,
        }
        Ok(())
    }

    /// The values of [`KEYS`], without spaces.
    fn values(&self) -> [String; KEYS.len()] {
        let values = [
            self.reads.to_string(),
            self.block.to_string(),
            self.depth.to_string(),
            self.jobs.to_string(),
            self.targets.to_string(),
            self.rate.map_or_else(|| UNLIMITED.to_owned(), |rate| rate.to_string()),
            self.range.to_string(),
            self.engine.to_string(),
            switched(self.direct),
            self.duration.to_string(),
            self.ramp.to_string(),
            switched(self.verify),
        ];
        values.map(|value| value.replace(' ', ""))
    }
}

impl FromStr for DiskTest {
    type Err = DiskTestError;

    fn from_str(text: &str) -> Result<Self, DiskTestError> {
        let (access, settings) = text.split_once(':').unwrap_or((text, ""));
        let mut test = DiskTest { access: access.trim().parse()?, ..DiskTest::default() };
        let mut seen = Vec::new();
        for setting in settings.split(',').filter(|setting| !setting.trim().is_empty()) {
            let unknown = || DiskTestError::Key(setting.trim().to_owned());
            let (key, value) = setting.split_once('=').ok_or_else(unknown)?;
            let key = key.trim();
            let key = KEYS.into_iter().find(|known| *known == key).ok_or_else(|| DiskTestError::Key(key.to_owned()))?;
            if seen.contains(&key) {
                return Err(DiskTestError::Twice(key));
            }
            test.set(key, value.trim())?;
            seen.push(key);
        }
        test.check()?;
        Ok(test)
    }
}

/// Only values other than the defaults are written.
impl fmt::Display for DiskTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = DiskTest::default().values();
        let settings = KEYS.into_iter().zip(self.values()).zip(usual);
        let written = settings.filter(|((_, value), usual)| value != usual);
        let written: Vec<String> = written.map(|((key, value), _)| format!("{key}={value}")).collect();
        let colon = if written.is_empty() { "" } else { ":" };
        write!(f, "{}{colon}{}", self.access, written.join(","))
    }
}

fn rate(value: &str) -> Result<Option<DiskRate>, DiskTestError> {
    if value == UNLIMITED { Ok(None) } else { value.parse().map(Some) }
}

fn switch(key: &'static str, value: &str) -> Result<bool, DiskTestError> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(DiskTestError::Switch { key, value: value.to_owned() }),
    }
}

fn switched(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}
