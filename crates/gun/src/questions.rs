//! What is asked: names and types, read from lines as dnsperf and kxdpgun read them, and the order in which they are asked.

use std::sync::Arc;

use dns_wire::header::{HEADER_LEN, flag};
use dns_wire::{Class, NameBuf, NameError, Rtype};
use ipnet::IpNet;

use crate::subnets::Subnets;

/// Some editors begin a file in UTF-8 with it.
const BYTE_ORDER_MARK: char = '\u{feff}';
/// Stands for twelve letters and digits that are others in every question.
const RANDOM: &str = "{random}";
/// What they are chosen from.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const RANDOM_LEN: usize = 12;
/// Questions that a pattern with a range stands for at most.
const RANGE_MAX: u64 = 10_000_000;

/// Octets of an OPT record without options; the last two are the length of these (RFC 6891, 6.1.2).
const OPT_LEN: usize = 11;
/// The COOKIE option's code (RFC 7873, 4).
const COOKIE: u16 = 10;

/// Questions, ready to be sent. Copies share the names.
#[derive(Clone, Debug)]
pub struct Questions {
    names: Arc<Names>,
    order: Picker,
    /// What follows the question: the OPT record with the options that are the same in all, or nothing.
    tail: Vec<u8>,
    /// Networks of which each question names one in that record.
    subnets: Subnets,
    flags: u16,
    /// What chance depends on beside the number of a question.
    salt: u64,
}

/// All names with their types.
#[derive(Debug, Default)]
struct Names {
    /// The octets of all: name, type, class.
    octets: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u32,
    len: u16,
    /// Where its random letters are, if it has some: behind the first octet of a name, so never at 0.
    random_at: u16,
}

/// The order in which questions are asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// One after the other, and again from the first one on.
    InTurn,
    /// By chance, all as often as each other.
    Random,
    /// By chance, the one in place k with a weight of 1 / k to this power, as names are asked for in the world.
    Zipf(f64),
}

#[derive(Clone, Debug)]
enum Picker {
    InTurn,
    Random,
    /// Upper bounds of chances, in order, as parts of 2^64.
    Zipf(Arc<[u64]>),
}

/// What is said beside the question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// Octets of answers that we say to take; `None`: no EDNS.
    pub payload: Option<u16>,
    /// DO: signatures are wanted.
    pub dnssec: bool,
    /// RD: recursion is wanted.
    pub recursion: bool,
    /// Networks that clients are in (RFC 7871): each question names a part of one, by chance.
    pub subnets: Vec<IpNet>,
    /// The cookie of all questions (RFC 7873): a client's, and the server's behind it if that is known. Empty: none.
    pub cookie: Vec<u8>,
}

/// Why there are no questions.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuestionsError {
    /// A line's name is none.
    #[error("line {line}: {text:?}: {error}")]
    Name {
        /// Which line, from 1 on.
        line: usize,
        /// The name.
        text: String,
        /// Why.
        error: NameError,
    },
    /// A line's type is not known.
    #[error("line {line}: {text:?} is no type of records")]
    Type {
        /// Which line.
        line: usize,
        /// The word.
        text: String,
    },
    /// A line has more than a name and a type.
    #[error("line {line}: more than a name and a type")]
    Words {
        /// Which line.
        line: usize,
    },
    /// A range is none, or stands for too many.
    #[error("line {line}: {{{text}}} is no range such as {{0-9999}}, of ten million at most")]
    Range {
        /// Which line.
        line: usize,
        /// What stands between the braces.
        text: String,
    },
    /// There is no question.
    #[error("there is no name in it")]
    Empty,
    /// There are too many.
    #[error("more than 4 GiB of questions")]
    TooMany,
}

impl Questions {
    /// Reads lines of a name and a type; lines without a type ask for `default_type`. Empty lines, and those that begin with `#` or `;`, say
    /// nothing. In a name `{random}` stands for twelve letters and digits that are others each time, and `{0-9999}` for each of these numbers.
    pub fn read(text: &str, default_type: Rtype) -> Result<Questions, QuestionsError> {
        let mut names = Names::default();
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        for (line, words) in text.lines().enumerate().map(|(number, line)| (number + 1, line.trim())) {
            if !words.is_empty() && !words.starts_with(['#', ';']) {
                names.read_line(line, words, default_type)?;
            }
        }
        if names.entries.is_empty() {
            return Err(QuestionsError::Empty);
        }
        let (order, tail, subnets) = (Picker::InTurn, Vec::new(), Subnets::default());
        Ok(Questions { names: Arc::new(names), order, tail, subnets, flags: 0, salt: 0 })
    }

