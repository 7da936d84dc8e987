//! A headless Chromium that a test drives over WebDriver, which is JSON over plain HTTP. Names resolve to nothing in it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::runner::Skip;

/// Time that a page has to do what a test waits for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Key codes of WebDriver.
pub mod key {
    pub const ENTER: &str = "\u{e007}";
    pub const ESCAPE: &str = "\u{e00c}";
    pub const LEFT: &str = "\u{e012}";
    pub const UP: &str = "\u{e013}";
    pub const RIGHT: &str = "\u{e014}";
    pub const DOWN: &str = "\u{e015}";
}

/// Browser with one window; it ends with the value.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    /// Open until the end: a driver whose output is closed ends.
    _said: BufReader<ChildStdout>,
    port: u16,
    session: String,
}

impl Browser {
    /// Starts a browser.
    pub fn start() -> Result<Browser, Skip> {
        let driver = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut driver =
            driver.map_err(|_| Skip("chromedriver is not installed: package chromium-driver".to_owned()))?;
        let mut said = BufReader::new(driver.stdout.take().expect("a pipe"));
        let mut lines = said.by_ref().lines().map_while(Result::ok);
        let port =
            |line: String| line.rsplit_once("started successfully on port ")?.1.trim_end_matches('.').parse().ok();
        let port = lines.find_map(port).expect("chromedriver tells its port");
        let mut browser = Browser { driver, _said: said, port, session: String::new() };
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=1400,1000",
            "--host-resolver-rules=MAP * ~NOTFOUND",
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
            "goog:chromeOptions": { "args": arguments },
        } } });
        let session = browser.ask("POST", "/session", Some(&wanted));
        let session = session.unwrap();
        browser.session = session["sessionId"].as_str().expect("a session").to_owned();
        Ok(browser)
    }

    /// Opens a page of the report with a fragment, and waits until it has drawn all of it.
    pub fn open(&self, file: &Path, fragment: &str) {
        self.load(file, fragment);
        self.wait_for("return document.documentElement.dataset.drawn === 'all'");
    }

    /// Loads a file with a fragment.
    pub fn load(&self, file: &Path, fragment: &str) {
        // A new fragment alone would load nothing.
        self.call("POST", "/url", Some(&json!({ "url": "about:blank" })));
        self.call("POST", "/url", Some(&json!({ "url": format!("file://{}{fragment}", file.display()) })));
    }

    /// Gives the window a size in pixels.
    pub fn resize(&self, width: u32, height: u32) {
        self.call("POST", "/window/rect", Some(&json!({ "width": width, "height": height })));
    }

    /// Value that a script returns.
    pub fn run(&self, script: &str) -> Value {
        self.call("POST", "/execute/sync", Some(&json!({ "script": script, "args": [] })))
    }

    /// Waits until a script returns true.
    pub fn wait_for(&self, script: &str) {
        let until = Instant::now() + PATIENCE;
        while self.run(script) != true {
            assert!(Instant::now() < until, "never true: {script}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Types keys into what has the focus.
    pub fn press(&self, keys: &[&str]) {
        let step = |kind: &str, key: &str| json!({ "type": kind, "value": key });
        let actions: Vec<Value> = keys.iter().flat_map(|key| [step("keyDown", key), step("keyUp", key)]).collect();
        let actions = json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] });
        self.call("POST", "/actions", Some(&actions));
    }

    /// Clicks the first element that a selector finds.
    pub fn click(&self, selector: &str) {
        let element = self.call("POST", "/element", Some(&json!({ "using": "css selector", "value": selector })));
        let id = element.as_object().and_then(|element| element.values().next()).and_then(Value::as_str);
        self.call("POST", &format!("/element/{}/click", id.expect("an element")), Some(&json!({})));
    }

    /// Sets a media feature, as `prefers-color-scheme`.
    pub fn set_media(&self, feature: &str, value: &str) {
        let params = json!({ "features": [{ "name": feature, "value": value }] });
        let command = json!({ "cmd": "Emulation.setEmulatedMedia", "params": params });
        self.call("POST", "/goog/cdp/execute", Some(&command));
    }

    /// Messages in the console since the last call.
    pub fn console(&self) -> Vec<String> {
        let entries = self.call("POST", "/se/log", Some(&json!({ "type": "browser" })));
        entries.as_array().into_iter().flatten().map(|entry| entry["message"].to_string()).collect()
    }

    /// Addresses that were asked for since the last call.
    pub fn requests(&self) -> Vec<String> {
        let entries = self.call("POST", "/se/log", Some(&json!({ "type": "performance" })));
        let messages = entries.as_array().into_iter().flatten().filter_map(|entry| entry["message"].as_str());
        let messages = messages.filter_map(|message| serde_json::from_str::<Value>(message).ok());
        let sent = messages.filter(|message| message["message"]["method"] == "Network.requestWillBeSent");
        sent.map(|message| message["message"]["params"]["request"]["url"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let path = format!("/session/{}{path}", self.session);
        self.ask(method, &path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Value of an answer; an error of the driver is an error.
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> io::Result<Value> {
        let body = body.map_or(String::new(), Value::to_string);
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE * 3))?;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len())?;
        let mut reader = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), 0);
        while reader.read_line(&mut line)? > 2 {
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            line.clear();
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer)?;
        let mut answer: Value = serde_json::from_slice(&answer).map_err(io::Error::other)?;
        match &answer["value"]["error"] {
            Value::String(error) => Err(io::Error::other(format!("{error}: {}", answer["value"]["message"]))),
            _ => Ok(answer["value"].take()),
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let _ = self.ask("DELETE", &format!("/session/{}", self.session), None);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
