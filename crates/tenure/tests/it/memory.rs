//! The store in memory keeps the contract of backends.

use std::sync::Arc;

use tenure::MemoryBackend;
use tenure::backend::{Backend, conformance};

#[tokio::test]
async fn the_store_in_memory_passes_the_conformance_suite() {
    let store = MemoryBackend::new();
    let make = move || Arc::new(store.clone()) as Arc<dyn Backend>;
    conformance::check(make).await.assert_passed();
}