    /// The same in this order. `seed` makes chance repeatable, that of random letters and subnets too.
    pub fn in_order(mut self, order: Order, seed: u64) -> Questions {
        self.salt = mix(seed);
        self.order = match order {
            Order::InTurn => Picker::InTurn,
            Order::Random => Picker::Random,
            Order::Zipf(power) => Picker::Zipf(zipf(self.len(), power).into()),
        };
        self
    }

    /// The same with this said beside them.
    pub fn in_manner(mut self, manner: &Manner) -> Questions {
        let has_options = manner.dnssec || !manner.subnets.is_empty() || !manner.cookie.is_empty();
        let payload = manner.payload.or(has_options.then_some(1232));
        self.subnets = Subnets::new(&manner.subnets);
        self.flags = if manner.recursion { flag::RD } else { 0 };
        let options = cookie_option(&manner.cookie);
        self.tail = payload.map_or_else(Vec::new, |payload| {
            let [high, low] = payload.to_be_bytes();
            let dnssec = if manner.dnssec { 0x80 } else { 0 };
            let record: [u8; OPT_LEN] = [0, 0, 41, high, low, 0, 0, dnssec, 0, 0, options.len() as u8];
            [&record[..], &options].concat()
        });
        self
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.names.entries.len()
    }

    /// Whether there are none, which never is so.
    pub fn is_empty(&self) -> bool {
        self.names.entries.is_empty()
    }

    /// Which one is asked after `number` others.
    pub fn pick(&self, number: u64) -> u32 {
        let count = self.len() as u64;
        // Other chance than that of the letters, which is of the same number.
        let chance = || mix(number ^ self.salt.rotate_left(32));
        let chosen = match &self.order {
            Picker::InTurn => number % count,
            Picker::Random => ((u128::from(chance()) * u128::from(count)) >> 64) as u64,
            Picker::Zipf(bounds) => {
                let chance = chance();
                (bounds.partition_point(|bound| *bound < chance) as u64).min(count - 1)
            }
        };
        chosen as u32
    }

    /// Writes a whole message into the front of `room`; returns its octets, or `None` if it does not fit. `number`, how many
    /// were sent before it, chooses the random letters.
    pub fn write(&self, question: u32, number: u64, id: u16, room: &mut [u8]) -> Option<usize> {
        let entry = self.names.entries[question as usize];
        let (end, behind) =
            (HEADER_LEN + usize::from(entry.len), HEADER_LEN + usize::from(entry.len) + self.tail.len());
        let options = self.subnets.write(mix(!number ^ self.salt), room.get_mut(behind..)?)?;
        let message = room.get_mut(..behind + options)?;
        let (id, flags) = (id.to_be_bytes(), self.flags.to_be_bytes());
        let additional = u8::from(!self.tail.is_empty());
        message[..HEADER_LEN]
            .copy_from_slice(&[id[0], id[1], flags[0], flags[1], 0, 1, 0, 0, 0, 0, 0, additional]);
        message[HEADER_LEN..end].copy_from_slice(self.octets(entry));
        message[end..behind].copy_from_slice(&self.tail);
        if options > 0 {
            let len = behind - end - OPT_LEN + options; // A cookie and a subnet have 68 octets at most.
            message[end + OPT_LEN - 2..end + OPT_LEN].copy_from_slice(&(len as u16).to_be_bytes());
        }
        if entry.random_at != 0 {
            let at = HEADER_LEN + usize::from(entry.random_at);
            message[at..at + RANDOM_LEN].copy_from_slice(&self.letters(number));
        }
        Some(message.len())
    }

    /// Whether an answer repeats this question, in whatever case. Errors need have none.
    pub fn is_repeated(&self, question: u32, number: u64, answer: &[u8]) -> bool {
        if is_bare_error(answer) {
            return true;
        }
        let entry = self.names.entries[question as usize];
        let own = self.octets(entry);
        let Some(echoed) = answer.get(HEADER_LEN..HEADER_LEN + own.len()) else { return false };
        if entry.random_at == 0 {
            return echoed.eq_ignore_ascii_case(own);
        }
        let random = usize::from(entry.random_at);
        let behind = random + RANDOM_LEN;
        echoed[..random].eq_ignore_ascii_case(&own[..random])
            && echoed[random..behind].eq_ignore_ascii_case(&self.letters(number))
            && echoed[behind..].eq_ignore_ascii_case(&own[behind..])
    }

