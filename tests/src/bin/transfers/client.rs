//! A client over TCP: questions, and transfers record by record.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use dns_message::{Message, Record, add_to_count, push_record, question_message, serial_of};
use dns_wire::{Class, NameBuf, Rtype};

/// How long a server may be silent.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    id: u16,
}

impl Client {
    pub(crate) fn connect(server: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, id: 0 })
    }

    /// The records that answer a question; an error for any other RCODE than NOERROR.
    pub(crate) fn ask(&mut self, name: &str, rtype: Rtype) -> io::Result<Vec<Record>> {
        self.send(name, rtype, None)?;
        let octets = self.receive()?;
        records(&octets, self.id, name)
    }

    /// The serial of the zone.
    pub(crate) fn serial(&mut self, origin: &str) -> io::Result<u32> {
        let records = self.ask(origin, Rtype::SOA)?;
        let serial = records.first().and_then(|record| serial_of(&record.rdata));
        serial.ok_or_else(|| other(format!("no SOA of {origin}")))
    }

    /// Asks for the zone, or for the differences from a version of it.
    pub(crate) fn transfer(mut self, origin: &str, from: Option<u32>) -> io::Result<Transfer> {
        self.send(origin, if from.is_some() { Rtype::IXFR } else { Rtype::AXFR }, from)?;
        Ok(Transfer { client: self, origin: origin.to_owned(), waiting: Vec::new().into_iter() })
    }

    fn send(&mut self, name: &str, rtype: Rtype, from: Option<u32>) -> io::Result<()> {
        self.id = self.id.wrapping_add(1);
        let name = NameBuf::from_text(name.as_bytes(), None).expect("names of the model are well formed");
        let mut message = question_message(self.id, 0, name.as_name(), rtype);
        if let Some(serial) = from {
            let numbers = [serial, 60, 5, 86400, 60].map(u32::to_be_bytes).concat();
            let rdata = [&[0, 0][..], &numbers].concat();
            push_record(&mut message, name.as_name(), Rtype::SOA, Class::IN, 0, &rdata);
            add_to_count(&mut message, 1, 1);
        }
        let len = message.len() as u16; // One name and one record.
        self.stream.write_all(&[&len.to_be_bytes()[..], &message].concat())
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut len = [0; 2];
        self.stream.read_exact(&mut len)?;
        let mut octets = vec![0; usize::from(u16::from_be_bytes(len))];
        self.stream.read_exact(&mut octets)?;
        Ok(octets)
    }
}

/// The records of a transfer, one after the other. The caller knows which one is the last.
pub(crate) struct Transfer {
    client: Client,
    origin: String,
    waiting: std::vec::IntoIter<Record>,
}

impl Transfer {
    pub(crate) fn next(&mut self) -> io::Result<Record> {
        loop {
            if let Some(record) = self.waiting.next() {
                return Ok(record);
            }
            let octets = self.client.receive()?;
            self.waiting = records(&octets, self.client.id, &self.origin)?.into_iter();
        }
    }

    /// Whether the message that was received last has more records.
    pub(crate) fn has_more_here(&self) -> bool {
        self.waiting.len() > 0
    }
}

/// The answer section of a message.
fn records(octets: &[u8], id: u16, name: &str) -> io::Result<Vec<Record>> {
    let malformed = |_| other(format!("a malformed message for {name}"));
    let mut message = Message::parse(octets).map_err(malformed)?;
    if message.id() != id || message.flags() & 0xf != 0 {
        return Err(other(format!("{name}: ID {}, flags {:04x}", message.id(), message.flags())));
    }
    (0..message.counts()[0]).map(|_| message.next_record().map_err(malformed)).collect()
}

pub(crate) fn other(text: String) -> io::Error {
    io::Error::other(text)
}
