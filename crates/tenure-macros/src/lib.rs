//! The attribute `#[leader_only]`, used through the crate `tenure`, which documents it.

mod leader_only;

use proc_macro::TokenStream;

/// Makes an `async fn` run only on the leader; see `tenure::leader_only`.
#[proc_macro_attribute]
pub fn leader_only(attribute: TokenStream, item: TokenStream) -> TokenStream {
    leader_only::expand(attribute.into(), item.into())
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}
