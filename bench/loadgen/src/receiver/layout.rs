//! Hot path: where the parts of a MESSAGE are, if it looks like the last one.

/// Layout of the last MESSAGE of a subscription; the next one probably has the same.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layout {
    /// Octets of the frame; 0 if none was parsed yet.
    pub frame_len: usize,
    /// Octet at which the body begins.
    pub body_at: usize,
    /// Place of the header `subscription`.
    pub line_at: usize,
}

impl Layout {
    /// Head and body of the next frame, if it has this layout: it begins with `magic`, and its head contains `line` and
    /// ends where the body starts.
    #[inline]
    pub fn split<'a>(&self, bytes: &'a [u8], magic: u64, line: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
        if self.frame_len == 0 {
            return None;
        }
        let frame = bytes.get(..self.frame_len)?;
        let (head, body) = frame.split_at(self.body_at);
        let begins = u64::from_le_bytes(head.get(..8)?.try_into().ok()?) == magic;
        let ends = head.ends_with(b"\n\n") && body.last() == Some(&0);
        // An empty line must not call memcmp: masked loads from an empty box's address cost 30 ns (AVX-512).
        let named = line.is_empty() || head.get(self.line_at..self.line_at + line.len()) == Some(line);
        (begins && ends && named).then_some((head, body))
    }
}
