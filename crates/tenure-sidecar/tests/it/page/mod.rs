//! The page in a real browser.

mod left;
mod overview;
mod terms;

use std::time::Duration;

use serde_json::json;
use tenure::Tenure;
use tenure_sidecar::{ServerSettings, Sidecar};
use testkit::proxy::Rule;
use testkit::{GENEROUS, Proxy, wait_until};

use crate::browser::Browser;
use crate::stage::{RESOURCE, Served, Stage, TTL};
use crate::stale::Scene;

fn open(served: &Served) -> Browser {
    let browser = Browser::open(&format!("http://{}/", served.address));
    browser.wait_text(".leader", |text| text.len() > 1);
    browser
}

/// Nothing went wrong in the page, and nothing was fetched from elsewhere.
fn check_manners(browser: &Browser, served: &Served, expected: &[&str]) {
    let complaints = browser.console();
    let complaints = complaints.iter().filter(|line| !expected.iter().any(|e| line.contains(e)));
    assert_eq!(complaints.collect::<Vec<_>>(), Vec::<&String>::new());
    let own = format!("http://{}/", served.address);
    // The browser's own first page is made of these; they leave the machine as little as ours.
    let is_inner = |url: &str| url.starts_with("chrome:") || url.starts_with("data:");
    let is_foreign = |url: &&String| !url.starts_with(&own) && !is_inner(url);
    let requests = browser.requests();
    assert!(requests.iter().any(|url| url.ends_with("/page/main.js")), "{requests:?}");
    assert_eq!(requests.iter().filter(is_foreign).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn the_page_follows_a_real_fail_over() {
    let mut stage = Stage::redis();
    // Ada reaches the store through a network that will fail.
    let proxy = Proxy::in_front_of(stage.server());
    let address = format!("redis://{}", proxy.address());
    let ada =
        Tenure::builder().instance("ada").ttl(TTL).fresh_store(true).store(&address).connect();
    let ada = stage.runtime.block_on(ada).unwrap();
    let on_ada = stage.elect(&ada);
    wait_until("ada leads", GENEROUS, || on_ada.is_leader());
    let bob = stage.client("bob");
    let on_bob = stage.elect(&bob);
    let served = stage.serve_election(&bob, &on_bob);

    let browser = open(&served);
    browser.wait_text(".leader", |text| text == "ada");
    browser.wait_text("#link-text", |text| text == "live");
    let left = |text: &str| text.parse::<f64>().is_ok_and(|left| left > 0.0);
    browser.wait_text(".ring .left", left);
    browser.wait_text(".members tbody", |text| text.contains("ada") && text.contains("bob"));
    let bars = "return document.querySelectorAll('.timeline .bar').length";
    wait_until("the term is drawn", GENEROUS, || browser.run(bars) == 1);

    proxy.set_rules(Rule::HalfOpen);
    browser.wait_text(".leader", |text| text == "bob");
    wait_until("both terms are drawn", GENEROUS, || browser.run(bars) == 2);
    browser.wait_text("#journal", |text| text.contains("bob leads"));
    browser.wait_text(".pill", |text| text == "leads here");
    wait_until("it shows what renewals took", GENEROUS, || {
        browser.text(".latency-title") == "Renewals"
    });
    check_manners(&browser, &served, &[]);
}

#[test]
fn a_hand_over_is_asked_first_then_done() {
    let stage = Stage::embedded();
    // Leases that a starting browser does not end.
    let join = |name: &str| {
        let client = stage.builder(name).ttl(Duration::from_secs(60)).connect();
        let client = stage.runtime.block_on(client).unwrap();
        let election = stage.elect(&client);
        (client, election)
    };
    let (ada, on_ada) = join("ada");
    wait_until("ada leads", GENEROUS, || on_ada.is_leader());
    let (bob, on_bob) = join("bob");
    let served = stage.serve_election(&ada, &on_ada);
    let browser = open(&served);
    let row = format!("tr[data-id='{}'] button", bob.id());
    wait_until("bob can be chosen", GENEROUS, || browser.text(&row) == "Hand over…");

    browser.click(&row);
    assert_eq!(browser.wait_text("#ask-title", |text| !text.is_empty()), "Hand over to bob?");
    browser.press("\u{e00c}"); // Escape
    wait_until("the dialog is gone", GENEROUS, || {
        browser.run("return document.getElementById('ask').open") == false
    });
    assert!(on_ada.is_leader(), "a question that was not answered does nothing");

    browser.click(&row);
    browser.click("#ask-yes");
    browser.wait_text("#ask-outcome", |text| text.contains("bob leads now"));
    browser.click("#ask-no");
    browser.wait_text(".leader", |text| text == "bob");
    assert!(on_bob.is_leader());

    // The same with the keyboard alone: the button, tab to yes, enter.
    browser.run("document.querySelector('.actions button').focus()");
    browser.press("\u{e007}");
    browser.wait_text("#ask-title", |text| text == "Let bob resign?");
    browser.press("\u{e004}");
    browser.press("\u{e007}");
    browser.wait_text("#ask-outcome", |text| {
        text.contains("ada leads now") || text.contains("stepped down")
    });
    browser.wait_text(".leader", |text| text == "ada");
    check_manners(&browser, &served, &[]);
}

#[test]
fn a_lost_connection_is_told_and_comes_back() {
    let stage = Stage::embedded();
    let (ada, on_ada) = stage.leader("ada");
    let served = stage.serve_election(&ada, &on_ada);
    let address = served.address;
    let browser = open(&served);
    browser.wait_text("#link-text", |text| text == "live");

    stage.end(served);
    browser.wait_text("#link-text", |text| text == "connection lost");
    browser.wait_text("#notice", |text| text.contains("Connection lost"));
    let builder = Sidecar::builder(ada).election(on_ada);
    let again = stage.serve_at(builder, ServerSettings::listen(address.to_string())).unwrap();
    browser.wait_text("#link-text", |text| text == "live");
    let notice = "return document.getElementById('notice').checkVisibility()";
    wait_until("the notice is gone", GENEROUS, || browser.run(notice) == false);
    browser.wait_text("#journal", |text| text.contains("the sidecar was restarted"));
    // While nobody answered, the browser itself said so.
    check_manners(&browser, &again, &["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING"]);
}

#[test]
fn a_token_is_asked_for_where_one_is_needed() {
    let stage = Stage::embedded();
    let (ada, on_ada) = stage.leader("ada");
    let builder = Sidecar::builder(ada).election(on_ada);
    let token = "0123456789abcdef";
    let settings = ServerSettings::listen("127.0.0.1:0").token(tenure::Secret::new(token));
    let served = stage.serve_at(builder, settings).unwrap();
    let browser = Browser::open(&format!("http://{}/", served.address));
    browser.wait_text("#ask-title", |text| text == "A token is needed");
    browser.run(&format!("document.getElementById('ask-input').value = {token:?}"));
    browser.click("#ask-yes");
    browser.wait_text(".leader", |text| text == "ada");
    check_manners(&browser, &served, &["401"]);
}

#[test]
fn it_fits_a_phone_and_names_its_parts() {
    let stage = Stage::embedded();
    let (ada, on_ada) = stage.leader("ada");
    let served = stage.serve_election(&ada, &on_ada);
    let browser = open(&served);
    browser.screen(360, 740, "dark");
    let wide = "return document.documentElement.scrollWidth";
    wait_until("nothing sticks out", GENEROUS, || browser.run(wide).as_f64() <= Some(360.0));
    let nameless = "return [...document.querySelectorAll('button, a, input, [role]')]
        .filter(e => e.checkVisibility() && !(e.innerText || e.textContent
            || e.getAttribute('aria-label') || e.labels?.length)).map(e => e.outerHTML)";
    assert_eq!(browser.run(nameless), json!([]));
}

/// What the page offers to do, and whom it calls the leader.
const CLAIMS: &str = "const shown = (e) => e.checkVisibility() ? e.innerText : null;
    return [...document.querySelectorAll('.card button.ghost')].map(shown).filter(Boolean)";

#[test]
fn a_silent_store_makes_the_leader_unknown_and_nothing_is_offered() {
    let mut scene = Scene::new();
    let browser = open(&scene.served);
    browser.wait_text(".leader", |text| text == "ada");
    wait_until("a leader can be asked", GENEROUS, || {
        browser.run(CLAIMS) == json!(["Resign…", "Pause…"])
    });
    for silence in [Scene::SILENCES[2], Scene::SILENCES[0], Scene::SILENCES[1]] {
        silence(&mut scene);
        browser.wait_text(".leader", |text| text == "Unknown");
        browser
            .wait_text(".facts", |text| text.contains("since") && text.contains("last seen ada"));
        browser.wait_text("#link-text", |text| text == "store unreachable");
        assert_eq!(browser.run(CLAIMS), json!([]), "nothing that cannot work is offered");
        assert_eq!(browser.run("return document.title"), "Unknown · Tenure");
        let green = "return document.querySelectorAll('.timeline .bar.live, .timeline .tail, \
                     tr[data-leads=true]').length";
        assert_eq!(browser.run(green), 0, "nothing is drawn as running");
        if !scene.stage.is_up() {
            break;
        }
        scene.proxy.heal();
        scene.stage.server().resume();
        browser.wait_text(".leader", |text| text == "ada");
        browser.wait_text("#link-text", |text| text == "live");
    }
}

#[test]
fn members_of_a_store_that_never_answered_are_not_known() {
    let mut stage = Stage::redis();
    let looker = stage.client("ops");
    stage.server().kill();
    let served = stage.serve(Sidecar::builder(looker).observe(RESOURCE));
    let browser = Browser::open(&format!("http://{}/", served.address));
    browser.wait_text("#link-text", |text| text == "store unreachable");
    browser.wait_text(".members", |text| text.contains("Not known yet"));
    let said = browser.run("return document.body.innerText");
    assert!(!said.as_str().unwrap().contains("Nobody takes part"), "{said}");
}

/// A tab that slept, or a network that stood still: what comes late is old.
#[test]
fn late_events_are_not_taken_for_news() {
    let mut scene = Scene::new();
    let network = Proxy::to(scene.served.address);
    let browser = Browser::open(&format!("http://{}/", network.address()));
    browser.wait_text(".leader", |text| text == "ada");
    network.set_rules(Rule::HalfOpen);
    browser.wait_text(".leader", |text| text == "Unknown");
    // It is the sidecar that is not heard: nothing is known against the store.
    browser.wait_text("#link-text", |text| text.starts_with("the sidecar has been silent since"));
    browser.wait_text(".note", |text| text.starts_with("The sidecar has been silent since"));
    let shown = "window.shown = []; new MutationObserver(() => window.shown.push(
        document.querySelector('.leader').innerText)).observe(
        document.querySelector('.leader'), { childList: true, characterData: true, subtree: true })";
    browser.run(shown);
    scene.stage.server().pause();
    scene.served.wait_for("the sidecar knows no leader", "/status", |status| {
        status["resources"][0]["unknown"].is_object()
    });
    network.heal();
    browser.wait_text("#link-text", |text| text == "store unreachable");
    assert_eq!(browser.run("return window.shown.filter(text => text === 'ada')"), json!([]));
}

