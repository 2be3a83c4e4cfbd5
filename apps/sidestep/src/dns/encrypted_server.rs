//! DNS over TLS, HTTPS and QUIC: one thread answers what the front brings.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use clock::Duration;
use dns_front::{CertificateInUse, Front, Options, Question, Questions, Reply, Unfinished, Via};
use dns_log::Transport;
use dns_message::pad;
use dns_server::{Admission, Answer, Asker, DnsResponder};

use super::encrypted;
use super::transfers::unix_time;

/// The longest answer.
const MESSAGE_MAX: usize = 65_535;
/// Answers fill whole blocks of so many octets (RFC 8467, 4.1).
const BLOCK: usize = 468;

/// The front, open or serving.
pub(crate) struct EncryptedServer {
    front: Front,
    questions: Option<Questions>,
    thread: Option<JoinHandle<()>>,
}

impl EncryptedServer {
    /// Reads the certificate and binds the addresses, while the process may still do so.
    pub(crate) fn open(options: &Options) -> anyhow::Result<EncryptedServer> {
        let (front, questions) = Front::open(options, || {})?;
        warn_of_end(&front);
        Ok(EncryptedServer { front, questions: Some(questions), thread: None })
    }

    /// Starts to serve.
    pub(crate) fn start(&mut self, responder: DnsResponder) -> io::Result<()> {
        let Some(mut questions) = self.questions.take() else { return Ok(()) };
        let idle_timeout = self.front.admission().limits().idle_timeout;
        let mut answering = Answering { responder, idle_timeout, buffer: vec![0; MESSAGE_MAX] };
        let answer = move || {
            while let Some(question) = questions.wait_for_next() {
                answering.answer(question);
            }
        };
        self.thread = Some(std::thread::Builder::new().name("dns-encrypted".to_owned()).spawn(answer)?);
        self.front.start().map_err(io::Error::other)
    }

    /// Where it listens.
    pub(crate) fn addresses(&self) -> &[(Via, SocketAddr)] {
        self.front.addresses()
    }

    /// What new connections get.
    pub(crate) fn certificate(&self) -> CertificateInUse {
        self.front.certificate()
    }

    /// Who is connected.
    pub(crate) fn admission(&self) -> Arc<Admission> {
        Arc::clone(self.front.admission())
    }

    /// Reads the certificate again.
    pub(crate) fn reload_certificate(&self) {
        if let Err(error) = self.front.reload_certificate() {
            log::error!("the certificate stays as it was: {:#}", anyhow::Error::from(error));
        }
        warn_of_end(&self.front);
    }

    /// Closes everything, and ends.
    pub(crate) fn stop(self) {
        drop(self.front); // With it goes the last who could ask.
        if let Some(thread) = self.thread {
            let _ = thread.join(); // A panic there has been reported.
        }
    }
}

fn warn_of_end(front: &Front) {
    let ends_at = front.certificate().ends_at();
    let ending = ends_at.and_then(|at| encrypted::ending(at, unix_time()));
    ending.into_iter().for_each(|what| log::warn!("encrypted: {what}"));
}

/// What answers, with room for a message.
struct Answering {
    responder: DnsResponder,
    idle_timeout: Duration,
    buffer: Vec<u8>,
}

impl Answering {
    fn answer(&mut self, question: Question) {
        let (transport, idle_timeout) = (transport(question.via), self.idle_timeout);
        let (remote, takes_transfers) = (question.client, question.takes_transfers);
        let asker = Asker { remote, transport, idle_timeout, takes_transfers };
        let (octets, reply) = question.into_parts();
        self.buffer[..octets.len()].copy_from_slice(&octets); // The front takes no longer questions.
        let answer = match self.responder.respond_one(&mut self.buffer, octets.len(), &asker) {
            Answer::Reply(len) => self.buffer[..len].to_vec(),
            Answer::Transfer(transfer) => {
                let messages = self.responder.messages(transfer, remote.ip());
                return reply.answer_many(Box::new(messages.map(|message| message.map_err(|_| Unfinished))));
            }
            Answer::Update(update) => {
                return self.responder.submit(update, Box::new(move |answer| send(reply, answer)));
            }
            Answer::None => Vec::new(),
        };
        send(reply, answer);
    }
}

/// The name that the log has for a way.
pub(crate) fn transport(via: Via) -> Transport {
    match via {
        Via::Tls => Transport::Tls,
        Via::Https => Transport::Https,
        Via::Quic => Transport::Quic,
    }
}

fn send(reply: Reply, mut answer: Vec<u8>) {
    pad(&mut answer, BLOCK);
    reply.answer(answer);
}
