//! From words to a filter, by recursive descent.

use std::iter::Peekable;
use std::net::IpAddr;

use super::lexer::{Word, words};
use super::{DEPTH_MAX, FilterError, Net, Node, Protocol, Side, TESTS_MAX, TEXT_MAX, Test};

/// Reads a whole filter.
pub(super) fn parse(text: &str) -> Result<Node, FilterError> {
    if text.len() > TEXT_MAX {
        let problem = format!("longer than {TEXT_MAX} octets");
        return Err(FilterError { problem, text: String::new(), at: 0 });
    }
    let mut parser = Parser { text, words: words(text).peekable(), depth: 0, tests: 0 };
    if parser.words.peek().is_none() {
        return Ok(Node::All(Vec::new()));
    }
    let root = parser.filter()?;
    match parser.words.next() {
        None => Ok(root),
        Some(word) => Err(parser.error(word, "expected `and`, `or` or the end")),
    }
}

struct Parser<'a, W: Iterator<Item = Word<'a>>> {
    text: &'a str,
    words: Peekable<W>,
    depth: usize,
    tests: usize,
}

impl<'a, W: Iterator<Item = Word<'a>>> Parser<'a, W> {
    fn filter(&mut self) -> Result<Node, FilterError> {
        let mut any = vec![self.terms()?];
        while self.take(&["or", "||"]) {
            any.push(self.terms()?);
        }
        Ok(if any.len() == 1 { any.swap_remove(0) } else { Node::Any(any) })
    }

    fn terms(&mut self) -> Result<Node, FilterError> {
        let mut all = vec![self.term()?];
        while self.take(&["and", "&&"]) || !self.is_at(&["or", "||", ")"]) {
            all.push(self.term()?);
        }
        Ok(if all.len() == 1 { all.swap_remove(0) } else { Node::All(all) })
    }

    fn term(&mut self) -> Result<Node, FilterError> {
        let word = self.next("a test, `not` or `(`")?;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error(word, &format!("nested deeper than {DEPTH_MAX}")));
        }
        let node = match word.text {
            "not" | "!" => Node::Not(Box::new(self.term()?)),
            "(" => {
                let node = self.filter()?;
                let end = self.next("`)`")?;
                if end.text != ")" {
                    return Err(self.error(end, "expected `)`"));
                }
                node
            }
            _ => Node::Test(self.test(word)?),
        };
        self.depth -= 1;
        Ok(node)
    }

    fn test(&mut self, word: Word<'a>) -> Result<Test, FilterError> {
        self.tests += 1;
        if self.tests > TESTS_MAX {
            return Err(self.error(word, &format!("more than {TESTS_MAX} tests")));
        }
        let protocol = match word.text {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            "icmp" => Protocol::Icmp,
            "ip" => Protocol::Ipv4,
            "ip6" => Protocol::Ipv6,
            "src" => return self.ends(Side::Source),
            "dst" => return self.ends(Side::Destination),
            _ => return self.ends_by(word, Side::Either),
        };
        Ok(Test::Protocol(protocol))
    }

    fn ends(&mut self, side: Side) -> Result<Test, FilterError> {
        let word = self.next("`host`, `net`, `port` or `portrange`")?;
        self.ends_by(word, side)
    }

    fn ends_by(&mut self, word: Word<'a>, side: Side) -> Result<Test, FilterError> {
        match word.text {
            "host" => self.value("an address", host).map(|net| Test::Net(side, net)),
            "net" => self.value("ADDRESS/LENGTH", net).map(|net| Test::Net(side, net)),
            "port" => self.value("a number from 0 to 65535", port).map(|at| Test::Port(side, at..=at)),
            "portrange" => self.value("FIRST-LAST", port_range).map(|range| Test::Port(side, range)),
            _ if side == Side::Either => Err(self.error(word, "expected a test, such as `tcp` or `port 80`")),
            _ => Err(self.error(word, "expected `host`, `net`, `port` or `portrange`")),
        }
    }

    fn value<T>(&mut self, expected: &str, read: fn(&str) -> Option<T>) -> Result<T, FilterError> {
        let word = self.next(expected)?;
        read(word.text).ok_or_else(|| self.error(word, &format!("expected {expected}")))
    }

    fn next(&mut self, expected: &str) -> Result<Word<'a>, FilterError> {
        let end = Word { text: "", at: self.text.len() };
        self.words.next().ok_or_else(|| self.error(end, &format!("ends where {expected} is to follow")))
    }

    /// Whether the text ends here, or goes on with one of `words`.
    fn is_at(&mut self, words: &[&str]) -> bool {
        self.words.peek().is_none_or(|word| words.contains(&word.text))
    }

    fn take(&mut self, words: &[&str]) -> bool {
        self.words.next_if(|word| words.contains(&word.text)).is_some()
    }

    fn error(&self, word: Word<'_>, problem: &str) -> FilterError {
        let found = if word.text.is_empty() { String::new() } else { format!(", not `{}`", word.text) };
        FilterError { problem: format!("{problem}{found}"), text: self.text.to_owned(), at: word.at }
    }
}

fn host(text: &str) -> Option<Net> {
    let address: IpAddr = text.parse().ok()?;
    Some(Net { address, length: bits(address) })
}

fn net(text: &str) -> Option<Net> {
    let (address, length) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let length = length.parse().ok().filter(|length| *length <= bits(address))?;
    Some(Net { address, length })
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn port(text: &str) -> Option<u16> {
    text.parse().ok()
}

fn port_range(text: &str) -> Option<std::ops::RangeInclusive<u16>> {
    let (first, last) = text.split_once('-')?;
    let (first, last) = (port(first)?, port(last)?);
    (first <= last).then_some(first..=last)
}