/// A name that would be read backwards, or hold what is not seen.
#[test]
fn names_that_deceive_are_shown_as_what_they_are() {
    let mut stage = Stage::redis();
    let foreign = "web-1\u{202e}\u{2060}\u{61c}\u{ad}\u{e0041}x\u{1b}[2J";
    stage.server().cli(&["SET", "tenure:nightly-report", foreign, "PX", "600000"]);
    let served = stage.serve(Sidecar::builder(stage.client("ops")).observe(RESOURCE));
    served.wait_for("it is seen", "/status", |s| s["resources"][0]["leader"].is_object());
    for path in ["/status", "/leader", "/monitoring/standby-status", "/health"] {
        let body = served.get(path).body;
        assert!(body.chars().all(|c| c.is_ascii() && !c.is_control()), "{path}: {body:?}");
    }
    let browser = open(&served);
    browser.wait_text(".leader", |text| text.starts_with("web-1\\xe2\\x80\\xae\\xe2\\x81\\xa0"));
    let net = "return import('/page/words.js').then(words => words.plain('a\u{202e}b\u{ad}c'))";
    assert_eq!(browser.run(net), "a\u{fffd}b\u{fffd}c", "whatever comes through elsewhere");
    let raw = "return /[\\p{Cf}\\x1b]/u.test(document.documentElement.outerHTML + document.title)";
    assert_eq!(browser.run(raw), false);
}