    fn octets(&self, entry: Entry) -> &[u8] {
        &self.names.octets[entry.at as usize..entry.at as usize + usize::from(entry.len)]
    }

    /// The random letters of a question that was sent after `number` others.
    fn letters(&self, number: u64) -> [u8; RANDOM_LEN] {
        let mut rest = mix(number ^ self.salt);
        std::array::from_fn(|_| {
            let letter = LETTERS[(rest & 31) as usize];
            rest >>= 5;
            letter
        })
    }
}

impl Names {
    fn read_line(&mut self, line: usize, words: &str, default_type: Rtype) -> Result<(), QuestionsError> {
        let mut words = words.split_whitespace();
        let name = words.next().unwrap_or_default();
        let rtype = match words.next() {
            None => default_type,
            Some(word) => Rtype::from_text(word.as_bytes())
                .ok_or_else(|| QuestionsError::Type { line, text: word.to_owned() })?,
        };
        if words.next().is_some() {
            return Err(QuestionsError::Words { line });
        }
        match range_in(line, name)? {
            None => self.add(line, name, rtype),
            Some((before, range, behind)) => range
                .into_iter()
                .try_for_each(|number| self.add(line, &format!("{before}{number}{behind}"), rtype)),
        }
    }

    fn add(&mut self, line: usize, name: &str, rtype: Rtype) -> Result<(), QuestionsError> {
        // Without a dot at its end a name is meant from the root on, as everywhere but in zone files.
        let wire = |letter: &str| {
            let plain = name.replacen(RANDOM, &letter.repeat(RANDOM_LEN), 1);
            NameBuf::from_text(plain.as_bytes(), Some(NameBuf::root().as_name()))
                .map_err(|error| QuestionsError::Name { line, text: name.to_owned(), error })
        };
        let (name, other) = (wire("a")?, wire("b")?);
        let octets = name.as_name().as_bytes();
        // The letters are where the two differ, however what stands before them was written.
        let differ = octets.iter().zip(other.as_name().as_bytes()).position(|(one, other)| one != other);
        let random_at = differ.unwrap_or(0);
        let at = u32::try_from(self.octets.len()).map_err(|_| QuestionsError::TooMany)?;
        self.octets.extend_from_slice(octets);
        self.octets.extend_from_slice(&rtype.0.to_be_bytes());
        self.octets.extend_from_slice(&Class::IN.0.to_be_bytes());
        let len = (octets.len() + 4) as u16; // A name has 255 octets at most.
        self.entries.push(Entry { at, len, random_at: random_at as u16 });
        Ok(())
    }
}

/// A COOKIE option, if there is a cookie, which has 40 octets at most.
fn cookie_option(cookie: &[u8]) -> Vec<u8> {
    if cookie.is_empty() {
        return Vec::new();
    }
    let [code, len] = [COOKIE, cookie.len() as u16].map(u16::to_be_bytes);
    [&code[..], &len, cookie].concat()
}

/// A name's first range: what stands before it, the numbers, what stands behind it.
type Range<'n> = Option<(&'n str, std::ops::RangeInclusive<u64>, &'n str)>;

fn range_in(line: usize, name: &str) -> Result<Range<'_>, QuestionsError> {
    let no_range = |text: &str| QuestionsError::Range { line, text: text.to_owned() };
    let is_range = |(at, _): &(usize, &str)| !name[*at..].starts_with(RANDOM);
    if name.matches(RANDOM).nth(1).is_some() {
        return Err(no_range("random"));
    }
    let Some((at, _)) = name.match_indices('{').find(is_range) else { return Ok(None) };
    let (before, rest) = (&name[..at], &name[at + 1..]);
    let (text, behind) = rest.split_once('}').ok_or_else(|| no_range(rest))?;
    let ends = text.split_once('-').and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
    let (low, high): (u64, u64) = ends.ok_or_else(|| no_range(text))?;
    if low > high || high - low >= RANGE_MAX || behind.replacen(RANDOM, "", 1).contains('{') {
        return Err(no_range(text));
    }
    Ok(Some((before, low..=high, behind)))
}

/// The upper bounds of the chances of `count` places.
fn zipf(count: usize, power: f64) -> Vec<u64> {
    let weights = (1..=count).map(|place| (place as f64).powf(-power));
    let sums: Vec<f64> = weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect();
    let all = sums.last().copied().unwrap_or(1.0);
    sums.into_iter().map(|sum| (sum / all * u64::MAX as f64) as u64).collect()
}

