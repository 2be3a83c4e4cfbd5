//! A primary that has no differences, and says so in a way of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use dns_message::{Message, add_to_count, push_record, question_message};
use dns_wire::{Class, Rtype};

/// What it says to a request for differences.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ForDifferences {
    /// NOERROR without records.
    Empty,
    /// Its SOA alone.
    SoaAlone,
    /// It ends the connection.
    End,
}

pub(crate) struct FakePrimary {
    pub(crate) address: SocketAddr,
    serial: Arc<AtomicU32>,
}

impl FakePrimary {
    /// One that has serial 1 of any zone.
    pub(crate) fn start(behaviour: ForDifferences) -> FakePrimary {
        let (by_tcp, by_udp) = sockets();
        let address = by_tcp.local_addr().unwrap();
        let serial = Arc::new(AtomicU32::new(1));
        let own = Arc::clone(&serial);
        thread::spawn(move || {
            let mut request = [0; 512];
            while let Ok((len, from)) = by_udp.recv_from(&mut request) {
                let answer = answer(&request[..len], own.load(Ordering::SeqCst), behaviour);
                let _ = answer.map(|answer| by_udp.send_to(&answer, from)); // Who has gone asks again.
            }
        });
        let own = Arc::clone(&serial);
        thread::spawn(move || {
            for stream in by_tcp.incoming().flatten() {
                let serial = Arc::clone(&own);
                thread::spawn(move || while serve(&stream, &serial, behaviour).is_some() {});
            }
        });
        FakePrimary { address, serial }
    }

    pub(crate) fn set_serial(&self, serial: u32) {
        self.serial.store(serial, Ordering::SeqCst);
    }
}

/// Both at the same port.
fn sockets() -> (TcpListener, UdpSocket) {
    loop {
        let by_tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        if let Ok(by_udp) = UdpSocket::bind(by_tcp.local_addr().unwrap()) {
            return (by_tcp, by_udp);
        }
    }
}

/// Answers one request of a connection; `None` if that is to end.
fn serve(mut stream: &TcpStream, serial: &AtomicU32, behaviour: ForDifferences) -> Option<()> {
    let mut len = [0; 2];
    stream.read_exact(&mut len).ok()?;
    let mut request = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut request).ok()?;
    let answer = answer(&request, serial.load(Ordering::SeqCst), behaviour)?;
    let framed = [&(answer.len() as u16).to_be_bytes()[..], &answer].concat();
    stream.write_all(&framed).ok()
}

fn answer(request: &[u8], serial: u32, behaviour: ForDifferences) -> Option<Vec<u8>> {
    let message = Message::parse(request).ok()?;
    let question = message.question()?;
    let timers = [serial, 3600, 3600, 7200, 1].map(u32::to_be_bytes).concat();
    let (soa, address) = ((Rtype::SOA, [&[0, 0][..], &timers].concat()), (Rtype::A, vec![192, 0, 2, 1]));
    let records = match (question.qtype, behaviour) {
        (Rtype::IXFR, ForDifferences::End) => return None,
        (Rtype::IXFR, ForDifferences::Empty) => Vec::new(),
        (Rtype::AXFR, _) => vec![soa.clone(), address, soa],
        _ => vec![soa],
    };
    let origin = question.name.as_name();
    let mut answer = question_message(message.id(), 0x8400, origin, question.qtype);
    for (rtype, rdata) in &records {
        push_record(&mut answer, origin, *rtype, Class::IN, 60, rdata);
    }
    add_to_count(&mut answer, 0, records.len() as i32);
    Some(answer)
}
