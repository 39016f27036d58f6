//! A password shows nowhere: not in what handles print, nor in errors, logs, panics or the store.
//!
//! The test hands out a canary as the password and greps everything that anybody could print.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::backend::Backend;
use tenure::backend::redis::{Login, RedisBackend, RedisUrl};
use tenure::config::{Format, Loader};
use tenure::{OnLoss, Secret, Tenure, Tick};
use testkit::{GENEROUS, RedisServer, wait_until};

const CANARY: &str = "c4nary-in-the-c0al-mine";
const TTL: Duration = Duration::from_secs(1);

/// Everything that was printed, and by what.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<(String, String)>>>);

impl Printed {
    fn add(&self, by: &str, text: impl Into<String>) {
        self.0.lock().unwrap().push((by.to_owned(), text.into()));
    }

    fn debug(&self, by: &str, value: &dyn Debug) {
        self.add(by, format!("{value:?}\n{value:#?}"));
    }

    fn error(&self, by: &str, error: &dyn std::error::Error) {
        let mut text = format!("{error}\n{error:?}\n{error:#?}");
        let mut source = error.source();
        while let Some(cause) = source {
            write!(text, "\n{cause} {cause:?}").unwrap();
            source = cause.source();
        }
        self.add(by, text);
    }

    fn from(&self, by: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|(who, _)| who == by).count()
    }

    fn leaks(&self) -> Vec<(String, String)> {
        let printed = self.0.lock().unwrap();
        printed.iter().filter(|(_, text)| text.contains(CANARY)).cloned().collect()
    }
}

/// Takes down all events of all levels and targets, whoever logs.
struct Log(Printed);

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        let mut line = attributes.metadata().name().to_owned();
        attributes.record(&mut |field: &tracing::field::Field, value: &dyn Debug| {
            let _ = write!(line, " {}={value:?}", field.name());
        });
        self.0.add("span", line);
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = event.metadata().target().to_owned();
        event.record(&mut |field: &tracing::field::Field, value: &dyn Debug| {
            let _ = write!(line, " {}={value:?}", field.name());
        });
        self.0.add("log", line);
    }
}

#[test]
fn a_password_shows_nowhere() {
    let printed = Printed::default();
    tracing::subscriber::set_global_default(Log(printed.clone())).unwrap();
    let panics = printed.clone();
    std::panic::set_hook(Box::new(move |panic| panics.add("panic", panic.to_string())));

    let mut server = RedisServer::builder()
        .acl(&format!("user default off\nuser app on >{CANARY} ~* &* +@all"))
        .login("app", CANARY)
        .start();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let good = server.url();
    assert!(good.contains(CANARY), "the address has to hold it");
    runtime.block_on(use_everything(&printed, &server));
    runtime.block_on(be_refused(&printed, &server));
    misread(&printed);
    // Outside of a runtime this panics, and says so.
    let panic = std::panic::catch_unwind(|| RedisBackend::open(&good));
    assert!(panic.is_err(), "there is no runtime here");
    for key in server.cli(&["--scan"]).lines() {
        printed.add("store", server.cli(&["--raw", "DUMP", key]));
    }
    runtime.block_on(lose_the_store(&printed, &mut server));

    let _ = std::panic::take_hook();
    for by in ["handle", "error", "log", "panic", "store"] {
        assert!(printed.from(by) > 0, "nothing printed by {by}: that shows nothing");
    }
    assert_eq!(printed.leaks(), []);
    // The grep itself can find it.
    printed.add("the test", good);
    assert_eq!(printed.leaks().len(), 1);
}