/// Not a test: what the documentation shows. `cargo xtask pictures` runs it.
#[test]
#[ignore = "writes docs/pictures: run `cargo xtask pictures`"]
fn pictures() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pictures");
    std::fs::create_dir_all(folder).unwrap();
    let stage = Stage::embedded();
    let (web_1, on_web_1) = stage.leader("web-1");
    let (web_2, web_3) = (stage.client("web-2"), stage.client("web-3"));
    let others = [stage.elect(&web_2), stage.elect(&web_3)];
    let served = stage.serve_election(&web_1, &on_web_1);
    let browser = open(&served);
    browser.screen(1180, 1040, "light");
    let pause = || std::thread::sleep(Duration::from_secs(7));
    let hand_over = |to: &str| {
        wait_until("it was handed over", GENEROUS, || {
            let body = format!("{{\"to\":\"{to}\"}}");
            served.post(&format!("/hand-over/{RESOURCE}"), &body).status == 200
        });
        pause();
    };
    pause();
    hand_over("web-2");
    // A term that nobody ends: its lease has to run out.
    stage
        .runtime
        .block_on(async { web_2.observe(RESOURCE).unwrap().pause(Duration::from_secs(3)).await })
        .unwrap();
    served.post(&format!("/resign/{RESOURCE}"), "");
    pause();
    hand_over("web-3");
    hand_over("web-2");
    hand_over("web-1");
    pause();
    assert!(!others.iter().any(tenure::Election::is_leader));
    for (name, width, height, scheme) in
        [("light", 1180, 1040, "light"), ("dark", 1180, 1040, "dark"), ("phone", 390, 844, "light")]
    {
        browser.screen(width, height, scheme);
        std::thread::sleep(Duration::from_secs(2));
        let picture = base64(&browser.screenshot());
        std::fs::write(format!("{folder}/{name}.png"), picture).unwrap();
    }
    std::fs::write(format!("{folder}/elections.png"), overview::picture()).unwrap();
}

fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let value = |byte: u8| ALPHABET.iter().position(|letter| *letter == byte).unwrap() as u32;
    let mut bytes = Vec::new();
    for chunk in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 6 | value(*byte));
        let bits = bits << (6 * (4 - chunk.len()));
        bytes.extend(&bits.to_be_bytes()[1..chunk.len()]);
    }
    bytes
}
