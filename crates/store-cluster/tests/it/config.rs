//! nodes.conf: what was written is read back, what is damaged is refused.

use store_cluster::{Cluster, Now, Settings};

use crate::town::{Town, address, id};

const NOW: Now = Now { monotonic_ms: 5, unix_ms: 1_700_000_000_000 };

#[test]
fn what_was_written_reads_back() {
    let town = Town::new(1);
    let text = town.nodes[3].config_text();
    let settings = Settings { address: address(3), ..Settings::default() };
    let read = Cluster::restore(NOW, &text, settings, 1).unwrap();
    assert_eq!(read.me().id, id(3));
    assert_eq!(read.current_epoch(), town.nodes[3].current_epoch());
    assert_eq!(read.nodes().len(), 4);
    let master = read.me().master.unwrap();
    assert_eq!(read.nodes()[master].id, id(0));
    assert_eq!(read.owner(5_499), Some(master));
    let lines = |text: &str| {
        let lines = text.lines().map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            // Times and links are those of the moment.
            [&words[..4.min(words.len())], words.get(8..).unwrap_or(&[])].concat().join(" ")
        });
        lines.collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(lines(&read.config_text()), lines(&text));
}

#[test]
fn a_damaged_file_is_refused_with_its_line() {
    let text = Town::new(1).nodes[0].config_text();
    let refusal = |text: &str| Cluster::restore(NOW, text, Settings::default(), 1).unwrap_err();
    let cut = text.split_at(text.rfind("vars").unwrap()).0;
    assert!(refusal(cut).to_string().contains("epochs is missing"), "{}", refusal(cut));
    assert!(refusal("").to_string().contains("remove it"), "the next step is said");
    let twice = text.replace("5500-10999", "5499-10999");
    assert!(refusal(&twice).what.contains("two owners"), "{}", refusal(&twice));
    for (old, new) in [
        ("myself,", ""),
        ("master", "mister"),
        ("5500-10999", "5500-20000"),
        ("5500-10999", "10999-5500"),
        ("currentEpoch", "currentEpic"),
        ("@17000", ""),
        ("slave", "slave,master"),
    ] {
        assert!(text.contains(old), "{old}");
        refusal(&text.replacen(old, new, 9));
    }
    // Any prefix is refused or read, and never a panic.
    for len in 0..text.len() {
        _ = Cluster::restore(NOW, &text[..len], Settings::default(), 1);
    }
}
