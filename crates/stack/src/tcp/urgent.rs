//! Urgent data (RFC 9293, 3.8.5; RFC 6093), as Linux has it.
//!
//! The pointer marks the end of urgent data. The octet before it is *the* urgent octet, and its position in the stream is
//! the mark. Unless the application wants it in line, the octet is not part of the stream: it is read separately, and reading
//! skips it. Reading stops before the mark, so that an application notices the mark.
//!
//! ```text
//!   read by the application │ octets in front │ urgent octet │ octets behind
//!   ────────────────────────┼─────────────────┼──────────────┼──────────────▶
//!                        copied              mark
//! ```

use std::collections::VecDeque;

use crate::segment::{FastOpenCookie, Segment};
use crate::seq::SeqNum;
use crate::tcp::connection::{Connection, Events, Shared};
use crate::tcp::segment_writer::Outgoing;
use wire::tcp::flag;

/// What few connections have.
#[derive(Debug, Default)]
pub(crate) struct Rare {
    /// Fast Open option of our SYN or SYN-ACK.
    pub(crate) fast_open: Option<FastOpenCookie>,
    /// Behind the urgent octet that we send, until it is acknowledged.
    snd_up: Option<SeqNum>,
    mark: Option<Mark>,
    /// Where records end that are not acknowledged, in order.
    pub(super) record_ends: VecDeque<SeqNum>,
    /// Headers of the SYN that began the connection, if they were wanted.
    pub(crate) saved_syn: Option<Box<[u8]>>,
}

/// The peer's urgent octet.
#[derive(Clone, Copy, Debug)]
struct Mark {
    seq: SeqNum,
    octet: UrgentOctet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UrgentOctet {
    /// Announced.
    Awaited,
    Here(u8),
    /// Read by itself.
    Taken,
}

/// Why there is no urgent octet to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrgentError {
    /// None was announced, it was read already, or it is read in line (`EINVAL`).
    None,
    /// It is announced and not there yet (`EAGAIN`).
    WouldBlock,
    /// There is no such connection (`ENOTCONN`).
    NotConnected,
}

/// What of the receive queue a read sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// Octets that it skips.
    pub(crate) skipped: usize,
    /// Octets behind those up to where it ends.
    pub(crate) len: usize,
}

impl Connection {
    /// The next octet that the application reads.
    fn copied(&self) -> SeqNum {
        let fin = u32::from(self.receive.is_finished());
        self.receive.rcv_nxt - fin - self.receive.queue.len() as u32
    }

    fn mark(&self) -> Option<Mark> {
        self.rare.as_ref()?.mark
    }

    /// What is there for few connections, made if need be.
    pub(crate) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Sixth step of RFC 9293, 3.10.7.4: a mark that is new, and its octet when it comes, in order or not.
    #[cold]
    pub(super) fn note_urgent(&mut self, segment: &Segment<'_>, shared: &mut Shared) {
        if segment.has(flag::URG) {
            // RFC 6093, 3.1: everybody takes the pointer to be behind the urgent octet.
            let seq = segment.seq + u32::from(segment.urgent.saturating_sub(1));
            let is_new = self.mark().is_none_or(|mark| seq.is_after(mark.seq));
            if is_new && seq.is_at_or_after(self.receive.rcv_nxt) {
                self.pass_mark(shared);
                self.rare().mark = Some(Mark { seq, octet: UrgentOctet::Awaited });
                self.raise(Events::URGENT);
            }
        }
        let Some(mark) = self.mark().filter(|mark| mark.octet == UrgentOctet::Awaited) else {
            return;
        };
        let offset = mark.seq.0.wrapping_sub(segment.payload_seq().0) as usize;
        if let Some(octet) = segment.payload.get(offset) {
            self.rare().mark = Some(Mark { octet: UrgentOctet::Here(*octet), ..mark });
            self.raise(Events::URGENT);
        }
    }

    /// Reading on, or a newer mark, passes the present mark. Its octet is not part of the stream.
    #[inline]
    pub(super) fn pass_mark(&mut self, shared: &mut Shared) {
        if self.rare.is_some() && self.stretch_from(0).skipped > 0 {
            self.receive.queue.consume(&mut shared.buffers, 1);
            self.forget_passed_mark();
        }
    }

    /// What a read that begins `offset` octets behind what was read sees.
    #[inline]
    pub(super) fn stretch_from(&self, offset: usize) -> Stretch {
        let len = self.receive.queue.len().saturating_sub(offset);
        match &self.rare {
            None => Stretch { skipped: 0, len },
            Some(rare) => self.stretch_to_mark(rare, offset, len),
        }
    }

