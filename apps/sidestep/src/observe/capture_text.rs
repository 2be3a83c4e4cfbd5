//! A packet as a line for people, in the manner of tcpdump.

use std::net::SocketAddr;

use observe::report::flag_letters;
use observe::{Direction, Header};
use wire::ethernet::Ethernet;
use wire::ip::Ip;
use wire::tcp::Tcp;
use wire::udp::Udp;
use wire::{DropReason, protocol};

use super::time_of_day::time_of_day;

/// Time (UTC), interface, direction, and the headers.
pub(super) fn line(interface: &str, header: &Header, frame: &[u8]) -> String {
    let direction = match header.direction {
        Direction::Inbound => "In ",
        Direction::Outbound => "Out",
    };
    let what =
        describe(frame).unwrap_or_else(|reason| format!("{} octets: {}", header.original_len, reason.name()));
    format!("{} {interface} {direction} {what}", time_of_day(header.time_ns))
}

/// Headers beyond the snaplen are not printed.
fn describe(frame: &[u8]) -> Result<String, DropReason> {
    let ethernet = Ethernet::parse(frame)?;
    let packet = Ip::parse_quoted(ethernet.payload())?;
    let ends = |source: u16, destination: u16| {
        let source = SocketAddr::new(packet.source(), source);
        format!("{source} > {}", SocketAddr::new(packet.destination(), destination))
    };
    match packet.protocol() {
        protocol::TCP if !packet.is_fragment() => {
            let tcp = Tcp::parse(packet.payload())?;
            let (seq, ack) = (tcp.sequence_number(), tcp.acknowledgement_number());
            Ok(format!(
                "{}: tcp [{}] seq {seq} ack {ack} win {} length {}",
                ends(tcp.source_port(), tcp.destination_port()),
                flag_letters(tcp.flags()),
                tcp.window(),
                tcp.payload().len(),
            ))
        }
        protocol::UDP if !packet.is_fragment() => {
            let udp = Udp::parse(packet.payload())?;
            let ends = ends(udp.source_port(), udp.destination_port());
            Ok(format!("{ends}: udp length {}", udp.payload().len()))
        }
        number => Ok(format!("{} > {}: protocol {number}", packet.source(), packet.destination())),
    }
}

#[cfg(test)]
mod tests {
    use wire::{Endpoints, Envelope, write_udp};

    use super::*;

    fn header(original_len: u32) -> Header {
        Header { time_ns: 0, original_len, captured_len: 0, source: 0, direction: Direction::Outbound }
    }

    #[test]
    fn a_datagram_is_told_by_its_ends_and_length() {
        let ends = Endpoints::new("192.0.2.1:53".parse().unwrap(), "192.0.2.2:99".parse().unwrap()).unwrap();
        let mut frame = [0; 100];
        let len = write_udp(&mut frame, &Envelope::untagged(ends), b"hello").unwrap();
        let text = line("veth0", &header(len as u32), &frame[..len]);
        assert_eq!(text, "00:00:00.000000 veth0 Out 192.0.2.1:53 > 192.0.2.2:99: udp length 5");
    }

    #[test]
    fn what_cannot_be_read_is_told_by_its_length() {
        assert!(line("veth0", &header(60), &[0; 10]).contains(" 60 octets: "));
    }
}
