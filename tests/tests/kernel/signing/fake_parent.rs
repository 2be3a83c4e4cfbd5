//! A server of a parent that says what a test wants of it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use dns_message::{Message, add_to_count, push_record, question_message};
use dns_wire::{Class, Rtype};

/// What it says of DS records.
#[derive(Clone, Debug)]
pub(super) enum Behaviour {
    /// It has these, with this TTL.
    Ds(u32, Vec<Vec<u8>>),
    /// It ends connections.
    Deaf,
    /// It says the same as another one would, and is no authority.
    Lame,
}

pub(super) struct FakeParent {
    pub(super) address: SocketAddr,
    behaviour: Arc<Mutex<Behaviour>>,
}

impl FakeParent {
    pub(super) fn start() -> FakeParent {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let behaviour = Arc::new(Mutex::new(Behaviour::Ds(60, Vec::new())));
        let own = Arc::clone(&behaviour);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let behaviour = own.lock().unwrap().clone();
                // A client that goes away gets no answer.
                let _ = stream.map(|stream| answer(stream, &behaviour));
            }
        });
        FakeParent { address, behaviour }
    }

    pub(super) fn set(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }
}

fn answer(mut stream: TcpStream, behaviour: &Behaviour) -> Option<()> {
    let mut len = [0; 2];
    stream.read_exact(&mut len).ok()?;
    let mut octets = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut octets).ok()?;
    let message = Message::parse(&octets).ok()?;
    let question = message.question()?;
    let (flags, ttl, records) = match behaviour {
        Behaviour::Deaf => return None,
        Behaviour::Lame => (0x8000, 0, &Vec::new()),
        Behaviour::Ds(ttl, records) => (0x8400, *ttl, records),
    };
    let origin = question.name.as_name();
    let mut answer = question_message(message.id(), flags, origin, question.qtype);
    if question.qtype == Rtype::DS {
        records.iter().for_each(|rdata| push_record(&mut answer, origin, Rtype::DS, Class::IN, ttl, rdata));
        add_to_count(&mut answer, 0, records.len() as i32);
    }
    let framed = [&(answer.len() as u16).to_be_bytes()[..], &answer].concat();
    stream.write_all(&framed).ok()
}
