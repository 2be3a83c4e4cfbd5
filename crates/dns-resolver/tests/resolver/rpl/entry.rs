//! Entries: what they match, and what they answer.

use super::message::Message;

/// An entry of a scenario.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) matches: Vec<String>,
    pub(crate) adjust: Vec<String>,
    pub(crate) message: Message,
    pub(crate) line: usize,
}

impl Entry {
    fn wants(&self, word: &str) -> bool {
        self.matches.iter().any(|own| own.eq_ignore_ascii_case(word))
    }

    /// The number behind `word=`.
    pub(crate) fn adjustment(&self, word: &str) -> Option<u64> {
        let values = self.adjust.iter().filter_map(|own| own.strip_prefix(word)?.strip_prefix('='));
        values.map(|value| value.parse().expect("a number")).next()
    }

    /// Whether it answers `query`.
    pub(crate) fn matches_query(&self, query: &Message, is_tcp: bool) -> bool {
        let Some((name, rtype)) = &query.question else { return false };
        let (own_name, own_type) = self.message.question.as_ref().expect("an entry has a question");
        let is_about_name = self.wants("qname") || self.wants("question") || self.wants("all");
        let is_about_type = self.wants("qtype") || self.wants("question") || self.wants("all");
        (!is_about_name || name == own_name)
            && (!is_about_type || rtype == own_type)
            && (!self.wants("subdomain") || name.as_name().ends_with(own_name.as_name()))
            && (!self.wants("TCP") || is_tcp)
            && (!self.wants("UDP") || !is_tcp)
            && (!self.wants("EDNS") || query.has_edns)
            && (!self.wants("NOEDNS") || !query.has_edns)
            && (!self.wants("RD") || query.has("RD"))
            && (!self.wants("NORD") || !query.has("RD"))
    }

    /// The answer to `query`.
    pub(crate) fn answer(&self, query: &Message) -> Message {
        let mut answer = self.message.clone();
        if self.adjust.iter().any(|word| word == "copy_query") {
            answer.question = query.question.clone();
        }
        if self.adjust.iter().any(|word| word == "copy_id") {
            answer.id = query.id;
        }
        let is_lowercase = self.adjust.iter().any(|word| word == "lowercase");
        match (&mut answer.question, &query.question) {
            (Some((name, _)), _) if is_lowercase => name.make_lowercase(),
            // Servers repeat the case of the question.
            (Some((name, _)), Some((asked, _))) if name == asked => *name = asked.clone(),
            _ => {}
        }
        if self.adjust.iter().any(|word| word == "no_question") {
            answer.question = None;
        }
        answer.has_edns |= query.has_edns && !self.adjust.iter().any(|word| word == "no_edns");
        answer
    }

    /// What is wrong with `answer`, if something is.
    pub(crate) fn complaint(&self, answer: &Message) -> Option<String> {
        let all = self.wants("all");
        let own = &self.message;
        let mut complaints = Vec::new();
        let mut check = |what: &str, is_right: bool| {
            if !is_right {
                complaints.push(what.to_owned());
            }
        };
        if all || self.wants("flags") {
            let relevant = ["QR", "AA", "TC", "RD", "RA", "CD", "DO"];
            check("flags", relevant.iter().all(|flag| own.has(flag) == answer.has(flag)));
        }
        if all || self.wants("rcode") {
            check("rcode", own.rcode == answer.rcode);
        }
        if all || self.wants("question") {
            check("question", own.question == answer.question);
        }
        for (index, section) in ["answer", "authority", "additional"].into_iter().enumerate() {
            if all || self.wants(section) {
                check(
                    section,
                    sorted(own, index, self.wants("ttl")) == sorted(answer, index, self.wants("ttl")),
                );
            }
        }
        for word in self.matches.iter().filter_map(|word| word.strip_prefix("ede=")) {
            let expected = if word == "none" { None } else { Some(word.parse().expect("a number")) };
            check("EDE", expected == answer.ede);
        }
        if complaints.is_empty() {
            return None;
        }
        let complaints = complaints.join(", ");
        Some(format!("line {}: {complaints} differ; expected {own:#?}, but it is {answer:#?}", self.line))
    }
}

/// The records of a section, in an order that does not matter, with TTLs if they do.
fn sorted(message: &Message, section: usize, with_ttl: bool) -> Vec<super::message::Record> {
    let mut records = message.sections[section].clone();
    if !with_ttl {
        records.iter_mut().for_each(|record| record.ttl = 0);
    }
    records.sort();
    records
}
