//! `/events`: in order, resumable, bounded.

use crate::http::{ServerSent, Stream};
use crate::stage::Stage;

fn is_entry(kind: &'static str) -> impl Fn(&ServerSent) -> bool {
    move |event| event.kind == "entry" && event.data["kind"] == kind
}

#[test]
fn a_reader_sees_what_happens_and_goes_on_where_it_stopped() {
    Stage::on_each(|stage| {
        let (ada, leading) = stage.leader("ada");
        let served = stage.serve_election(&ada, &leading);
        let mut stream = Stream::open(served.address, &[]);
        assert_eq!(stream.status, 200);
        let resource = stream.next_with(|event| {
            event.kind == "resource" && event.data["leader"]["instance"] == "ada"
        });
        assert_eq!(resource.id, None, "only the latest counts, so it has no number");

        let bob = stage.client("bob");
        let standing_by = stage.elect(&bob);
        let joined = stream
            .next_with(|event| is_entry("joined")(event) && event.data["text"] == "bob joined");
        let mark = joined.id.unwrap();
        drop(stream);

        testkit::wait_until("bob leads", testkit::GENEROUS, || {
            served.post("/hand-over/nightly-report", "{\"to\":\"bob\"}");
            standing_by.is_leader()
        });
        let mut stream = Stream::open(served.address, &[&format!("Last-Event-ID: {mark}")]);
        let first = stream.next_with(|event| event.kind == "entry");
        assert_eq!(first.data["number"], joined.data["number"].as_u64().unwrap() + 1);
        let lost = stream.next_with(is_entry("lost"));
        assert_eq!(lost.data["reason"], "hand-over");
        let leads = stream
            .next_with(|event| is_entry("leads")(event) && event.data["id"] == bob.id().as_str());
        assert!(leads.data["took_ms"].is_number(), "{leads:?}");
    });
}

#[test]
fn a_reader_from_another_life_is_told_so() {
    let stage = Stage::embedded();
    let (ada, leading) = stage.leader("ada");
    let served = stage.serve_election(&ada, &leading);
    let mut stream = Stream::open(served.address, &["Last-Event-ID: 00000000-17"]);
    assert_eq!(stream.next().kind, "restarted");
    assert_eq!(stream.next_with(|event| event.kind == "entry").data["number"], 1);
}

#[test]
fn only_so_many_may_follow() {
    let stage = Stage::embedded();
    let (ada, leading) = stage.leader("ada");
    let served = stage.serve_election(&ada, &leading);
    let mut streams: Vec<Stream> = (0..64).map(|_| Stream::open(served.address, &[])).collect();
    assert!(streams.iter().all(|stream| stream.status == 200));
    assert_eq!(Stream::open(served.address, &[]).status, 503);
    assert_eq!(served.get("/livez").status, 200, "others are still served");
    streams.pop();
    testkit::wait_until("the place is free again", testkit::GENEROUS, || {
        Stream::open(served.address, &[]).status == 200
    });
}
