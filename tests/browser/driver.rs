//! Client of ChromeDriver, a process that controls a headless Chromium through WebDriver
//! (<https://www.w3.org/TR/webdriver2/>): HTTP requests and answers with JSON bodies.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use serde_json::{Value, json};

/// Key of an element's ID in an answer.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Session of a driver and its browser, which are one process group. It is killed even if the test fails.
pub(crate) struct Driver {
    process: Child,
    port: u16,
    /// Path of the session, e.g. `/session/0123`.
    session: String,
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = killpg(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGKILL);
        let _ = self.process.wait();
    }
}

impl Driver {
    pub(crate) fn start(browser_arguments: &[String]) -> Driver {
        let mut process = Command::new("chromedriver")
            .arg("--port=0")
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts: install the packages chromium and chromium-driver");
        let said = BufReader::new(process.stdout.take().expect("a pipe"));
        let port = said
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.split_once("started successfully on port ")?.1.trim_end_matches('.').parse().ok());
        let mut driver = Driver { process, port: port.expect("chromedriver names its port"), session: String::new() };
        let capabilities = json!({
            "goog:chromeOptions": {"args": browser_arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        });
        let begun = driver.asked("POST", "/session", &json!({"capabilities": {"alwaysMatch": capabilities}}));
        let session = begun.expect("Chromium starts")["sessionId"].as_str().expect("a text").to_owned();
        driver.session = format!("/session/{session}");
        driver
    }

    /// Sends a command of the session. Returns the value of the answer, or the error of the driver.
    pub(crate) fn post(&self, command: &str, parameters: &Value) -> Result<Value, String> {
        self.asked("POST", &format!("{}/{command}", self.session), parameters)
    }

    pub(crate) fn get(&self, command: &str) -> Value {
        self.asked("GET", &format!("{}/{command}", self.session), &Value::Null).expect("Chromium knows it")
    }

    pub(crate) fn close(self) {
        self.asked("DELETE", &self.session, &Value::Null).expect("it closes");
    }

    pub(crate) fn click_link(&self, text: &str) {
        let found = self.post("element", &json!({"using": "link text", "value": text})).expect("a link");
        let element = found[ELEMENT].as_str().expect("an element");
        self.post(&format!("element/{element}/click"), &json!({})).expect("it opens");
    }

    fn asked(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).expect("the driver runs");
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        connection.write_all(request.as_bytes()).expect("the driver reads");
        value(BufReader::new(connection))
    }
}

/// Reads the value of an answer, which is an error unless the status is 200. Reads only up to the end of the body,
/// because the driver doesn't close the connection.
fn value(mut answer: impl BufRead) -> Result<Value, String> {
    let mut line = || {
        let mut line = String::new();
        answer.read_line(&mut line).expect("the driver answers");
        line.trim_end().to_ascii_lowercase()
    };
    let is_good = line().split(' ').nth(1) == Some("200");
    let head: Vec<String> = std::iter::from_fn(|| Some(line()).filter(|line| !line.is_empty())).collect();
    let length = head.iter().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or_else(|| panic!("no length: {head:?}"))];
    answer.read_exact(&mut body).expect("the whole answer");
    let value = serde_json::from_slice::<Value>(&body).expect("JSON")["value"].take();
    if is_good { Ok(value) } else { Err(value.to_string()) }
}
