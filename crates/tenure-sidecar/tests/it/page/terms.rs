//! The terms of one election on the page: the timeline, and the history by pages.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::Tenure;
use tenure_sidecar::Sidecar;
use testkit::proxy::Rule;
use testkit::{GENEROUS, Proxy, wait_until};

use super::open;
use crate::browser::Browser;
use crate::stage::{RESOURCE, Served, Stage};

/// Long enough to be seen beside its successor, and soon silent.
const LEASE: Duration = Duration::from_secs(3);
/// As many as a store keeps: 1,000 entries.
const TERMS: u64 = 490;

/// Writes terms of 50 s, a minute from each other, the last of which ended an hour ago.
fn write_history(stage: &mut Stage) -> Vec<u64> {
    const WRITE: &str = "for _, token in ipairs(ARGV) do
        local id = 'web-' .. (tonumber(token) / 60000000 % 3) .. '_0123456789'
        redis.call('XADD', KEYS[1], '*', 'at', token, 'what', 'granted', 'id', id, 'token', token)
        local ended = string.format('%.0f', tonumber(token) + 50000000)
        redis.call('XADD', KEYS[1], '*', 'at', ended, 'what', 'closed', 'id', id, 'token', token,
            'reason', 'released', 'detail', '')
    end";
    let minute = 60_000_000;
    let now = u64::try_from(unix_now().as_micros()).unwrap() / minute * minute;
    let begin = now - (60 + TERMS) * minute;
    let tokens: Vec<u64> = (0..TERMS).map(|term| begin + term * minute).collect();
    let key = format!("{{tenure:{RESOURCE}}}:history");
    let texts: Vec<String> = tokens.iter().map(u64::to_string).collect();
    let mut words = vec!["EVAL", WRITE, "1", &key];
    words.extend(texts.iter().map(String::as_str));
    stage.server().cli(&words);
    tokens
}

fn unix_now() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap()
}

fn tokens(terms: &Value) -> Vec<u64> {
    terms.as_array().unwrap().iter().map(|term| term["token"].as_u64().unwrap()).collect()
}

#[test]
fn the_whole_history_is_read_by_pages() {
    let mut stage = Stage::redis();
    let written = write_history(&mut stage);
    let served = stage.serve(Sidecar::builder(stage.client("ops")).observe(RESOURCE));
    let mut found = Vec::new();
    let mut before = String::new();
    loop {
        let page = served.json(&format!("/history/{RESOURCE}?count=100{before}"));
        let terms = tokens(&page["terms"]);
        assert_eq!(
            terms.len(),
            50.min(written.len() - found.len()),
            "a page has two entries per term"
        );
        let gaps = page["terms"].as_array().unwrap().iter().filter(|term| term["gap_ms"].is_null());
        // What was before the first term of a page is known from the page before it.
        assert_eq!(gaps.count(), usize::from(before.is_empty() || terms[0] == written[0]));
        before = format!("&before={}", terms[0]);
        found.splice(0..0, terms);
        if page["earlier"] == false {
            break;
        }
    }
    assert_eq!(found, written);
    check_on_the_page(&served, &written);
}

fn check_on_the_page(served: &Served, written: &[u64]) {
    let browser = open(served);
    let older = ".pages button:last-child";
    let shown =
        "return [...document.querySelectorAll('.terms tbody tr')].map(row => row.dataset.token)";
    wait_until("the latest terms are shown", GENEROUS, || browser.run(shown)[0].is_string());
    let first: Vec<String> = serde_json::from_value(browser.run(shown)).unwrap();
    assert_eq!(first[0], written.last().unwrap().to_string(), "newest first");
    // A time of day, perhaps with its day.
    let began = browser.text(".terms tbody time");
    assert!(began.split(':').count() == 3, "{began:?}");
    assert!(browser.text(".terms tbody tr").contains("released"));
    let mut found = BTreeSet::new();
    loop {
        let page: Vec<String> = serde_json::from_value(browser.run(shown)).unwrap();
        found.extend(page.iter().map(|token| token.parse::<u64>().unwrap()));
        if browser.run(&format!("return document.querySelector('{older}').disabled")) == true {
            break;
        }
        browser.run(&format!("document.querySelector('{older}').click()"));
        wait_until("another page", GENEROUS, || browser.run(shown) != json!(page));
    }
    assert_eq!(found.into_iter().collect::<Vec<_>>(), written);
}

fn mouse(browser: &Browser, kind: &str, x: f64, y: f64) {
    let buttons = i32::from(kind != "mouseReleased");
    browser.command(
        "Input.dispatchMouseEvent",
        &json!({ "type": kind, "x": x, "y": y, "button": "left", "buttons": buttons, "clickCount": 1 }),
    );
}