    #[cold]
    fn stretch_to_mark(&self, rare: &Rare, offset: usize, len: usize) -> Stretch {
        let start = self.copied() + offset as u32;
        match rare.mark {
            Some(mark) if mark.seq.is_after(start) => {
                Stretch { skipped: 0, len: len.min(mark.seq.since(start) as usize) }
            }
            Some(mark) if mark.seq == start && len > 0 && !self.options.urgent_inline => {
                Stretch { skipped: 1, len: len - 1 }
            }
            _ => Stretch { skipped: 0, len },
        }
    }

    /// The application has read what was in front: a mark that lies behind it now is none any more.
    #[inline]
    pub(super) fn forget_passed_mark(&mut self) {
        if self.rare.is_some() {
            self.forget_mark_before(self.copied());
        }
    }

    #[cold]
    fn forget_mark_before(&mut self, copied: SeqNum) {
        let rare = self.rare();
        rare.mark = rare.mark.filter(|mark| mark.seq.is_at_or_after(copied));
    }

    /// Whether the next octet to be read is the urgent one, or was (`SIOCATMARK`).
    pub(crate) fn is_at_mark(&self) -> bool {
        self.mark().is_some_and(|mark| mark.seq == self.copied())
    }

    /// Whether the urgent octet is there to be read by itself, or in line (`EPOLLPRI`).
    pub(crate) fn has_urgent(&self) -> bool {
        self.mark().is_some_and(|mark| matches!(mark.octet, UrgentOctet::Here(_)))
    }

    /// Octets that a read would find up to where it stops (`SIOCINQ`).
    pub(crate) fn unread_up_to_mark(&self) -> usize {
        match self.mark() {
            Some(mark) if !self.options.urgent_inline && mark.seq.is_before(self.receive.rcv_nxt) => {
                mark.seq.since(self.copied()) as usize
            }
            _ => self.receive.queue.len(),
        }
    }

    /// The urgent octet by itself (`MSG_OOB`), which stays where it is if `peek` says so; `None` at the end of the stream.
    pub(crate) fn recv_urgent(&mut self, peek: bool) -> Result<Option<u8>, UrgentError> {
        let mark = self.mark().filter(|_| !self.options.urgent_inline).ok_or(UrgentError::None)?;
        match mark.octet {
            UrgentOctet::Taken => Err(UrgentError::None),
            UrgentOctet::Here(octet) => {
                if !peek {
                    self.rare().mark = Some(Mark { octet: UrgentOctet::Taken, ..mark });
                }
                Ok(Some(octet))
            }
            UrgentOctet::Awaited if self.readiness().read_closed => Ok(None),
            UrgentOctet::Awaited => Err(UrgentError::WouldBlock),
        }
    }

    /// Removes the urgent octet from `received`, the unread data, for receivers that cannot be told about a mark.
    pub(super) fn remove_urgent_octet(&self, received: &mut Vec<u8>) {
        let Some(mark) = self.mark().filter(|_| !self.options.urgent_inline) else {
            return;
        };
        let offset = mark.seq.0.wrapping_sub(self.copied().0) as usize;
        if offset < received.len() {
            received.remove(offset);
        }
    }

    /// The last octet in the send queue is urgent (`MSG_OOB`).
    pub(super) fn mark_last_as_urgent(&mut self) {
        let end = self.data_una() + self.send.queue.len() as u32;
        self.rare().snd_up = Some(end);
    }

    /// Whether urgent data is not acknowledged yet: it is not held back.
    #[inline]
    pub(super) fn is_sending_urgent(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.snd_up.is_some())
    }

    /// The peer acknowledged everything in front of `una`.
    #[inline]
    pub(super) fn forget_acknowledged_urgent(&mut self, una: SeqNum) {
        if let Some(rare) = &mut self.rare {
            rare.snd_up = rare.snd_up.filter(|end| end.is_after(una));
        }
    }

    /// The pointer on a segment in front of the end of urgent data; as far as sixteen bits reach, or as far as was sent.
    #[cold]
    pub(super) fn point_to_urgent(&self, outgoing: &mut Outgoing) {
        let end = self.rare.as_ref().and_then(|rare| rare.snd_up);
        let Some(end) = end.filter(|end| end.is_after(outgoing.seq)) else {
            return;
        };
        let farthest = outgoing.seq + u32::from(u16::MAX);
        if end.is_after(farthest) && farthest.is_at_or_before(self.send.snd_nxt) {
            return; // A later segment can tell.
        }
        outgoing.flags |= flag::URG;
        outgoing.urgent = end.min(farthest).since(outgoing.seq) as u16;
    }
}
