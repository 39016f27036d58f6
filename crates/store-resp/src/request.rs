//! One command with its arguments, borrowed or owned.

/// Where one argument stands in the bytes of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    start: u32,
    len: u32,
}

impl Span {
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
}

impl<'a> Request<'a> {
    pub(crate) fn new(bytes: &'a [u8], spans: &'a [Span]) -> Self {
        Self { bytes, spans }
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
        &self.bytes[span.start as usize..][..span.len as usize]
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
        Self { bytes: self.bytes, spans: &self.spans[count.min(self.spans.len())..] }
    }

    /// A copy that outlives the buffer.
    pub fn to_owned(self) -> OwnedRequest {
        OwnedRequest::from_args(self.args_from(0))
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
}

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

    /// Forgets all arguments and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// The request as commands take it. It must have at least one argument by then.
    pub fn as_request(&self) -> Request<'_> {
        Request::new(&self.bytes, &self.spans)
    }

    /// Bytes of memory behind it, for limits.
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }
}
