//! A real browser, driven over WebDriver: plain HTTP with JSON, so that no further crate is needed.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{GENEROUS, Process, TempFolder, wait_for};

use crate::http::{Answer, head, read, request};

/// How long a browser may take to start beside other programs.
const START: Duration = Duration::from_secs(60);

pub(crate) struct Browser {
    driver: SocketAddr,
    session: String,
    _process: Process,
    _profile: TempFolder,
}

impl Browser {
    /// Starts a browser without a window and opens `url`.
    pub(crate) fn open(url: &str) -> Self {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0");
        let there = Command::new("chromedriver").arg("--version").output().is_ok();
        assert!(there, "chromedriver is missing: apt-get install chromium chromium-driver");
        let process = Process::spawn(command);
        let line = process.next_line_with("started successfully on port", START);
        let port = line.trim_end_matches('.').rsplit(' ').next().unwrap().parse().unwrap();
        let driver = SocketAddr::from(([127, 0, 0, 1], port));
        let profile = TempFolder::create();
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
            "goog:chromeOptions": { "args": arguments(&profile) },
        }}});
        let mut browser =
            Browser { driver, session: String::new(), _process: process, _profile: profile };
        let session = browser.call("POST", "/session", &capabilities);
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        browser.post("/url", &json!({ "url": url }));
        browser
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.ask(method, path, body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()["value"].take()
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let json = "Content-Type: application/json; charset=utf-8";
        request(self.driver, method, path, &[json], &body)
    }

    /// As `post`, but `None` where the page is not ready for it.
    fn try_post(&self, path: &str, body: &Value) -> Option<Value> {
        let answer = self.ask("POST", &format!("/session/{}{path}", self.session), body);
        (answer.status == 200).then(|| answer.json()["value"].take())
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.call("POST", &format!("/session/{}{path}", self.session), body)
    }

    /// Runs the body of a function in the page and returns what it returns.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The text of the first element that `selector` finds; empty when there is none.
    pub(crate) fn text(&self, selector: &str) -> String {
        let script = format!(
            "const found = document.querySelector({selector:?});
             return found?.innerText ?? found?.textContent ?? ''"
        );
        self.run(&script).as_str().unwrap().to_owned()
    }

    /// Waits until the element's text is as wanted.
    pub(crate) fn wait_text(&self, selector: &str, is_right: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for(&format!("the text of {selector}"), GENEROUS, || {
                last = self.text(selector);
                is_right(&last).then(|| last.clone())
            })
        }));
        waited.unwrap_or_else(|_| panic!("{selector} is {last:?}; {:?}", self.console()))
    }

    /// Presses an element as a person would: where it is, and only once it can be seen.
    #[track_caller]
    pub(crate) fn click(&self, selector: &str) {
        testkit::wait_until(&format!("{selector} to be pressed"), GENEROUS, || {
            let wanted = json!({ "using": "css selector", "value": selector });
            let found = self.try_post("/element", &wanted);
            let id = found.as_ref().and_then(|found| found.as_object()?.values().next()?.as_str());
            id.is_some_and(|id| {
                self.try_post(&format!("/element/{id}/click"), &json!({})).is_some()
            })
        });
    }

    /// Presses keys on whatever has the focus.
    pub(crate) fn press(&self, key: &str) {
        let strokes =
            json!([{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }]);
        let keys = json!({ "type": "key", "id": "keys", "actions": strokes });
        self.post("/actions", &json!({ "actions": [keys] }));
    }

    pub(crate) fn command(&self, name: &str, params: &Value) -> Value {
        self.post("/goog/cdp/execute", &json!({ "cmd": name, "params": params }))
    }

    /// A screen of this size, in light or dark.
    pub(crate) fn screen(&self, width: u32, height: u32, scheme: &str) {
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": 2, "mobile": width < 600,
        });
        self.command("Emulation.setDeviceMetricsOverride", &metrics);
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.command("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
    }

    /// What is on the screen, as a PNG in base64.
    pub(crate) fn screenshot(&self) -> String {
        let shot = self.command("Page.captureScreenshot", &json!({ "format": "png" }));
        shot["data"].as_str().unwrap().to_owned()
    }

    /// What was written to the console since the last call.
    pub(crate) fn console(&self) -> Vec<String> {
        let entries = self.post("/se/log", &json!({ "type": "browser" }));
        let text = |entry: &Value| format!("{} {}", entry["level"], entry["message"]);
        entries.as_array().unwrap().iter().map(text).collect()
    }

    /// The addresses that were asked for since the last call.
    pub(crate) fn requests(&self) -> Vec<String> {
        let entries = self.post("/se/log", &json!({ "type": "performance" }));
        let url = |entry: &Value| {
            let message: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let message = &message["message"];
            let is_request = message["method"] == "Network.requestWillBeSent";
            let url = message["params"]["request"]["url"].as_str()?;
            is_request.then(|| url.to_owned())
        };
        entries.as_array().unwrap().iter().filter_map(url).collect()
    }
}

impl Drop for Browser {
    /// The browser ends with its session, also when the test fails: the driver alone would not
    /// take it along.
    fn drop(&mut self) {
        if let Ok(mut stream) = TcpStream::connect(self.driver) {
            let path = format!("/session/{}", self.session);
            let _ = stream.set_read_timeout(Some(GENEROUS));
            let _ = stream.write_all(head(self.driver, "DELETE", &path, &[], "").as_bytes());
            read(stream);
        }
    }
}

fn arguments(profile: &TempFolder) -> Vec<String> {
    let fixed = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
    ];
    let profile = format!("--user-data-dir={}", profile.path().display());
    fixed.iter().map(|text| (*text).to_owned()).chain([profile]).collect()
}
