//! Files with a study, a lab or endpoints.

use std::{
    fs::File,
    io::{self, Read as _},
};

use miette::miette;
use vtax_model::{
    endpoint::Endpoint,
    located::Source,
    spelling::suggestion,
    study::{Study, is_lab_file},
    units::ByteSize,
};

use crate::stop::{Blamed, Coded, Stop};

/// Maximum size of a file with a study, a lab or endpoints. The built-in ones have a few KiB.
const FILE_MOST: ByteSize = ByteSize(1 << 20);

/// Reads and parses a study file. A lab file is refused with a hint at `vtax lab up`.
pub fn read_file(path: &str) -> Result<Study, Stop> {
    let text = read_text(path)?;
    if is_lab_file(&text) {
        return Err(Stop::input(miette!(
            code = "not-a-study",
            "{path} is a lab, not a study; build it with: vtax lab up {path}"
        )));
    }
    Study::parse(Source { name: path, text: &text }).or_input()
}

/// Reads the text of a study or lab file other than a built-in study.
pub fn read_text(path: &str) -> Result<String, Stop> {
    let known = Study::BUILT_IN.map(|(id, _)| id);
    read_bounded(path).map_err(|error| {
        let near = suggestion(path, known);
        let known = known.join(", ");
        Stop::input(miette!(
            code = "no-such-study",
            "`{path}` is neither a built-in study ({known}) nor a readable file ({error}){near}"
        ))
    })
}

/// Reads a file of endpoints.
pub fn read_endpoints(path: &str) -> Result<Vec<Endpoint>, Stop> {
    let text = read_bounded(path).coded("file", || format!("--endpoints: cannot read `{path}`"));
    Endpoint::parse_file(Source { name: path, text: &text.or_input()? }).or_input()
}

/// Reads a file that a user wrote. A device such as `/dev/zero` would fill the memory.
pub fn read_bounded(path: &str) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_MOST.0 + 1).read_to_string(&mut text)?;
    match text.len() as u64 > FILE_MOST.0 {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {FILE_MOST}"))),
        false => Ok(text),
    }
}