#[test]
fn the_timeline_tells_of_what_is_under_the_pointer_and_shows_what_is_chosen() {
    let mut stage = Stage::redis();
    write_history(&mut stage);
    let served = stage.serve(Sidecar::builder(stage.client("ops")).observe(RESOURCE));
    let browser = open(&served);
    browser.screen(1180, 1040, "light");
    browser.click(".zoom [data-ms='86400000']");
    let box_of = |selector: &str| {
        let script = format!(
            "const box = [...document.querySelectorAll({selector:?})].at(-1)?.getBoundingClientRect();
             return box ? [box.left, box.right, box.top + box.height / 2] : null"
        );
        let found = testkit::wait_for(selector, GENEROUS, || {
            Some(browser.run(&script)).filter(|found| found.is_array())
        });
        serde_json::from_value::<[f64; 3]>(found).unwrap()
    };
    // What comes above it meanwhile moves it.
    let said = testkit::wait_for("what is under the pointer", GENEROUS, || {
        let [left, right, middle] = box_of(".timeline .bar");
        let at = json!({ "type": "mouseMoved", "x": (left + right) / 2.0, "y": middle });
        browser.command("Input.dispatchMouseEvent", &at);
        Some(browser.text(".tip")).filter(|text| text.contains("token"))
    });
    assert!(said.contains("web-") && said.contains("released") && said.contains(" – "), "{said}");

    // An hour in the middle is chosen by a press and a drag.
    let [left, right, middle] = box_of(".timeline");
    let at = left + (right - left) * 0.7;
    mouse(&browser, "mousePressed", at, middle);
    mouse(&browser, "mouseMoved", at + 30.0, middle);
    mouse(&browser, "mouseMoved", at + 60.0, middle);
    mouse(&browser, "mouseReleased", at + 60.0, middle);
    let pressed = "return document.querySelectorAll('.zoom [aria-pressed=true]').length";
    wait_until("a part of the past is shown", GENEROUS, || browser.run(pressed) == 0);
    let now = "return document.querySelectorAll('.timeline .now').length";
    assert_eq!(browser.run(now), 0);
    browser.run("document.querySelector('.timeline').focus()");
    browser.press("\u{e00c}"); // Escape
    wait_until("up to now again", GENEROUS, || browser.run(now) == 1);
}

#[test]
fn the_axis_has_round_times() {
    let stage = Stage::embedded();
    let (ada, on_ada) = stage.leader("ada");
    let served = stage.serve_election(&ada, &on_ada);
    let browser = open(&served);
    // Windows from a minute to a week, on a screen where a tick may come every tenth of them.
    let script = "return import('/page/ticks.js').then(({ ticks }) =>
        [60e3, 600e3, 3600e3, 86400e3, 7 * 86400e3].map(length => {
            const until = Date.UTC(2026, 10, 19, 2, 8, 17, 123);
            return ticks(until - length, until, () => length / 10).map(tick => tick.text); }))";
    browser.command("Emulation.setTimezoneOverride", &json!({ "timezoneId": "Asia/Kolkata" }));
    let found = browser.run(script);
    assert_eq!(found[0][0], "07:37:20");
    assert_eq!(found[0].as_array().unwrap().len(), 6, "{found}");
    assert_eq!(found[1][0], "07:29");
    assert_eq!(found[2][0], "06:40");
    // Six hours and thirty minutes are round here, though not in UTC.
    assert_eq!(found[3][0], "09:00");
    assert!(found[3].as_array().unwrap().contains(&json!("19 Nov")), "midnight is a day: {found}");
    assert_eq!(found[4][0], "13 Nov");
    // Where the clock is put back, midnights are a day and an hour apart.
    browser.command("Emulation.setTimezoneOverride", &json!({ "timezoneId": "Europe/Berlin" }));
    let script = "return import('/page/ticks.js').then(({ ticks }) => {
        const until = Date.UTC(2026, 9, 27, 12);
        return ticks(until - 5 * 86400e3, until, () => 86400e3).map(tick =>
            new Date(tick.at).getHours() + ' ' + tick.text); })";
    assert_eq!(
        browser.run(script),
        json!(["0 23 Oct", "0 24 Oct", "0 25 Oct", "0 26 Oct", "0 27 Oct"])
    );
}

#[test]
fn an_instance_that_was_restarted_is_told_from_the_one_before() {
    let mut stage = Stage::redis();
    let proxy = Proxy::in_front_of(stage.server());
    let address = format!("redis://{}", proxy.address());
    let before = Tenure::builder().instance("web-2").ttl(LEASE).fresh_store(true).store(&address);
    let before = stage.runtime.block_on(before.connect()).unwrap();
    let on_before = stage.elect(&before);
    wait_until("it leads", GENEROUS, || on_before.is_leader());
    let served = stage.serve(Sidecar::builder(stage.client("ops")).observe(RESOURCE));
    let browser = open(&served);
    browser.wait_text(".leader", |text| text == "web-2");
    // It goes without a word: its line in the list of members stays for a while.
    proxy.set_rules(Rule::HalfOpen);
    let after = stage.client("web-2");
    let on_after = stage.elect(&after);
    wait_until("the other leads", GENEROUS, || on_after.is_leader());
    let ids = [before.id().to_string(), after.id().to_string()];
    let starts = ids.clone().map(|id| id.trim_start_matches("web-2_").to_owned());
    browser.wait_text(".members tbody", |text| starts.iter().all(|start| text.contains(start)));
    let lanes = "return [...document.querySelectorAll('.timeline .who')]
        .map(name => name.firstChild.data)";
    wait_until("each has a lane that says which", GENEROUS, || {
        let found = browser.run(lanes).to_string();
        starts.iter().all(|start| found.contains(&format!("web-2 {start}")))
    });
    let old = format!("tr[data-id='{}'] td", ids[0]);
    browser.wait_text(&old, |text| text == "silent");
}
