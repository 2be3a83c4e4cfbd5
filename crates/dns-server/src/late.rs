//! Answers that are not known when the message comes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use engine::ReturnPath;

/// Takes the answer to a message, from any thread.
pub type LateReply = Box<dyn FnOnce(Vec<u8>) + Send>;

/// Answers to datagrams of earlier batches, until the engine sends them.
#[derive(Debug, Default)]
pub(crate) struct LateAnswers {
    /// Their number, which the engine looks at in each turn.
    count: AtomicUsize,
    answers: Mutex<VecDeque<(ReturnPath, Vec<u8>)>>,
}

impl LateAnswers {
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    pub(crate) fn push(&self, path: ReturnPath, answer: Vec<u8>) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.push_back((path, answer));
        self.count.store(answers.len(), Ordering::Release);
    }

    pub(crate) fn pop(&self) -> Option<(ReturnPath, Vec<u8>)> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let first = answers.pop_front();
        self.count.store(answers.len(), Ordering::Release);
        first
    }
}
