//! Children that wait for connections of their parent process.

use std::net::SocketAddr;

use clock::{Duration, Instant};

use crate::protocol::Key;
use crate::registry::ClientId;

/// How long the other may take. It may be computing, and hears of the question when it next calls its library.
const PATIENCE: Duration = Duration::from_secs(3);
/// Questions of one client that are open at a time.
const OPEN_MAX: usize = 64;

/// Questions that are not answered yet.
#[derive(Default)]
pub(super) struct Questions {
    open: Vec<Question>,
    last_token: u64,
    early: Vec<Early>,
}

/// A child asked for a connection before its parent has come back to this broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Early {
    /// The child, and its request's number.
    pub(super) asker: (ClientId, u64),
    /// Those of its ancestors.
    pub(super) keys: Vec<Key>,
    /// Of the connection: ours, and the peer's.
    pub(super) ends: (SocketAddr, SocketAddr),
    until: Instant,
}

/// A child asked for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) token: u64,
    /// The child, and its request's number.
    pub(super) asker: ClientId,
    pub(super) id: u64,
    /// The client that is asked now.
    pub(super) holder: ClientId,
    /// The clients to ask next.
    others: Vec<ClientId>,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    until: Instant,
}

impl Questions {
    /// Opens a question to those who may have the connection, one after the other. `None`: there are none, or the asker has too
    /// many questions.
    pub(super) fn ask(
        &mut self,
        (asker, id): (ClientId, u64),
        mut holders: Vec<ClientId>,
        (local, remote): (SocketAddr, SocketAddr),
        now: Instant,
    ) -> Option<Question> {
        if self.open.iter().filter(|question| question.asker == asker).count() >= OPEN_MAX {
            return None;
        }
        if holders.is_empty() {
            return None;
        }
        let holder = holders.remove(0);
        self.last_token += 1;
        let (token, until) = (self.last_token, now + PATIENCE);
        let question = Question { token, asker, id, holder, others: holders, local, remote, until };
        self.open.push(question.clone());
        Some(question)
    }

    /// Keeps a question until those may be there who can be asked; false if the asker has too many.
    pub(super) fn ask_early(
        &mut self,
        asker: (ClientId, u64),
        keys: Vec<Key>,
        ends: (SocketAddr, SocketAddr),
        now: Instant,
    ) -> bool {
        let is_one_too_many = self.early.iter().filter(|early| early.asker.0 == asker.0).count() >= OPEN_MAX;
        if !is_one_too_many {
            self.early.push(Early { asker, keys, ends, until: now + PATIENCE });
        }
        !is_one_too_many
    }

    /// Whether there are early questions.
    pub(super) fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// The early questions that are due: their time is over, or `is_there` says that somebody can be asked by now.
    pub(super) fn take_early(&mut self, now: Instant, is_there: impl Fn(&Early) -> bool) -> Vec<Early> {
        self.early.extract_if(.., |early| early.until <= now || is_there(early)).collect()
    }

    /// The same question to the next client.
    pub(super) fn ask_next(&mut self, question: Question, now: Instant) -> Option<Question> {
        let Question { asker, id, others, local, remote, .. } = question;
        self.ask((asker, id), others, (local, remote), now)
    }

    /// Closes the question that `holder` answers.
    pub(super) fn close(&mut self, token: u64, holder: ClientId) -> Option<Question> {
        let answers = |question: &Question| (question.token, question.holder) == (token, holder);
        let place = self.open.iter().position(answers)?;
        Some(self.open.swap_remove(place))
    }

    /// Removes questions that waited too long, and those to `gone`.
    pub(super) fn expire(&mut self, now: Instant, gone: Option<ClientId>) -> Vec<Question> {
        self.open.retain(|question| Some(question.asker) != gone);
        self.early.retain(|early| Some(early.asker.0) != gone);
        let is_over = |question: &mut Question| question.until <= now || Some(question.holder) == gone;
        self.open.extract_if(.., is_over).collect()
    }

    /// When the first question times out.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.open
            .iter()
            .map(|question| question.until)
            .chain(self.early.iter().map(|early| early.until))
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: ClientId = ClientId(1);
    const PARENT: ClientId = ClientId(2);
    const OTHER: ClientId = ClientId(3);

    fn ask(questions: &mut Questions, now: Instant) -> Option<Question> {
        let ends = ("192.0.2.1:80".parse().unwrap(), "192.0.2.2:4000".parse().unwrap());
        questions.ask((CHILD, 5), vec![PARENT, OTHER], ends, now)
    }

    #[test]
    fn only_who_was_asked_answers_and_only_once() {
        let mut questions = Questions::default();
        let question = ask(&mut questions, Instant::ZERO).unwrap();
        assert_eq!(questions.close(question.token, OTHER), None);
        assert_eq!(questions.close(question.token, PARENT), Some(question.clone()));
        assert_eq!(questions.close(question.token, PARENT), None);
    }

    #[test]
    fn a_question_ends_with_time_and_with_who_was_asked_and_with_who_asks() {
        let mut questions = Questions::default();
        let first = ask(&mut questions, Instant::ZERO).unwrap();
        assert_eq!(questions.expire(Instant::ZERO, Some(OTHER)), []);
        assert_eq!(questions.expire(Instant::ZERO, Some(PARENT)), [first]);
        let second = ask(&mut questions, Instant::ZERO).unwrap();
        assert_eq!(questions.expire(questions.poll_timeout().unwrap(), None), [second]);
        ask(&mut questions, Instant::ZERO).unwrap();
        assert_eq!(questions.expire(Instant::ZERO, Some(CHILD)), []);
        assert_eq!(questions.poll_timeout(), None);
    }

    #[test]
    fn the_next_is_asked_until_there_is_none() {
        let mut questions = Questions::default();
        let first = ask(&mut questions, Instant::ZERO).unwrap();
        let first = questions.close(first.token, PARENT).unwrap();
        let second = questions.ask_next(first, Instant::ZERO).unwrap();
        assert_eq!((second.asker, second.id, second.holder), (CHILD, 5, OTHER));
        let second = questions.close(second.token, OTHER).unwrap();
        assert_eq!(questions.ask_next(second, Instant::ZERO), None);
    }

    #[test]
    fn a_client_has_so_many_open_questions_and_no_more() {
        let mut questions = Questions::default();
        assert!((0..OPEN_MAX).all(|_| ask(&mut questions, Instant::ZERO).is_some()));
        assert_eq!(ask(&mut questions, Instant::ZERO), None);
    }
}
