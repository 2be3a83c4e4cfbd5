//! What a server could reach at most: one that has no stack, no sockets and no program, and answers every segment by itself alone.
//!
//! It takes the packets to its ports from AF_XDP, as `sidestep run` does, turns each around in place and sends it back: a SYN is
//! accepted, a request is answered with a constant, a FIN is acknowledged. It keeps nothing of any connection and repairs no loss.
//! What a client measures with it is what the client and the wire cost; no server over the same device gets more out of that client.

use std::collections::BTreeSet;
use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use device::{Burst, Device};
use device_xdp::{SteeringOptions, SteeringProgram, XdpDevice, XdpOptions};
use frame::Frame;
use lab::programs::{Program, Ready};
use lab::{SERVER_INTERFACE, SERVER_V4};
use steering::{Claim, LocalAddress, Transport, VlanTags};
use wire::checksum::Sum;
use wire::ipv4::{self, Ipv4};
use wire::tcp::{self, Tcp, flag};
use wire::{ethernet, protocol};

/// What this program is called with to be that server.
pub(crate) const SERVE: &str = "--stateless";

const HTTP_PORT: u16 = 80;
const REDIS_PORT: u16 = 6379;
/// What it says when it serves.
const READY: &str = "serving";

/// nginx' answer to the same request, which says at its end whether the connection ends.
macro_rules! answer_of_nginx {
    ($connection:literal) => {
        concat!(
            "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Sun, 01 Nov 2026 00:00:00 GMT\r\n",
            "Content-Type: text/plain\r\nContent-Length: 14\r\nConnection: ",
            $connection,
            "\r\n\r\nHello, world!\n"
        )
        .as_bytes()
    };
}
const ANSWER: &[u8] = answer_of_nginx!("keep-alive");
const LAST_ANSWER: &[u8] = answer_of_nginx!("close");
/// By this a request says that it is the last one.
const LAST: &[u8] = b"Connection: close";
/// redis' answer to GET of a key that is not there.
const NO_VALUE: &[u8] = b"$-1\r\n";

/// The server as a program; it looks for packets for `spin` before it sleeps.
pub(crate) fn program(spin: Duration) -> Program {
    let own = std::env::current_exe().expect("the system knows what it runs");
    let program = Program::new("stateless", &own.display().to_string());
    program.argument(SERVE).argument(&spin.as_micros().to_string()).ready(Ready::Line(READY))
}

/// Serves until it is killed; `spin` in microseconds.
pub(crate) fn main(spin: Option<&String>) -> ExitCode {
    let spin = spin.and_then(|word| word.parse().ok()).map_or(Duration::ZERO, Duration::from_micros);
    let Err(error) = serve(spin) else { return ExitCode::SUCCESS };
    eprintln!("stateless: {error}");
    ExitCode::FAILURE
}

fn serve(spin: Duration) -> Result<(), Box<dyn std::error::Error>> {
    let mut program = SteeringProgram::attach(SERVER_INTERFACE, SteeringOptions::default())?;
    let mut device = XdpDevice::open(&mut program, &[0], &XdpOptions::default())?;
    program.set_claims(&claims())?;
    println!("{READY}");
    let mut burst = Burst::new();
    let mut last_packet = Instant::now();
    loop {
        if device.rx_burst(&mut burst, clock::Instant::ZERO) > 0 {
            let mut answers = Burst::new();
            for mut frame in burst.drain(..) {
                match answer(&mut frame) {
                    Some(()) => answers.push(frame),
                    None => device.release(frame),
                }
            }
            device.tx_burst(&mut answers, clock::Instant::ZERO);
            answers.drain(..).for_each(|frame| device.release(frame));
            last_packet = Instant::now();
        } else if last_packet.elapsed() >= spin && device.prepare_wait() {
            sleep(&device)?;
        }
    }
}

fn claims() -> BTreeSet<Claim> {
    let address = SERVER_V4.parse().expect("an address");
    let local = LocalAddress { address, vlan: VlanTags::default() };
    [HTTP_PORT, REDIS_PORT].map(|port| Claim { transport: Transport::Tcp, local, port }).into()
}

fn sleep(device: &XdpDevice) -> io::Result<()> {
    let mut fds = Vec::new();
    device.wait_fds(&mut fds);
    let mut polled: Vec<_> =
        fds.iter().map(|fd| rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN)).collect();
    rustix::event::poll(&mut polled, None)?;
    Ok(())
}

/// Turns a packet into the answer to it; `None` if there is none to give.
fn answer(frame: &mut Frame) -> Option<()> {
    let reply = Reply::to(frame.bytes().get(ethernet::HEADER_LEN..)?)?;
    let packet_len = ipv4::HEADER_LEN + tcp::HEADER_LEN + reply.payload.len();
    frame.set_len(ethernet::HEADER_LEN + packet_len);
    let (addresses, packet) = frame.bytes_mut().split_at_mut(ethernet::HEADER_LEN);
    addresses[..12].rotate_left(6);
    ipv4::write(packet, &reply.ip)?;
    let segment = &mut packet[ipv4::HEADER_LEN..];
    segment[tcp::HEADER_LEN..].copy_from_slice(reply.payload);
    let pseudo_header =
        Sum::pseudo_v4(reply.ip.source, reply.ip.destination, protocol::TCP, segment.len() as u16);
    tcp::write(segment, &reply.tcp, Some(pseudo_header))?;
    Some(())
}

/// What is sent back.
struct Reply {
    ip: ipv4::Fields,
    tcp: tcp::Fields<'static>,
    payload: &'static [u8],
}

impl Reply {
    fn to(packet: &[u8]) -> Option<Reply> {
        let ip = Ipv4::parse(packet).ok()?;
        let tcp = Tcp::parse(ip.payload()).ok()?;
        let flags = tcp.flags();
        let (flags, payload) = match tcp.payload() {
            _ if flags & flag::RST != 0 => return None,
            [] if flags & flag::SYN != 0 => (flag::SYN | flag::ACK, &[][..]),
            // Acknowledges the end, and is the end of the other direction if that had none.
            [] if flags & flag::FIN != 0 => (flag::FIN | flag::ACK, &[][..]),
            [] => return None,
            request => reply_to(request),
        };
        let counted = u32::from(tcp.flags() & (flag::SYN | flag::FIN) != 0) + tcp.payload().len() as u32;
        Some(Reply {
            ip: ipv4::Fields {
                source: ip.destination(),
                destination: ip.source(),
                protocol: protocol::TCP,
                ttl: 64,
                traffic_class: 0,
                payload_len: tcp::HEADER_LEN + payload.len(),
            },
            tcp: tcp::Fields {
                source_port: tcp.destination_port(),
                destination_port: tcp.source_port(),
                sequence_number: tcp.acknowledgement_number(),
                acknowledgement_number: tcp.sequence_number().wrapping_add(counted),
                flags,
                window: u16::MAX,
                urgent_pointer: 0,
                options: &[],
            },
            payload,
        })
    }
}

/// The flags and the payload that a request is answered with.
fn reply_to(request: &[u8]) -> (u8, &'static [u8]) {
    match request {
        [b'*', ..] => (flag::PSH | flag::ACK, NO_VALUE),
        _ if request.windows(LAST.len()).any(|words| words == LAST) => {
            (flag::PSH | flag::FIN | flag::ACK, LAST_ANSWER)
        }
        _ => (flag::PSH | flag::ACK, ANSWER),
    }
}
