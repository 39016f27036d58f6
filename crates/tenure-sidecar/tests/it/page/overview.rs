//! The page with many elections: who is in trouble, and whether it can be found.

use std::time::Duration;

use serde_json::json;
use tenure::{Election, Tenure};
use tenure_sidecar::Sidecar;
use testkit::{GENEROUS, wait_until};

use super::check_manners;
use crate::browser::Browser;
use crate::stage::{Served, Stage, TTL};

/// Leases that neither a starting browser nor fifty elections on a busy machine end.
const LONG: Duration = Duration::from_secs(60);

/// Ada leads `job-1` to `job-48`; nobody leads `orphan`, and `paused` waits for an operator.
struct Fifty {
    stage: Stage,
    served: Served,
    ada: Tenure,
    _elections: Vec<Election>,
}

impl Fifty {
    fn on(stage: Stage, ttl: Duration) -> Self {
        let builder = stage.builder("ada").ttl(ttl);
        let ada = stage.runtime.block_on(builder.connect()).unwrap();
        let paused = ada.observe("paused").unwrap();
        stage.runtime.block_on(paused.pause(Duration::from_secs(3600))).unwrap();
        let start = |number| ada.election(&format!("job-{number}")).start();
        let elections: Vec<Election> =
            (1..=48).map(|number| stage.runtime.block_on(start(number)).unwrap()).collect();
        wait_until("ada leads them", GENEROUS, || elections.iter().all(Election::is_leader));
        let builder = Sidecar::builder(ada.clone()).observe("orphan").observe("paused");
        let served = stage.serve(
            elections.iter().cloned().fold(builder, |builder, election| builder.election(election)),
        );
        Fifty { stage, served, ada, _elections: elections }
    }

    fn open(&self) -> Browser {
        let browser = Browser::open(&format!("http://{}/", self.served.address));
        wait_until("all fifty are listed", GENEROUS, || rows(&browser).len() == 50);
        browser
    }
}

/// The names in the list, from the top.
pub(super) fn rows(browser: &Browser) -> Vec<String> {
    let names = browser.run(
        "return [...document.querySelectorAll('.elections tbody tr')].map(row => row.dataset.name)",
    );
    serde_json::from_value(names).unwrap()
}

fn row(name: &str, part: &str) -> String {
    format!(".elections tr[data-name='{name}'] {part}")
}

#[test]
fn fifty_elections_are_listed_with_trouble_first_and_in_natural_order() {
    let fifty = Fifty::on(Stage::embedded(), LONG);
    let browser = fifty.open();
    browser.wait_text(&row("orphan", ".state"), |text| text == "nobody leads");
    browser.wait_text(&row("paused", ".state"), |text| text == "paused");
    browser.wait_text(&row("job-48", ".state"), |text| text == "ok");
    let mut expected = vec!["orphan".to_owned(), "paused".to_owned()];
    expected.extend((1..=48).map(|number| format!("job-{number}")));
    wait_until("trouble is first, then names by their numbers", GENEROUS, || {
        rows(&browser) == expected
    });
    assert_eq!(browser.text(&row("job-2", ".leads .name")), "ada");
    assert!(browser.text(&row("job-2", ".leads")).contains("this one"));
    let status = fifty.served.json("/status");
    let of = |name: &str| {
        let all = status["resources"].as_array().unwrap();
        all.iter().find(|resource| resource["name"] == name).unwrap().clone()
    };
    assert_eq!(browser.text(&row("job-2", ".token")), of("job-2")["token"].to_string());
    let left = browser.text(&row("job-2", ".lease"));
    assert!(left.trim_end_matches(" s").parse::<f64>().is_ok_and(|left| left > 0.0), "{left:?}");
    // A time of day, and for how long.
    let since = browser.text(&row("job-2", ".since"));
    assert!(since.split(':').count() == 3 && since.ends_with('s'), "{since:?}");
    browser.wait_text("#link-text", |text| text == "live");
    wait_until("its title tells of trouble", GENEROUS, || {
        browser.run("return document.title") == "2 in trouble · Tenure"
    });
    check_manners(&browser, &fifty.served, &[]);

    // What was trouble goes to its place among the others once it is over.
    let resumed = fifty.served.post("/resume/paused", "{}");
    assert_eq!(resumed.status, 200, "{}", resumed.body);
    browser.wait_text(&row("paused", ".state"), |text| text == "nobody leads");
}

