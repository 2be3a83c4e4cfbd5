//! The clients of one resolver: questions at a steady pace, and what became of each.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::time::{Instant as Deadline, sleep_until, timeout_at};

use crate::clock;
use crate::peers::Peer;
use crate::script::{PACE, Phase, Question};
use crate::zones;

/// How long a client waits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How much older than its TTL an answer may be without being called expired: for the way, and for the granularity of caches.
const SLACK: Duration = Duration::from_millis(1500);
const MESSAGE_MAX: usize = 65_535;

/// What a client got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The right address.
    Right,
    /// One that has expired.
    Expired,
    /// Another one, or none.
    Wrong,
    /// A response code.
    Failed,
    /// Nothing in time.
    Nothing,
}

/// A question, and what became of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) phase: Phase,
    /// Since the start.
    pub(crate) at: Duration,
    pub(crate) question: Question,
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
}

/// Asks one resolver for the whole script.
pub(crate) async fn ask(peer: Peer, start: Instant, outage: u64) -> io::Result<Vec<Asked>> {
    let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await?);
    socket.connect(peer.address()).await?;
    let count = Arc::new(AtomicUsize::new(0));
    let sending = tokio::spawn(send(Arc::clone(&socket), Arc::clone(&count), start, outage));
    let end = start + Phase::Recovered.start(outage) + Phase::Recovered.length(outage) + PATIENCE;
    let mut answers = HashMap::new();
    let mut buffer = vec![0; MESSAGE_MAX];
    while let Ok(received) = timeout_at(Deadline::from_std(end), socket.recv(&mut buffer)).await {
        let (len, at) = (received?, Instant::now());
        if let [high, low, ..] = buffer[..len] {
            let id = u16::from_be_bytes([high, low]);
            answers.insert(latest(id, count.load(Ordering::Relaxed)), (at, buffer[..len].to_vec()));
        }
    }
    let sent = sending.await.map_err(io::Error::other)??;
    let judge = |(number, (phase, at, question)): (usize, &(Phase, Instant, Question))| {
        let answer = answers.get(&number).filter(|(came, _)| *came - *at <= PATIENCE);
        let (outcome, took) = answer.map_or((Outcome::Nothing, PATIENCE), |(came, octets)| {
            (judge(*question, octets, *came), *came - *at)
        });
        Asked { phase: *phase, at: *at - start, question: *question, outcome, took }
    };
    Ok(sent.iter().enumerate().map(judge).collect())
}

/// The number of the latest of `count` questions whose ID is `id`: there are more questions than IDs.
fn latest(id: u16, count: usize) -> usize {
    let last = count.saturating_sub(1);
    last.saturating_sub(usize::from((last as u16).wrapping_sub(id)))
}

/// Sends all questions, and counts them; the number of each is its ID.
async fn send(
    socket: Arc<UdpSocket>,
    count: Arc<AtomicUsize>,
    start: Instant,
    outage: u64,
) -> io::Result<Vec<(Phase, Instant, Question)>> {
    let mut sent = Vec::new();
    for phase in Phase::ALL {
        let end = start + phase.start(outage) + phase.length(outage);
        loop {
            let number = sent.len() as u64;
            let due = start + PACE * number as u32;
            if due >= end {
                break;
            }
            sleep_until(Deadline::from_std(due)).await;
            let question = phase.question(number);
            let query = lab::message::query(number as u16, &question.name(), lab::message::A);
            let query = lab::message::with_recursion(lab::message::with_edns(query, 1232, 0));
            sent.push((phase, Instant::now(), question));
            count.store(sent.len(), Ordering::Relaxed);
            socket.send(&query).await?;
        }
    }
    Ok(sent)
}

fn judge(question: Question, octets: &[u8], came: Instant) -> Outcome {
    let Some(answer) = lab::message::Answer::new(octets) else { return Outcome::Wrong };
    if answer.rcode() != 0 {
        return Outcome::Failed;
    }
    match question {
        Question::New { zone, .. } if answer.contains(&zones::address_in(zone).octets()) => Outcome::Right,
        Question::New { .. } => Outcome::Wrong,
        Question::Clock { .. } => match clock::age(octets, came) {
            None => Outcome::Wrong,
            Some(age) if age > clock::TTL + SLACK => Outcome::Expired,
            Some(_) => Outcome::Right,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_belongs_to_the_latest_question_of_its_id() {
        assert_eq!((latest(0, 1), latest(7, 10), latest(9, 10)), (0, 7, 9));
        assert_eq!((latest(65_535, 65_540), latest(3, 65_540)), (65_535, 65_539));
    }
}
