//! Frame Streams: how dnstap travels, by files and by sockets. A data frame is a length and octets; a control frame begins with a length of 0.
//!
//! By a file the stream has one direction: START, data, STOP. By a socket the two ends agree first: READY, ACCEPT, START, data, STOP, FINISH.

use std::io::{self, ErrorKind, Read, Write};

/// What a control frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Control {
    Accept = 1,
    Start = 2,
    Stop = 3,
    Ready = 4,
    Finish = 5,
}

/// Octets of the longest control frame.
const CONTROL_MAX: u32 = 512;
/// The field with the type of the content.
const CONTENT_TYPE_FIELD: u32 = 1;

/// Begins a stream of one direction, of a type of content.
pub fn start(stream: &mut impl Write, content_type: &[u8]) -> io::Result<()> {
    write_control(stream, Control::Start, Some(content_type))
}

/// Begins a stream whose reader answers.
pub fn start_with_reader(stream: &mut (impl Read + Write), content_type: &[u8]) -> io::Result<()> {
    write_control(stream, Control::Ready, Some(content_type))?;
    stream.flush()?;
    let accepted = read_control(stream, Control::Accept)?;
    let is_ours = |types: &[u8]| types.windows(content_type.len()).any(|part| part == content_type);
    if !accepted.is_empty() && !is_ours(&accepted) {
        return Err(io::Error::new(ErrorKind::InvalidData, "the reader takes other content"));
    }
    write_control(stream, Control::Start, Some(content_type))
}

/// Writes a data frame.
///
/// # Panics
/// If it has 4 GiB or more.
pub fn write(stream: &mut impl Write, data: &[u8]) -> io::Result<()> {
    let len = u32::try_from(data.len()).expect("a frame has less than 4 GiB");
    stream.write_all(&len.to_be_bytes())?;
    stream.write_all(data)
}

/// Ends a stream of one direction.
pub fn stop(stream: &mut impl Write) -> io::Result<()> {
    write_control(stream, Control::Stop, None)?;
    stream.flush()
}

/// Ends a stream whose reader answers, once that one has everything.
pub fn stop_with_reader(stream: &mut (impl Read + Write)) -> io::Result<()> {
    stop(stream)?;
    read_control(stream, Control::Finish).map(drop)
}

fn write_control(stream: &mut impl Write, control: Control, content_type: Option<&[u8]>) -> io::Result<()> {
    let mut frame = (control as u32).to_be_bytes().to_vec();
    if let Some(content_type) = content_type {
        frame.extend_from_slice(&CONTENT_TYPE_FIELD.to_be_bytes());
        frame.extend_from_slice(&(content_type.len() as u32).to_be_bytes());
        frame.extend_from_slice(content_type);
    }
    stream.write_all(&0u32.to_be_bytes())?;
    stream.write_all(&(frame.len() as u32).to_be_bytes())?;
    stream.write_all(&frame)
}

/// Reads a control frame that must be this one, and returns its fields.
fn read_control(stream: &mut impl Read, wanted: Control) -> io::Result<Vec<u8>> {
    let mut number = || {
        let mut octets = [0; 4];
        stream.read_exact(&mut octets)?;
        Ok::<u32, io::Error>(u32::from_be_bytes(octets))
    };
    let (escape, len, control) = (number()?, number()?, number()?);
    if escape != 0 || !(4..=CONTROL_MAX).contains(&len) || control != wanted as u32 {
        return Err(io::Error::new(ErrorKind::InvalidData, "the reader does not speak Frame Streams"));
    }
    let mut fields = vec![0; len as usize - 4];
    stream.read_exact(&mut fields)?;
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// A reader that has said all of this already, and what it got.
    struct Peer {
        says: Cursor<Vec<u8>>,
        got: Vec<u8>,
    }

    impl Read for Peer {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.says.read(buffer)
        }
    }

    impl Write for Peer {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            self.got.write(data)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn saying(says: &[&[u8]]) -> Peer {
        Peer { says: Cursor::new(says.concat()), got: Vec::new() }
    }

    const ACCEPT_ANY: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1];
    const FINISH: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 5];
    const START: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 13, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, b'x'];
    const STOP: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 3];

    #[test]
    fn a_file_begins_with_start_and_ends_with_stop() {
        let mut file = Vec::new();
        start(&mut file, b"x").unwrap();
        write(&mut file, b"data").unwrap();
        stop(&mut file).unwrap();
        assert_eq!(file, [START, &[0, 0, 0, 4], b"data", STOP].concat());
    }

    #[test]
    fn a_reader_is_asked_first_and_says_when_it_has_all() {
        let mut peer = saying(&[ACCEPT_ANY, FINISH]);
        start_with_reader(&mut peer, b"x").unwrap();
        stop_with_reader(&mut peer).unwrap();
        let mut ready = START.to_vec();
        ready[11] = 4;
        assert_eq!(peer.got, [&ready, START, STOP].concat());
    }

    #[test]
    fn a_reader_that_takes_something_else_or_says_something_else_is_an_error() {
        let other = [0, 0, 0, 0, 0, 0, 0, 13, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, b'y'];
        let huge = [0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 1];
        for says in [&other[..], &huge, b"HTTP/1.1 400 Bad Request\r\n", FINISH, b""] {
            assert!(start_with_reader(&mut saying(&[says]), b"x").is_err());
        }
    }
}