/// A number that looks like chance's ("SplitMix64", 2014).
/// Whether an answer has no question, and a code that is neither NOERROR nor NXDOMAIN.
fn is_bare_error(answer: &[u8]) -> bool {
    matches!(answer.first_chunk(), Some([_, _, _, codes, 0, 0]) if ![0, 3].contains(&(codes & 0xf)))
}

pub(crate) fn mix(state: u64) -> u64 {
    let mut mixed = state.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use dns_wire::Query;

    use super::*;

    fn read(text: &str) -> Result<Questions, QuestionsError> {
        Questions::read(text, Rtype::A)
    }

    /// What a server reads.
    fn asked(questions: &Questions, question: u32, number: u64) -> (String, Rtype, Query) {
        let mut room = [0; 512];
        let len = questions.write(question, number, 7, &mut room).unwrap();
        let query = Query::parse(&room[..len]).unwrap();
        assert!(questions.is_repeated(question, number, &room[..len]));
        (query.qname(&room).to_string(), query.qtype, query)
    }

    #[test]
    fn a_mark_of_the_byte_order_is_no_part_of_the_first_name() {
        let (with, without) = (read("\u{feff}a.example A").unwrap(), read("a.example A").unwrap());
        assert_eq!(with.octets(with.names.entries[0]), without.octets(without.names.entries[0]));
    }

    #[test]
    fn errors_need_not_repeat_the_question_and_answers_have_to() {
        let of = |code: u8, questions: u8| is_bare_error(&[0, 7, 0x80, code, 0, questions, 0, 0, 0, 0, 0, 0]);
        let [no_error, server_failure, no_such_name, refused] = [0, 2, 3, 5];
        assert!(of(refused, 0) && of(server_failure, 0));
        assert!(!of(refused, 1) && !of(no_error, 0) && !of(no_such_name, 0));
    }

    #[test]
    fn lines_are_names_with_and_without_types() {
        let questions = read("# a comment\n\nexample.org\nwww.example.org. AAAA\n  . NS\n").unwrap();
        assert_eq!(questions.len(), 3);
        let names =
            [0, 1, 2].map(|number| asked(&questions, number, 0)).map(|(name, rtype, _)| (name, rtype));
        let expected = [("example.org.", Rtype::A), ("www.example.org.", Rtype::AAAA), (".", Rtype::NS)];
        assert_eq!(names, expected.map(|(name, rtype)| (name.to_owned(), rtype)));
    }

    #[test]
    fn wrong_lines_are_errors_with_their_number() {
        let error = |text: &str| read(text).unwrap_err().to_string();
        assert_eq!(error("a.example\nb..example"), "line 2: \"b..example\": a label is empty");
        assert_eq!(error("a.example HOST"), "line 1: \"HOST\" is no type of records");
        assert_eq!(error("a.example A IN"), "line 1: more than a name and a type");
        assert_eq!(error("# nothing"), "there is no name in it");
        for range in ["{9-1}", "{x}", "{1-2", "{0-99999999}", "{1-2}{3-4}", "{random}{random}"] {
            assert!(error(&format!("h{range}.example")).contains("is no range"), "{range}");
        }
    }

    #[test]
    fn a_range_stands_for_each_of_its_numbers() {
        let questions = read("host{8-11}.example AAAA").unwrap();
        let names: Vec<String> = (0..4).map(|number| asked(&questions, number, 0).0).collect();
        assert_eq!(names, ["host8.example.", "host9.example.", "host10.example.", "host11.example."]);
    }

    #[test]
    fn random_letters_are_others_each_time_and_known_again() {
        let questions = read("{random}.example\nwww-{random}x.a.example").unwrap();
        let (first, second) = (asked(&questions, 0, 1).0, asked(&questions, 0, 2).0);
        assert!(first != second && first.len() == RANDOM_LEN + ".example.".len(), "{first} {second}");
        let escaped = read(r"\032\032\032\032{random}.example").unwrap();
        let (name, ..) = asked(&escaped, 0, 1);
        assert!(name.starts_with(r"\032\032\032\032") && name.ends_with(".example."), "{name}");
        let both = read("h{1-2}-{random}.example").unwrap();
        assert!(both.len() == 2 && asked(&both, 1, 1).0.starts_with("h2-"));
        let within = asked(&questions, 1, 3).0;
        assert!(within.starts_with("www-") && within.ends_with("x.a.example."), "{within}");
        let mut room = [0; 512];
        let len = questions.write(1, 3, 7, &mut room).unwrap();
        assert!(!questions.is_repeated(1, 4, &room[..len]), "the letters of another question");
    }

    #[test]
    fn what_is_said_beside_the_question() {
        let manner = Manner { payload: Some(1400), dnssec: true, recursion: true, ..Manner::default() };
        let (.., query) = asked(&read("example").unwrap().in_manner(&manner), 0, 0);
        let edns = query.edns.unwrap();
        assert_eq!((edns.payload_size, edns.dnssec_ok, query.flags & flag::RD), (1400, true, flag::RD));
        let (.., plain) = asked(&read("example").unwrap().in_manner(&Manner::default()), 0, 0);
        assert_eq!((plain.edns, plain.flags), (None, 0));
    }

    #[test]
    fn a_question_names_a_client_subnet_that_a_server_can_read() {
        let subnets = vec!["198.18.0.0/15".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        let questions = read("{random}.example").unwrap().in_manner(&Manner { subnets, ..Manner::default() });
        let mut told = std::collections::BTreeSet::new();
        for number in 0..100 {
            let mut room = [0; 512];
            let len = questions.write(0, number, 7, &mut room).unwrap();
            let query = Query::parse(&room[..len]).unwrap();
            let option = query.option(&room[..len], 8).unwrap();
            assert!(option.len() == 4 + 3 || option.len() == 4 + 7, "{option:?}");
            assert_eq!(query.edns.unwrap().payload_size, 1232);
            told.insert(option.to_vec());
        }
        assert!(told.len() > 80, "{}", told.len());
    }

    #[test]
    fn a_client_cookie_is_an_option_of_eight_octets() {
        let cookie = vec![1, 2, 3, 4, 5, 6, 7, 8];
        let questions = read("example").unwrap().in_manner(&Manner { cookie, ..Manner::default() });
        let mut room = [0; 512];
        let len = questions.write(0, 0, 7, &mut room).unwrap();
        let additional = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 12, 0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
        assert!(room[..len].ends_with(&additional), "{:?}", &room[..len]);
    }

    #[test]
    fn a_cookie_and_a_client_subnet_stand_beside_each_other() {
        let subnets = vec!["192.0.2.0/24".parse().unwrap()];
        let manner = Manner { cookie: vec![9; 24], subnets, ..Manner::default() };
        let questions = read("example").unwrap().in_manner(&manner);
        let mut room = [0; 512];
        let len = questions.write(0, 0, 7, &mut room).unwrap();
        let query = Query::parse(&room[..len]).unwrap();
        assert_eq!(query.option(&room[..len], COOKIE), Some(&[9; 24][..]));
        assert_eq!(query.option(&room[..len], 8), Some(&[0, 1, 24, 0, 192, 0, 2][..]));
    }

    /// How often each is asked, of 100 000 questions.
    fn shares(order: Order) -> Vec<u32> {
        let questions = read("h{1-100}.example").unwrap().in_order(order, 42);
        let mut counts = vec![0; 100];
        (0..100_000).for_each(|number| counts[questions.pick(number) as usize] += 1);
        counts
    }

    #[test]
    fn orders_are_what_they_say() {
        assert!(shares(Order::InTurn).iter().all(|count| *count == 1000));
        assert!(shares(Order::Random).iter().all(|count| (800..1200).contains(count)));
        let zipf = shares(Order::Zipf(1.0));
        // The first has a share of 1 / H(100) = 0.193, the tenth a tenth of that.
        assert!((18_500..20_100).contains(&zipf[0]) && (1750..2120).contains(&zipf[9]), "{zipf:?}");
    }

    #[test]
    fn questions_in_turn_begin_with_the_first_one_whatever_the_seed() {
        let questions = read("h{1-3}.example").unwrap().in_order(Order::InTurn, 42);
        assert_eq!([0, 1, 2, 3].map(|number| questions.pick(number)), [0, 1, 2, 0]);
    }

    #[test]
    fn another_seed_asks_other_names_and_the_same_seed_the_same() {
        let names = |seed| -> std::collections::BTreeSet<String> {
            let questions = read("{random}.example").unwrap().in_order(Order::InTurn, seed);
            (0..10_000).map(|number| asked(&questions, 0, number).0).collect()
        };
        let first = names(1);
        assert_eq!((first.len(), &names(1)), (10_000, &first));
        assert!([0, 2, 3, u64::MAX].into_iter().all(|seed| first.is_disjoint(&names(seed))));
    }

    #[test]
    fn a_question_that_does_not_fit_is_not_written() {
        assert_eq!(read("example").unwrap().write(0, 0, 0, &mut [0; 20]), None);
    }
}
