//! One command with its arguments, borrowed or owned. Large arguments stand in buffers of their
//! own, which whoever wants to keep them shares.

use std::sync::Arc;

use crate::number::format_integer;

/// Where one argument is in the bytes of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    start: u32,
    len: u32,
}

/// The length of a span that names a large argument; its start is the argument's number.
const LARGE: u32 = u32::MAX;

impl Span {
    /// The large argument with this number.
    pub(crate) fn large(number: usize) -> Self {
        Self { start: u32::try_from(number).expect("arguments are counted in 32 bits"), len: LARGE }
    }

    /// `forgotten` large arguments with lower numbers are gone.
    pub(crate) fn renumber(&mut self, forgotten: usize) {
        if self.len == LARGE {
            self.start -= forgotten as u32;
        }
    }

    /// The `len` bytes from `start` on. Requests are limited to less than 4 GiB by
    /// [`Limits`](crate::Limits), so that a span is eight bytes.
    pub(crate) fn new(start: usize, len: usize) -> Self {
        let narrow = |value| u32::try_from(value).expect("requests are shorter than 4 GiB");
        Self { start: narrow(start), len: narrow(len) }
    }
}

/// A command and its arguments, without a copy: argument 0 is the command's name.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
    large: &'a [Arc<Vec<u8>>],
}

impl<'a> Request<'a> {
    pub(crate) fn new(bytes: &'a [u8], spans: &'a [Span], large: &'a [Arc<Vec<u8>>]) -> Self {
        Self { bytes, spans, large }
    }

    /// How many arguments there are, the name included.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a request has at least its name")]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Argument `index`. Panics when there is none: the arity gate comes before.
    #[inline]
    pub fn arg(&self, index: usize) -> &'a [u8] {
        let span = self.spans[index];
        if span.len == LARGE {
            return self.large_arg(span);
        }
        &self.bytes[span.start as usize..][..span.len as usize]
    }

    #[cold]
    fn large_arg(&self, span: Span) -> &'a [u8] {
        &self.large[span.start as usize]
    }

    /// Whether any argument is in a buffer of its own.
    pub fn has_shared(&self) -> bool {
        self.spans.iter().any(|span| span.len == LARGE)
    }

    /// Argument `index` if it is in a buffer of its own, to be kept without a copy.
    #[inline]
    pub fn shared(&self, index: usize) -> Option<&'a Arc<Vec<u8>>> {
        let span = self.spans[index];
        (span.len == LARGE).then(|| &self.large[span.start as usize])
    }

    /// Argument `index`, or `None` behind the last.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        (index < self.spans.len()).then(|| self.arg(index))
    }

    /// The arguments from `index` on.
    pub fn args_from(self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        let start = index.min(self.spans.len());
        (start..self.spans.len()).map(move |at| self.arg(at))
    }

    /// The same request without its first `count` arguments.
    pub fn skip(self, count: usize) -> Self {
        Self { spans: &self.spans[count.min(self.spans.len())..], ..self }
    }

    /// A copy that outlives the buffer; large arguments are shared.
    pub fn to_owned(self) -> OwnedRequest {
        let mut request = OwnedRequest::default();
        self.copy_to(&mut request);
        request
    }

    /// A copy with other arguments in some places. Large arguments are shared.
    pub fn to_owned_with(self, others: &[(usize, &[u8])]) -> OwnedRequest {
        let mut request = OwnedRequest::default();
        for index in 0..self.len() {
            let other = others.iter().find(|(at, _)| *at == index);
            match (other, self.shared(index)) {
                (Some((_, arg)), _) => request.push(arg),
                (None, Some(text)) => request.push_shared(text),
                (None, None) => request.push(self.arg(index)),
            }
        }
        request
    }

    /// The same, in the memory of a request that is not needed any more.
    pub fn copy_to(self, request: &mut OwnedRequest) {
        request.clear();
        request.spans.reserve_exact(self.len());
        let is_small = |span: &&Span| span.len != LARGE;
        let len: usize = self.spans.iter().filter(is_small).map(|span| span.len as usize).sum();
        request.bytes.reserve_exact(len);
        for index in 0..self.len() {
            match self.shared(index) {
                Some(text) => request.push_shared(text),
                None => request.push(self.arg(index)),
            }
        }
    }
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = self.args_from(0).map(|arg| String::from_utf8_lossy(arg).into_owned());
        f.debug_list().entries(words).finish()
    }
}

/// A request that owns its bytes: queued by MULTI, waiting in a blocked session, or built by
/// a script.
#[derive(Clone, Debug, Default)]
pub struct OwnedRequest {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    large: Vec<Arc<Vec<u8>>>,
}

impl PartialEq for OwnedRequest {
    fn eq(&self, other: &Self) -> bool {
        self.as_request().args_from(0).eq(other.as_request().args_from(0))
    }
}

impl Eq for OwnedRequest {}

impl OwnedRequest {
    /// Copies `args` into one buffer.
    pub fn from_args<'a>(args: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut request = Self::default();
        for arg in args {
            request.push(arg);
        }
        request
    }

    /// Appends one argument.
    pub fn push(&mut self, arg: &[u8]) {
        self.spans.push(Span::new(self.bytes.len(), arg.len()));
        self.bytes.extend_from_slice(arg);
    }

    fn push_shared(&mut self, text: &Arc<Vec<u8>>) {
        self.spans.push(Span::large(self.large.len()));
        self.large.push(Arc::clone(text));
    }

    /// Forgets all arguments and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.large.clear();
    }

    /// The request as commands take it. It must have at least one argument by then.
    pub fn as_request(&self) -> Request<'_> {
        Request::new(&self.bytes, &self.spans, &self.large)
    }

    /// Whether somebody else holds one of its large arguments, too.
    pub fn is_shared(&self) -> bool {
        self.large.iter().any(|text| Arc::strong_count(text) > 1)
    }

    /// The buffers of its large arguments that nobody else holds.
    pub fn into_large(self) -> Vec<Vec<u8>> {
        self.large.into_iter().filter_map(|text| Arc::try_unwrap(text).ok()).collect()
    }

    /// Bytes of memory behind it, for limits.
    pub fn memory(&self) -> usize {
        let large: usize = self.large.iter().map(|text| text.capacity()).sum();
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>() + large
    }
}

/// Appends a request as clients send it: an array of bulk strings.
pub fn write_request<'a>(bytes: &mut Vec<u8>, args: impl ExactSizeIterator<Item = &'a [u8]>) {
    write_head(bytes, b'*', args.len());
    for arg in args {
        write_head(bytes, b'$', arg.len());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
}

fn write_head(bytes: &mut Vec<u8>, mark: u8, number: usize) {
    let mut digits = [0; 20];
    bytes.push(mark);
    bytes.extend_from_slice(format_integer(number as i64, &mut digits));
    bytes.extend_from_slice(b"\r\n");
}
