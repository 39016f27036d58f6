//! From `async fn work(tenure: &Tenure, …) -> T` to one that runs only on the leader.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Error, FnArg, ItemFn, LitStr, Pat, PatType, Result, ReturnType, Type};

pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let Name(name) = syn::parse2(attribute)?;
    let mut function: ItemFn = syn::parse2(item)?;
    let arguments = Arguments::take(&mut function)?;
    let returned = returned_type(&function)?;

    let ItemFn { attrs, vis, sig, block, .. } = &mut function;
    sig.output = syn::parse_quote! {
        -> ::core::result::Result<::core::option::Option<#returned>, ::tenure::Error>
    };
    let Arguments { source, source_type, term } = arguments;
    let guard = term.map(|PatType { pat, ty, .. }| {
        quote_spanned! { ty.span() => let #pat: #ty = __term; }
    });
    let statements = &block.stmts;
    // Blamed on the argument's type when it is neither a client nor an election.
    let source = quote_spanned! { source_type => ::tenure::leader_only::source(&#source) };
    Ok(quote! {
        #(#attrs)*
        #vis #sig {
            let __source = #source;
            ::tenure::leader_only::run(__source, #name, move |__term: ::tenure::Term| async move {
                // Never runs: it tells `?` and `return` in the body the type they need.
                #[allow(unreachable_code, clippy::diverging_sub_expression)]
                if false {
                    let __returned: #returned = loop {};
                    return __returned;
                }
                #guard
                #(#statements)*
            })
            .await
        }
    })
}

/// The attribute's argument: the name of the election.
struct Name(LitStr);

impl Parse for Name {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        const EXPECTED: &str = "expected the name of an election: #[leader_only(\"name\")]";
        if input.is_empty() {
            return Err(Error::new(Span::call_site(), EXPECTED));
        }
        let name: LitStr = input.parse().map_err(|error| Error::new(error.span(), EXPECTED))?;
        if name.value().is_empty() {
            return Err(Error::new(name.span(), EXPECTED));
        }
        match input.is_empty() {
            true => Ok(Name(name)),
            false => Err(Error::new(input.span(), EXPECTED)),
        }
    }
}

/// The arguments that mean something to us.
struct Arguments {
    /// Knows who leads.
    source: Ident,
    source_type: Span,
    /// What the body calls its term, if it wants it.
    term: Option<PatType>,
}

impl Arguments {
    /// Finds them, and takes the term out of the signature: the caller does not pass it.
    fn take(function: &mut ItemFn) -> Result<Self> {
        if function.sig.asyncness.is_none() {
            let message = "#[leader_only] needs an `async fn`: nothing can stop a plain function \
                           when the term ends; take a guard with `election.term()` instead";
            return Err(Error::new(function.sig.fn_token.span(), message));
        }
        let term = Self::take_term(function)?;
        let mut typed = Vec::new();
        for argument in &mut function.sig.inputs {
            if let FnArg::Typed(argument) = argument {
                let marked = take_mark(argument, "leader")?;
                typed.push((marked, &*argument));
            }
        }
        let mut marked = typed.iter().filter(|(marked, _)| *marked);
        let chosen = marked.next().or(typed.first());
        if let Some((_, second)) = marked.next() {
            return Err(Error::new(second.span(), "only one argument can be #[leader]"));
        }
        let Some((_, PatType { pat, ty, .. })) = chosen else {
            let message = "#[leader_only] needs an argument that knows who leads: \
                           add `tenure: &Tenure` or `election: &Election`";
            return Err(Error::new(function.sig.ident.span(), message));
        };
        let source = identifier(pat)?;
        Ok(Arguments { source, source_type: ty.span(), term })
    }

    fn take_term(function: &mut ItemFn) -> Result<Option<PatType>> {
        let mut found = None;
        let mut kept = syn::punctuated::Punctuated::new();
        for mut argument in std::mem::take(&mut function.sig.inputs) {
            let is_term = match &mut argument {
                FnArg::Typed(typed) => take_mark(typed, "term")?,
                FnArg::Receiver(_) => false,
            };
            match argument {
                FnArg::Typed(typed) if is_term => {
                    if found.is_some() {
                        return Err(Error::new(typed.span(), "only one argument can be #[term]"));
                    }
                    refuse_reference(&typed.ty)?;
                    found = Some(typed);
                }
                other => kept.push(other),
            }
        }
        function.sig.inputs = kept;
        Ok(found)
    }
}

/// Whether the argument is marked with `#[word]`; takes the mark off.
fn take_mark(argument: &mut PatType, word: &str) -> Result<bool> {
    let before = argument.attrs.len();
    if let Some(mark) = argument.attrs.iter().find(|attribute| attribute.path().is_ident(word)) {
        mark.meta.require_path_only()?;
    }
    argument.attrs.retain(|attribute| !attribute.path().is_ident(word));
    Ok(argument.attrs.len() < before)
}

fn identifier(pattern: &Pat) -> Result<Ident> {
    match pattern {
        Pat::Ident(pattern) if pattern.subpat.is_none() => Ok(pattern.ident.clone()),
        _ => Err(Error::new(pattern.span(), "this argument needs a plain name")),
    }
}

fn refuse_reference(given: &Type) -> Result<()> {
    match given {
        Type::Reference(_) => {
            Err(Error::new(given.span(), "the guard is handed over by value: write `Term`"))
        }
        _ => Ok(()),
    }
}

fn returned_type(function: &ItemFn) -> Result<TokenStream> {
    match &function.sig.output {
        ReturnType::Default => Ok(quote! { () }),
        ReturnType::Type(_, given) => match &**given {
            Type::ImplTrait(given) => {
                Err(Error::new(given.span(), "#[leader_only] needs the type by name, not `impl`"))
            }
            given => Ok(quote! { #given }),
        },
    }
}
