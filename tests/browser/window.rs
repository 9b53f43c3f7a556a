//! Window of a headless Chromium, controlled through WebDriver.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use fantoccini::{
    Client, ClientBuilder,
    actions::{InputSource, KeyAction, KeyActions},
    wd::{TimeoutConfiguration, WebDriverCompatibleCommand},
};
use hyper_util::client::legacy::connect::HttpConnector;
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use serde_json::{Value, json};

/// Far longer than a page takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
const AXE: &str = include_str!("axe.min.js");

/// Presentation of a page to a reader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) name: &'static str,
    size: (u32, u32),
    dark: bool,
    scripts: bool,
}

impl Look {
    pub(crate) const DESK: Look = Look { name: "desk", size: (1280, 900), dark: false, scripts: true };
    pub(crate) const DARK: Look = Look { name: "dark", dark: true, ..Look::DESK };
    pub(crate) const PHONE: Look = Look { name: "phone", size: (390, 844), ..Look::DESK };
    pub(crate) const WITHOUT_SCRIPTS: Look = Look { name: "without-scripts", scripts: false, ..Look::DESK };
}

/// Window with a separate browser and driver.
pub(crate) struct Window {
    pub(crate) client: Client,
    driver: Driver,
}

/// Driver and its browser: one process group, which also ends when a test fails.
struct Driver(Child);

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = killpg(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// Command of the Chrome DevTools Protocol (<https://chromedevtools.github.io/devtools-protocol/>).
#[derive(Debug)]
struct Devtools(&'static str, Value);

impl WebDriverCompatibleCommand for Devtools {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(json!({"cmd": self.0, "params": self.1}).to_string()))
    }
}

/// Messages of the browser's console since the last query.
#[derive(Debug)]
struct ConsoleLog;

impl WebDriverCompatibleCommand for ConsoleLog {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/se/log", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(json!({"type": "browser"}).to_string()))
    }
}

impl Window {
    pub(crate) async fn open(look: Look) -> Window {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts: install the packages chromium and chromium-driver");
        let said = BufReader::new(driver.stdout.take().expect("a pipe"));
        let driver = Driver(driver);
        let port = said.lines().map_while(Result::ok).find_map(|line| {
            line.split_once("started successfully on port ").map(|(_, port)| port.trim_end_matches('.').to_owned())
        });
        let (width, height) = look.size;
        let mut arguments =
            vec!["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>();
        arguments.push(format!("--window-size={width},{height}"));
        let capabilities = json!({
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        });
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities.as_object().expect("an object").clone())
            .connect(&format!("http://127.0.0.1:{}", port.expect("chromedriver names its port")))
            .await
            .expect("Chromium starts");
        // While other tests run, axe needs more than WebDriver's 30 s for a page.
        let patience = TimeoutConfiguration::new(Some(Duration::from_secs(300)), None, None);
        client.update_timeouts(patience).await.expect("Chromium takes it");
        let window = Window { client, driver };
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        window.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
        let scheme = if look.dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        window.devtools("Emulation.setEmulatedMedia", features).await;
        window.devtools("Emulation.setScriptExecutionDisabled", json!({"value": !look.scripts})).await;
        window
    }

    async fn devtools(&self, command: &'static str, parameters: Value) {
        self.client.issue_cmd(Devtools(command, parameters)).await.expect("Chromium knows it");
    }

    pub(crate) async fn close(self) {
        self.client.close().await.expect("it closes");
        drop(self.driver);
    }

    pub(crate) async fn goto(&self, address: &str) {
        self.client.goto(address).await.expect("it loads");
    }

    pub(crate) async fn source(&self) -> String {
        self.client.source().await.expect("a page")
    }

    pub(crate) async fn script(&self, script: &str, arguments: Vec<Value>) -> Value {
        self.client.execute(script, arguments).await.expect("it runs")
    }

    /// Waits until a script returns true.
    pub(crate) async fn wait_for(&self, script: &str) {
        let begun = Instant::now();
        // A page that is being replaced runs no script.
        while self.client.execute(script, vec![]).await.ok() != Some(json!(true)) {
            assert!(begun.elapsed() < PATIENCE, "never: {script}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Saves a screenshot of the visible part.
    pub(crate) async fn picture(&self, name: &str) {
        let png = self.client.screenshot().await.expect("a picture");
        fs::write(pictures().join(format!("{name}.png")), png).expect("kept");
    }

    /// Returns axe's serious findings: the rule, and where.
    pub(crate) async fn serious_findings(&self) -> Value {
        // The page's policy allows no other script, except the driver's.
        self.script(AXE, vec![]).await;
        let search = "const done = arguments[arguments.length - 1];
            axe.run(document, {resultTypes: ['violations']}).then((found) => done(found.violations
                .filter((finding) => ['serious', 'critical'].includes(finding.impact))
                .map((finding) => [finding.id, ...finding.nodes.map((node) => node.html)])), (error) => done(String(error)));";
        self.client.execute_async(search, vec![]).await.expect("axe runs")
    }

    /// Returns the elements wider than the window, if the page scrolls sideways once its charts have found their width.
    pub(crate) async fn too_wide(&self) -> Value {
        const FITTED: Duration = Duration::from_secs(60);
        let search = "const width = document.documentElement.clientWidth;
            if (document.scrollingElement.scrollWidth <= width) return [];
            const scrolls = (it) => it && (getComputedStyle(it).overflowX !== 'visible' || scrolls(it.parentElement));
            return [...document.body.querySelectorAll('*')]
                .filter((it) => it.getBoundingClientRect().right > width && !scrolls(it.parentElement))
                .map((it) => it.outerHTML.slice(0, 120)).slice(0, 5)";
        let begun = Instant::now();
        loop {
            let found = self.script(search, vec![]).await;
            if found == json!([]) || begun.elapsed() > FITTED {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns errors and warnings of the browser's console. An error page itself loads with an error.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let log = self.client.issue_cmd(ConsoleLog).await.expect("a log");
        let all = log.as_array().cloned().unwrap_or_default();
        let bad = all.iter().filter(|line| line["level"] == "SEVERE" || line["level"] == "WARNING");
        let told = bad.map(|line| line["message"].as_str().unwrap_or_default().to_owned());
        told.filter(|line| !line.contains("status of 404")).collect()
    }

    /// Presses Tab until the element with this name, value, label or text has the focus.
    pub(crate) async fn tab_to(&self, what: &str) {
        let name = "const it = document.activeElement;
            return [it.name, it.value, it.getAttribute('aria-label'), it.textContent].includes(arguments[0])";
        for _ in 0..200 {
            self.keys("\u{e004}").await;
            if self.script(name, vec![json!(what)]).await == json!(true) {
                return;
            }
        }
        panic!("the keyboard doesn't reach {what}");
    }

    /// Types into the focused element.
    pub(crate) async fn keys(&self, text: &str) {
        let mut typed = KeyActions::new("keyboard".into());
        for value in text.chars() {
            typed = typed.then(KeyAction::Down { value }).then(KeyAction::Up { value });
        }
        self.client.perform_actions(typed).await.expect("keys");
    }
}

fn pictures() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
    fs::create_dir_all(&folder).expect("a directory");
    folder
}
