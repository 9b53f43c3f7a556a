//! Windows of a headless Chromium.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::driver::Driver;

/// Timeout, far longer than a page takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
const AXE: &str = include_str!("axe.min.js");

/// Screen and settings of a reader.
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
pub(crate) struct Window(Driver);

impl Window {
    pub(crate) fn open(look: Look) -> Window {
        let (width, height) = look.size;
        let mut arguments =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
                .map(str::to_owned)
                .to_vec();
        arguments.push(format!("--window-size={width},{height}"));
        let window = Window(Driver::start(&arguments));
        // While other tests run, axe takes longer for a page than WebDriver's default of 30 s.
        window.0.post("timeouts", &json!({"script": PATIENCE.as_millis()})).expect("Chromium takes it");
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        window.devtools("Emulation.setDeviceMetricsOverride", &metrics);
        let scheme = if look.dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        window.devtools("Emulation.setEmulatedMedia", &features);
        window.devtools("Emulation.setScriptExecutionDisabled", &json!({"value": !look.scripts}));
        window
    }

    /// Sends a command of the Chrome DevTools Protocol (<https://chromedevtools.github.io/devtools-protocol/>).
    fn devtools(&self, command: &str, parameters: &Value) {
        let execute = json!({"cmd": command, "params": parameters});
        self.0.post("goog/cdp/execute", &execute).expect("Chromium knows it");
    }

    pub(crate) fn close(self) {
        self.0.close();
    }

    pub(crate) fn goto(&self, address: &str) {
        self.0.post("url", &json!({"url": address})).expect("it loads");
    }

    pub(crate) fn source(&self) -> String {
        self.0.get("source").as_str().expect("a page").to_owned()
    }

    pub(crate) fn click_link(&self, text: &str) {
        self.0.click_link(text);
    }

    fn executed(&self, script: &str, arguments: &[Value]) -> Result<Value, String> {
        self.0.post("execute/sync", &json!({"script": script, "args": arguments}))
    }

    pub(crate) fn script(&self, script: &str, arguments: &[Value]) -> Value {
        self.executed(script, arguments).expect("it runs")
    }

    /// Waits until a script returns true.
    pub(crate) fn wait_for(&self, script: &str) {
        let begun = Instant::now();
        // While a page is being replaced, scripts fail.
        while self.executed(script, &[]).ok() != Some(json!(true)) {
            assert!(begun.elapsed() < PATIENCE, "never: {script}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Saves a screenshot of the visible part of the page.
    pub(crate) fn picture(&self, name: &str) {
        let png = self.0.get("screenshot");
        let png = BASE64_STANDARD.decode(png.as_str().expect("a picture")).expect("base64");
        fs::write(pictures().join(format!("{name}.png")), png).expect("kept");
    }

    /// Returns axe's serious and critical findings, each as the rule and the HTML of the elements.
    pub(crate) fn serious_findings(&self) -> Value {
        // The page's policy blocks other scripts, but not those of the driver.
        self.script(AXE, &[]);
        let search = "const done = arguments[arguments.length - 1];
            axe.run(document, {resultTypes: ['violations']}).then((found) => done(found.violations
                .filter((finding) => ['serious', 'critical'].includes(finding.impact))
                .map((finding) => [finding.id, ...finding.nodes.map((node) => node.html)])), (error) => done(String(error)));";
        self.0.post("execute/async", &json!({"script": search, "args": []})).expect("axe runs")
    }

    /// Returns up to five elements that extend beyond the window, if the page still scrolls sideways after its charts
    /// have been resized.
    pub(crate) fn too_wide(&self) -> Value {
        const FITTED: Duration = Duration::from_secs(60);
        let search = "const width = document.documentElement.clientWidth;
            if (document.scrollingElement.scrollWidth <= width) return [];
            const scrolls = (it) => it && (getComputedStyle(it).overflowX !== 'visible' || scrolls(it.parentElement));
            return [...document.body.querySelectorAll('*')]
                .filter((it) => it.getBoundingClientRect().right > width && !scrolls(it.parentElement))
                .map((it) => it.outerHTML.slice(0, 120)).slice(0, 5)";
        let begun = Instant::now();
        loop {
            let found = self.script(search, &[]);
            if found == json!([]) || begun.elapsed() > FITTED {
                return found;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns errors and warnings of the browser's console, except that a page was not found, which an error page
    /// causes itself.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let log = self.0.post("se/log", &json!({"type": "browser"})).expect("a log");
        let all = log.as_array().cloned().unwrap_or_default();
        let bad = all.iter().filter(|line| line["level"] == "SEVERE" || line["level"] == "WARNING");
        let told = bad.map(|line| line["message"].as_str().unwrap_or_default().to_owned());
        told.filter(|line| !line.contains("status of 404")).collect()
    }

    /// Presses Tab until the element with this name, value, label or text has the focus.
    pub(crate) fn tab_to(&self, what: &str) {
        let name = "const it = document.activeElement;
            return [it.name, it.value, it.getAttribute('aria-label'), it.textContent].includes(arguments[0])";
        for _ in 0..200 {
            self.keys("\u{e004}");
            if self.script(name, &[json!(what)]) == json!(true) {
                return;
            }
        }
        panic!("the keyboard doesn't reach {what}");
    }

    /// Types into the focused element.
    pub(crate) fn keys(&self, text: &str) {
        let typed = text.chars().flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key})));
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": typed.collect::<Vec<_>>()});
        self.0.post("actions", &json!({"actions": [keyboard]})).expect("keys");
    }
}

fn pictures() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
    fs::create_dir_all(&folder).expect("a directory");
    folder
}