#[test]
fn an_election_is_found_by_any_of_its_words_and_has_an_address_of_its_own() {
    let fifty = Fifty::on(Stage::embedded(), LONG);
    let browser = fifty.open();
    browser.press("/");
    for key in "job-4".chars() {
        browser.press(&key.to_string());
    }
    let found: Vec<String> = [4].into_iter().chain(40..=48).map(|n| format!("job-{n}")).collect();
    wait_until("the list is what was searched for", GENEROUS, || rows(&browser) == found);
    for key in " nothing".chars() {
        browser.press(&key.to_string());
    }
    browser.wait_text(".nothing", |text| text.contains("job-4 nothing"));
    browser.press("\u{e00c}"); // Escape
    wait_until("all are back", GENEROUS, || rows(&browser).len() == 50);
    browser.click("[data-filter=trouble]");
    wait_until("only trouble", GENEROUS, || rows(&browser) == ["orphan", "paused"]);
    browser.click("[data-filter=all]");

    browser.click(&row("job-12", "a"));
    browser.wait_text(".card h2", |text| text == "job-12");
    browser.wait_text(".leader", |text| text == "ada");
    assert_eq!(browser.run("return location.hash"), "#/e/job-12");
    browser.wait_text("#back-trouble", |text| text == "2 in trouble");
    // The same address in another tab, or sent to a colleague.
    browser.run("location.reload()");
    browser.wait_text(".card h2", |text| text == "job-12");
    browser.click("#back a");
    wait_until("back in the list", GENEROUS, || rows(&browser).len() == 50);
    browser.run("location.hash = '#/e/nothing-like-it'");
    browser.wait_text("main .notice", |text| text.contains("no election nothing-like-it"));
}

#[test]
fn a_dead_store_makes_every_line_unknown() {
    let mut fifty = Fifty::on(Stage::redis(), TTL * 4);
    let browser = fifty.open();
    browser.wait_text(&row("job-1", ".state"), |text| text == "ok");
    fifty.stage.server().kill();
    browser.wait_text("#link-text", |text| text == "store unreachable");
    let states = "return [...new Set([...document.querySelectorAll('.elections .state')]
        .map(cell => cell.innerText))]";
    wait_until("nothing is said that nobody knows", GENEROUS, || {
        browser.run(states) == json!(["unknown"])
    });
    browser.wait_text(&row("job-7", ".leads"), |text| text == "last seen ada");
    browser.wait_text(&row("job-7", ".since"), |text| text.contains(':'));
    assert_eq!(browser.text(&row("job-7", ".lease")), "");
    browser.wait_text("[data-filter=trouble] b", |text| text == "50");
    // Said once, and not on each line.
    browser.wait_text(".overview > .note", |text| text.contains("store unreachable"));
    assert_eq!(browser.text(&row("job-7", ".why")), "");

    browser.click(&row("job-7", "a"));
    browser.wait_text(".leader", |text| text == "Unknown");
    browser.wait_text(".facts", |text| text.contains("since") && text.contains("last seen ada"));
    let offered = "return [...document.querySelectorAll('.card button')]
        .filter(e => e.checkVisibility() && e.innerText.endsWith('…')).length";
    assert_eq!(browser.run(offered), 0, "nothing that cannot work");
    drop(fifty.ada);
}

/// Texts that cover each other, or stick out of the screen. Headings that only a screen reader gets
/// are clipped away.
const COLLISIONS: &str = "
    const isClipped = e => getComputedStyle(e.closest('thead') ?? e).clipPath !== 'none';
    const texts = [...document.querySelectorAll('body *')].filter(e => e.checkVisibility() && !isClipped(e)
        && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()));
    const boxes = texts.flatMap(e => {
        const range = document.createRange();
        range.selectNodeContents(e);
        return [...range.getClientRects()].filter(r => r.width > 1 && r.height > 1)
            .map(r => ({ e, r }));
    });
    const found = boxes.filter(({ r }) => r.right > innerWidth + 1).map(({ e }) => e.outerHTML);
    for (const [i, a] of boxes.entries()) for (const b of boxes.slice(i + 1)) {
        if (a.e === b.e || a.e.contains(b.e) || b.e.contains(a.e)) continue;
        const over = Math.min(a.r.right, b.r.right) - Math.max(a.r.left, b.r.left);
        const deep = Math.min(a.r.bottom, b.r.bottom) - Math.max(a.r.top, b.r.top);
        if (over > 1 && deep > 4) found.push(a.e.outerHTML + ' / ' + b.e.outerHTML);
    }
    return found";

fn check_collisions(browser: &Browser) {
    let started = std::time::Instant::now();
    let mut found = browser.run(COLLISIONS);
    while found != json!([]) {
        assert!(started.elapsed() < GENEROUS, "{found:#}");
        found = browser.run(COLLISIONS);
    }
}

