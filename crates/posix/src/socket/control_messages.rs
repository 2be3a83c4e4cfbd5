//! Control messages as C lays them out (cmsg(3)).

/// Octets of a `cmsghdr`: a size and two ints.
const HEADER_LEN: usize = 16;

/// Writes control messages into a program's buffer, as `put_cmsg` of Linux does: a message that does not fit is cut, and MSG_CTRUNC is set.
pub(crate) struct ControlWriter<'c> {
    room: &'c mut [u8],
    at: usize,
    cut: bool,
}

impl<'c> ControlWriter<'c> {
    pub(crate) fn new(room: Option<&'c mut [u8]>) -> ControlWriter<'c> {
        ControlWriter { room: room.unwrap_or_default(), at: 0, cut: false }
    }

    pub(crate) fn put(&mut self, level: i32, kind: i32, data: &[u8]) {
        let rest = &mut self.room[self.at..];
        let wanted = HEADER_LEN + data.len();
        let len = wanted.min(rest.len());
        self.cut |= len < wanted;
        if len < HEADER_LEN {
            return;
        }
        rest[..8].copy_from_slice(&len.to_ne_bytes());
        rest[8..12].copy_from_slice(&level.to_ne_bytes());
        rest[12..16].copy_from_slice(&kind.to_ne_bytes());
        rest[HEADER_LEN..len].copy_from_slice(&data[..len - HEADER_LEN]);
        self.at += wanted.next_multiple_of(8).min(rest.len());
    }

    pub(crate) fn put_int(&mut self, level: i32, kind: i32, value: i32) {
        self.put(level, kind, &value.to_ne_bytes());
    }

    /// Octets written, and `MSG_CTRUNC` if something was cut.
    pub(crate) fn finish(self) -> (usize, i32) {
        (self.at, if self.cut { libc::MSG_CTRUNC } else { 0 })
    }
}

/// One control message: its level, its type and its data; `None` for an invalid one, which is the last.
pub(crate) type Message<'c> = Option<(i32, i32, &'c [u8])>;

/// The messages that a program sends along.
pub(crate) fn messages(mut control: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let len = usize::from_ne_bytes(*control.first_chunk().filter(|_| control.len() >= HEADER_LEN)?);
        let int = |at: usize| control[at..].first_chunk().map_or(0, |word| i32::from_ne_bytes(*word));
        let message = control.get(HEADER_LEN..len).map(|data| (int(8), int(12), data));
        let next = len.checked_next_multiple_of(8).filter(|_| message.is_some());
        control = next.and_then(|next| control.get(next..)).unwrap_or_default();
        Some(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let mut room = [0; 64];
        let mut out = ControlWriter::new(Some(&mut room));
        out.put(libc::SOL_UDP, libc::UDP_SEGMENT, &1200u16.to_ne_bytes());
        out.put(libc::SOL_IP, libc::IP_TOS, &[2]);
        let (len, flags) = out.finish();
        assert_eq!((len, flags), (48, 0));
        let read: Vec<_> = messages(&room[..len]).collect();
        let segment = (libc::SOL_UDP, libc::UDP_SEGMENT, &1200u16.to_ne_bytes()[..]);
        assert_eq!(read, [Some(segment), Some((libc::SOL_IP, libc::IP_TOS, &[2][..]))]);
    }

    #[test]
    fn what_finds_no_room_is_cut_and_told() {
        for (room, written) in [(0, 0), (15, 0), (16, 16), (20, 20), (28, 28), (40, 32)] {
            let mut octets = vec![0; room];
            let mut out = ControlWriter::new(Some(&mut octets));
            out.put(libc::SOL_IP, libc::IP_PKTINFO, &[7; 12]);
            let flags = if room < 28 { libc::MSG_CTRUNC } else { 0 };
            assert_eq!(out.finish(), (written, flags), "{room}");
            if written >= 16 {
                assert_eq!(octets[0], room.min(28) as u8);
            }
        }
    }

    #[test]
    fn broken_messages_end_the_list() {
        for len in [0usize, 3, 15, 33, usize::MAX] {
            let mut octets = [0; 32];
            octets[..8].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(messages(&octets).collect::<Vec<_>>(), [None], "{len}");
        }
        assert_eq!(messages(&[1; 15]).count(), 0);
    }
}
