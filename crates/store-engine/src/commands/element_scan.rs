//! The form in which HSCAN, SSCAN and ZSCAN reply.

use store_resp::ReplyWriter;
use store_types::Element;

use super::collection::reply_element;

/// Where the visited elements go. The cursor stands before them but is known last.
pub(super) struct Found<'r> {
    reply: &'r mut ReplyWriter,
    start: usize,
    len: usize,
}

impl<'r> Found<'r> {
    /// Begins the reply.
    pub(super) fn begin(reply: &'r mut ReplyWriter) -> Self {
        Self { start: reply.len(), reply, len: 0 }
    }

    /// One more element.
    pub(super) fn push(&mut self, element: Element<'_>) {
        reply_element(self.reply, element);
        self.len += 1;
    }

    /// Ends the reply with the cursor of the next call.
    pub(super) fn end(self, next: u64) {
        let mut header = ReplyWriter::new(self.reply.protocol());
        header.array(2);
        header.bulk(next.to_string().as_bytes());
        header.array(self.len);
        self.reply.insert_at(self.start, header.as_bytes());
    }
}