async fn use_everything(printed: &Printed, server: &RedisServer) {
    let show = |value: &dyn Debug| printed.debug("handle", value);
    let text = format!("store = '{}'\n[defaults]\nfresh_store = true\nttl = '1s'", server.url());
    let loader = Loader::new().text(Format::Toml, "tenure.toml", &text);
    show(&loader);
    let config = loader.load().unwrap();
    show(&config);
    printed.add("handle", config.store.to_string());
    let builder = Tenure::builder().config(config);
    show(&builder);
    let tenure = builder.connect().await.unwrap();
    let election = tenure.election("job").ttl(TTL).on_loss(OnLoss::Recontend);
    show(&election);
    let mut builder = election.on_event(|_| panic!("a listener panics"));
    let mut events = builder.events();
    let election = builder.start().await.unwrap();
    let term = election.wait_for_leadership_within(GENEROUS).await.unwrap();
    show(&(&tenure, &election, &term, &events, election.watch(), election.status()));
    show(&(
        tenure.connection(),
        election.status().seen_members,
        election.on_event(|_| ()).unwrap(),
    ));
    printed.add("handle", format!("{} {}", tenure.store(), tenure.id()));
    let observer = tenure.observe("job").unwrap();
    show(&(&observer, observer.look().await.unwrap(), observer.changes().await.unwrap()));
    show(&observer.history(10).await.unwrap());
    show(&tenure.job("job").tick(Tick::number(1)));
    let work = |_| async { panic!("work panics") as Result<(), String> };
    show(&tenure.once("other", Tick::number(1), work).await.unwrap());
    printed.error("error", &tenure.try_acquire("a}b").await.unwrap_err());
    while let Some(event) = events.try_next() {
        show(&event.unwrap());
    }
    let address = RedisUrl::parse(&server.url()).unwrap();
    show(&(&address, Secret::new(CANARY.to_owned()), login()));
    printed.add("handle", address.to_string());
    let backend = RedisBackend::open(&server.url()).unwrap();
    show(&(&backend, backend.describe(), backend.connection()));
    let client = redis::Client::open(server.url()).unwrap();
    let backend = RedisBackend::with_client(client);
    show(&(&backend, backend.describe(), backend.connection()));
    show(&tenure::blocking::Tenure::from(tenure.clone()));
    drop(term);
    tenure.shutdown().await;
}

fn login() -> Login {
    Login { password: Some(Secret::new(CANARY.to_owned())), ..Login::default() }
}

/// Logins that the server refuses, and doors at which nobody answers.
async fn be_refused(printed: &Printed, server: &RedisServer) {
    let port = server.port();
    let addresses = [
        format!("redis://app:{CANARY}-not@127.0.0.1:{port}"),
        format!("redis://{CANARY}:x@127.0.0.1:{port}"),
        format!("redis://:{CANARY}@127.0.0.1:{port}/77"),
        format!("redis://app:{CANARY}@127.0.0.1:{port}/77"),
        format!("rediss://app:{CANARY}@127.0.0.1:{port}#insecure"),
        format!("rediss://app:{CANARY}@127.0.0.1:{port}"),
        format!("redis://app:{CANARY}@127.0.0.1:1"),
        format!("redis://app:{CANARY}@no-such-host.invalid"),
        format!("unix:///no/such.sock?user=app&password={CANARY}"),
    ];
    let refused = addresses.into_iter().map(|address| async move {
        let builder = Tenure::builder().store(&address).ttl(TTL);
        printed.debug("handle", &builder);
        let tenure = builder.connect().await.unwrap();
        let error = tenure.try_acquire("job").await.unwrap_err();
        printed.error("error", &error);
        printed.debug("handle", &(&tenure, tenure.connection(), tenure.store()));
    });
    futures_util::future::join_all(refused).await;
}

/// Addresses and configurations that are not understood.
fn misread(printed: &Printed) {
    let addresses = [
        format!("redis://app:{CANARY}"),
        format!("redis://app:{CANARY}@"),
        format!("redis://app:{CANARY}@host:99999"),
        format!("redis://app:{CANARY}/x@host"),
        format!("redis://app:{CANARY}%zz@host"),
        format!("redis://host?password={CANARY}"),
        format!("redis://host#{CANARY}"),
        format!("redis://host/{CANARY}"),
        format!("http://app:{CANARY}@host"),
        format!("host:6379,password={CANARY},ssl=true"),
        format!("app:{CANARY}@host"),
        format!("rediss://app:{CANARY}@host?ca=/no/such/file"),
        CANARY.to_owned(),
    ];
    for address in addresses {
        let connected = tenure::blocking::Tenure::connect(&address);
        printed.error("error", &connected.expect_err("it cannot be understood"));
        for text in [format!("store = '{address}'\nno_such = 1"), format!("store = {address}")] {
            let loaded = Loader::new().text(Format::Toml, "tenure.toml", &text).load();
            printed.error("error", &loaded.expect_err("it cannot be understood"));
        }
    }
}

async fn lose_the_store(printed: &Printed, server: &mut RedisServer) {
    let builder = Tenure::builder().store(&server.url()).ttl(TTL).fresh_store(true);
    let tenure = builder.connect().await.unwrap();
    let mut builder = tenure.election("lost").ttl(TTL);
    let mut events = builder.events();
    let election = builder.start().await.unwrap();
    election.wait_for_leadership_within(GENEROUS).await.unwrap();
    server.kill();
    wait_until("the loss", GENEROUS, || election.status().counts.losses == 1);
    printed.error("error", &tenure.try_acquire("other").await.unwrap_err());
    printed.debug("handle", &(&tenure, &election, election.status()));
    while let Some(event) = events.try_next() {
        printed.debug("handle", &event.unwrap());
    }
}
