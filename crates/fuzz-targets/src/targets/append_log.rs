//! The append-only file and its manifest: whatever lies in the store's folder when it starts.

use store_persist::aof::{AofError, CommandReader, Manifest};

use super::Target;

pub(super) const TARGET: Target = Target {
    name: "append-log",
    about: "append-only files, and manifests of them",
    run,
    words: &[
        b"*1\r\n$5\r\nMULTI\r\n",
        b"*1\r\n$4\r\nEXEC\r\n",
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n",
        b"#TS:1700000000\r\n",
        b"#",
        b"\0\0\0\0\0\0\0\0",
        b"file appendonly.aof.1.base.rdb seq 1 type b\n",
        b"file appendonly.aof.1.incr.aof seq 1 type i\n",
        b"seq 18446744073709551615",
        b"type h",
        b"../",
        b"\"",
        b"\r\n",
    ],
};

fn run(bytes: &[u8]) {
    if let Err(error) = read(bytes) {
        // What is said to be whole reads to its end; that is what a repair cuts down to.
        let valid_len = error.valid_len().expect("bytes in memory can be read") as usize;
        assert!(valid_len <= bytes.len(), "whole up to {valid_len} of {}", bytes.len());
        let again = read(&bytes[..valid_len]);
        assert!(again.is_ok(), "cut at {valid_len}, it is still not whole: {again:?}");
    }
    if let Ok(manifest) = Manifest::parse(bytes) {
        let text = manifest.to_text();
        let again = Manifest::parse(text.as_bytes());
        let again = again.map(|manifest| manifest.to_text());
        assert!(manifest.is_empty() || again.as_ref() == Ok(&text), "{text:?} became {again:?}");
    }
}

/// How many requests there are.
fn read(bytes: &[u8]) -> Result<u64, AofError> {
    let mut reader = CommandReader::new(bytes, 0);
    while reader.advance()? {
        assert!(reader.request().len() > 0, "a request without a name");
    }
    Ok(reader.requests())
}