#[test]
fn on_a_phone_in_the_dark_nothing_collides() {
    let fifty = Fifty::on(Stage::embedded(), LONG);
    let browser = fifty.open();
    browser.screen(390, 844, "dark");
    let wide = "return document.documentElement.scrollWidth";
    wait_until("nothing sticks out", GENEROUS, || browser.run(wide).as_f64() <= Some(390.0));
    check_collisions(&browser);
    let paper = "return getComputedStyle(document.body).backgroundColor";
    assert_eq!(browser.run(paper), "rgb(19, 21, 23)", "dark");

    browser.run("location.hash = '#/e/job-9'");
    browser.wait_text(".card h2", |text| text == "job-9");
    wait_until("the timeline is drawn", GENEROUS, || {
        browser.run("return document.querySelectorAll('.timeline .tick').length").as_u64() > Some(1)
    });
    for window in ["60000", "600000", "86400000"] {
        browser.click(&format!(".zoom [data-ms='{window}']"));
        check_collisions(&browser);
    }
    assert!(browser.run(wide).as_f64() <= Some(390.0));
}

#[test]
fn an_operator_pauses_and_resumes_from_the_page() {
    let fifty = Fifty::on(Stage::embedded(), LONG);
    let browser = fifty.open();
    browser.run("location.hash = '#/e/job-3'");
    let button = |text: &str| {
        let script = format!(
            "const found = [...document.querySelectorAll('.actions button')]
                .find(e => e.checkVisibility() && e.innerText === {text:?});
             found?.focus(); return Boolean(found)"
        );
        wait_until(&format!("{text} is offered"), GENEROUS, || browser.run(&script) == true);
        browser.press("\u{e007}"); // Enter
    };
    button("Pause…");
    browser.wait_text("#ask-title", |text| text == "Pause job-3?");
    browser.run("document.getElementById('ask-length').value = '3600000'");
    browser.click("#ask-yes");
    browser.wait_text("#ask-outcome", |text| text.starts_with("Paused until"));
    browser.click("#ask-no");
    browser.wait_text(".note", |text| text.starts_with("Paused for 59 min"));
    browser.wait_text(".pill", |text| text == "paused");
    let job = fifty.served.json("/status");
    let job = job["resources"].as_array().unwrap().iter().find(|r| r["name"] == "job-3").unwrap();
    assert!(job["paused_for_ms"].as_u64() > Some(3_000_000), "{job}");

    button("Resume…");
    browser.wait_text("#ask-title", |text| text == "Resume job-3?");
    browser.click("#ask-yes");
    browser.wait_text("#ask-outcome", |text| text == "Resumed.");
    browser.click("#ask-no");
    browser.wait_text(".pill", |text| text == "leads here");
    check_manners(&browser, &fifty.served, &[]);
}

/// What the documentation shows of the list.
pub(super) fn picture() -> Vec<u8> {
    let fifty = Fifty::on(Stage::embedded(), LONG);
    let browser = fifty.open();
    browser.screen(1180, 560, "light");
    browser.wait_text(&row("orphan", ".state"), |text| text == "nobody leads");
    std::thread::sleep(Duration::from_secs(12));
    super::base64(&browser.screenshot())
}

/// Notes when the last line is on the screen: the frame after the one in which it was put there.
const NOTE_PAINT: &str = "new MutationObserver((_, observer) => {
        if (document.querySelectorAll('.elections tbody tr').length < 50) return;
        observer.disconnect();
        requestAnimationFrame(() => setTimeout(() => { window.paintedAt = performance.now(); }));
    }).observe(document, { childList: true, subtree: true });";

/// Not a test: a published figure. `cargo xtask bench page` runs it.
#[test]
#[ignore = "measures: run `cargo xtask bench page`"]
fn first_paint() {
    const LOADS: usize = 20;
    const AIM_MS: f64 = 200.0;
    let fifty = Fifty::on(Stage::embedded(), LONG);
    let browser = fifty.open();
    browser.command("Page.enable", &json!({}));
    browser.command("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": NOTE_PAINT }));
    let mut took: Vec<f64> = (0..LOADS)
        .map(|_| {
            // What the page before noted must not be read as this one's.
            browser.run("window.paintedAt = null; location.reload()");
            testkit::wait_for("the list is painted", GENEROUS, || {
                browser.run("return window.paintedAt ?? null").as_f64()
            })
        })
        .collect();
    took.sort_by(f64::total_cmp);
    let (median, most) = (took[LOADS / 2], took[LOADS - 1]);
    let verdict = if median <= AIM_MS { "reached" } else { "**missed**" };
    println!("| figure | Tenure | aim |\n|---|---|---|");
    println!(
        "| first paint of all lines, 50 elections | p50 {median:.0} ms, most {most:.0} ms \
         (n={LOADS}) | ≤ {AIM_MS} ms {verdict} |"
    );
}
