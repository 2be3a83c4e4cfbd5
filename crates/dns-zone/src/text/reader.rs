//! From entries to records: owners, TTLs, classes, types, directives.

use std::path::{Path, PathBuf};

use dns_wire::{Class, Name, NameBuf, Rtype};

use super::error::{Fault, FileId, Parsed, Position, Problem, ZoneTextError, ZoneTextErrors};
use super::field::RdataReader;
use super::lexer::{EntryStart, Lexer, Token};
use super::number::{TTL_MAX, duration_s};
use super::window::{TextFile, Window};
use super::{Files, Limits, Receiver, Record, Summary};

/// What the reader knows between two entries.
pub(super) struct Reader<'l, F: ?Sized, R> {
    pub(super) files: &'l mut F,
    pub(super) limits: &'l Limits,
    receive: R,
    /// By file id.
    pub(super) paths: Vec<PathBuf>,
    /// The file being read, behind those that include it.
    pub(super) open: Vec<FileId>,
    errors: Vec<ZoneTextError>,
    stopped_early: bool,
    /// The origin of the zone: given by the caller, or that of the SOA.
    zone: Option<NameBuf>,
    has_soa: bool,
    /// Whether this is a part of a zone that is there already: without a SOA of its own.
    is_part: bool,
    /// The data of the SOA, which may stand at the end once more.
    soa: Vec<u8>,
    /// What names are relative to, once that is known.
    pub(super) origin: Option<NameBuf>,
    pub(super) owner: NameBuf,
    has_owner: bool,
    /// True once `owner` has been found to be in the zone.
    owner_is_in_zone: bool,
    /// From `$TTL`.
    pub(super) default_ttl: Option<u32>,
    /// From the last record that had one.
    explicit_ttl: Option<u32>,
    /// The minimum of the SOA.
    soa_minimum: Option<u32>,
    record_count: u64,
    /// Records that `$GENERATE` made so far, and the octets of their RDATA.
    pub(super) generated_count: u64,
    pub(super) generated_octets: u64,
    pub(super) rdata: Vec<u8>,
    rdata_name: NameBuf,
}

/// One file on its way through the reader.
struct Source<'t> {
    lexer: Lexer<'t>,
    /// The text of the owner that the reader holds, as long as it would be read the same way.
    owner_text: &'t [u8],
}

/// What stands before the data of a record.
#[derive(Clone, Copy)]
pub(super) struct Head {
    ttl: Option<u32>,
    rtype: Rtype,
    rtype_position: Position,
}

impl<'l, F: Files + ?Sized, R: Receiver> Reader<'l, F, R> {
    pub(super) fn new(files: &'l mut F, limits: &'l Limits, receive: R) -> Self {
        Reader {
            files,
            limits,
            receive,
            paths: Vec::new(),
            open: Vec::new(),
            errors: Vec::new(),
            stopped_early: false,
            zone: None,
            has_soa: false,
            is_part: false,
            soa: Vec::new(),
            origin: None,
            owner: NameBuf::root(),
            has_owner: false,
            owner_is_in_zone: false,
            default_ttl: None,
            explicit_ttl: None,
            soa_minimum: None,
            record_count: 0,
            generated_count: 0,
            generated_octets: 0,
            rdata: Vec::new(),
            rdata_name: NameBuf::root(),
        }
    }

    pub(super) fn read_zone(
        mut self,
        path: &Path,
        origin: Option<Name<'_>>,
    ) -> Result<Summary, ZoneTextErrors> {
        self.paths.push(path.to_path_buf());
        let start = Position { file: FileId(0), line: 1, column: 1 };
        if let Err(fault) = self.read_first_file(path, origin, start) {
            self.report(*fault);
        }
        if !self.has_soa && self.errors.is_empty() {
            self.report(Fault { position: start, problem: Problem::NoSoa });
        }
        match self.zone {
            Some(origin) if self.errors.is_empty() => {
                Ok(Summary { origin, record_count: self.record_count, files: self.paths })
            }
            origin => Err(ZoneTextErrors {
                errors: self.errors,
                origin: origin.map(Box::new),
                stopped_early: self.stopped_early,
            }),
        }
    }

    /// Reads records of the zone `origin`, whose SOA is elsewhere and has this minimum.
    pub(super) fn read_part(
        mut self,
        path: &Path,
        origin: Name<'_>,
        minimum: u32,
    ) -> Result<Summary, ZoneTextErrors> {
        (self.has_soa, self.is_part, self.soa_minimum) = (true, true, Some(minimum));
        self.read_zone(path, Some(origin))
    }

    fn read_first_file(&mut self, path: &Path, origin: Option<Name<'_>>, start: Position) -> Parsed<()> {
        match origin {
            Some(origin) => {
                self.origin = Some(NameBuf::from(origin));
                self.zone = Some(NameBuf::from(origin));
            }
            None => self.origin = origin_from_path(path),
        }
        match self.files.open(path) {
            Ok(text) => self.read_text(text, FileId(0)),
            Err(error) => {
                let (path, reason) = (path.to_path_buf(), error.to_string());
                start.fault(Problem::CannotRead { path, reason })
            }
        }
    }

    /// Reads the entries of one file. An error in an entry is noted, and reading continues with the next one.
    pub(super) fn read_text(&mut self, text: TextFile, file: FileId) -> Parsed<()> {
        self.open.push(file);
        let read = self.read_windows(text, file);
        self.open.pop();
        read
    }

    fn read_windows(&mut self, TextFile { text, len }: TextFile, file: FileId) -> Parsed<()> {
        let mut window = Window::new(text);
        let (mut count, mut line, mut done) = (0, 1, 0);
        while !window.is_last() && !self.stopped_early {
            if let Err(error) = window.advance(count) {
                let (path, reason) = (self.paths[file.0 as usize].clone(), error.to_string());
                return Position { file, line, column: 1 }.fault(Problem::CannotRead { path, reason });
            }
            // Before a line ends, which it may never do: a device, or what is no text.
            if window.held().contains(&0) {
                return position_of_nul(window.held(), file, line).fault(Problem::Nul);
            }
            let text = window.lines();
            let lexer = if done == 0 { Lexer::new(text, file) } else { Lexer::resumed(text, file, line) };
            (count, line) = self.read_entries(lexer, window.is_last());
            done += count as u64;
            if file == FileId(0) && !window.is_last() {
                self.receive.on_progress(done, len);
            }
        }
        Ok(())
    }

    /// Reads the entries that are whole, and all of them if the text is the `last` one of its file. Returns how far it came:
    /// octets, and the line behind them.
    fn read_entries(&mut self, lexer: Lexer<'_>, last: bool) -> (usize, u32) {
        let mut source = Source { lexer, owner_text: b"" };
        loop {
            let before = source.lexer.progress();
            let Some(start) = source.lexer.start_entry() else { return source.lexer.progress() };
            if self.has_enough_errors() {
                self.stopped_early = true;
                return before;
            }
            if let Err(fault) = self.entry(&mut source, start) {
                // What lacks its end has changed nothing: directives and records act when they are whole.
                if !source.lexer.skip_entry() && !last {
                    return before;
                }
                self.report(*fault);
            }
        }
    }

    fn has_enough_errors(&self) -> bool {
        self.errors.len() >= self.limits.errors_max.max(1)
    }

    fn report(&mut self, fault: Fault) {
        if self.has_enough_errors() {
            return;
        }
        if let Problem::NoOrigin(_) = fault.problem {
            // One error says it, for all names that follow.
            self.origin = Some(self.zone.clone().unwrap_or_default());
        }
        let path = self.paths[fault.position.file.0 as usize].clone();
        self.errors.push(ZoneTextError { path, position: fault.position, problem: fault.problem });
    }

    fn entry<'t>(&mut self, source: &mut Source<'t>, start: EntryStart) -> Parsed<()> {
        let Some(token) = source.lexer.token()? else { return Ok(()) }; // parentheses around nothing
        let position = token.position;
        match start {
            EntryStart::Blank if !self.has_owner => return position.fault(Problem::NoPreviousOwner),
            EntryStart::Blank => {
                let head = self.head(&mut source.lexer, Some(token))?;
                return self.record(&mut source.lexer, head, position);
            }
            EntryStart::Token => {}
        }
        if token.text.first() == Some(&b'$') && !token.quoted {
            source.owner_text = b""; // it would mean something else under another origin
            return self.directive(&mut source.lexer, &token);
        }
        if token.text != source.owner_text || token.quoted {
            source.owner_text = b"";
            self.set_owner(&token)?;
            source.owner_text = token.text;
        }
        let head = self.head(&mut source.lexer, None)?;
        self.record(&mut source.lexer, head, position)
    }

    pub(super) fn set_owner(&mut self, token: &Token<'_>) -> Parsed<()> {
        if token.quoted {
            return token.unexpected("a domain name");
        }
        self.owner_is_in_zone = false;
        let origin = self.origin.as_ref().map(NameBuf::as_name);
        if let Err(error) = self.owner.set_from_text(token.text, origin) {
            // So that records that follow without owner are no errors.
            self.owner.set(origin.unwrap_or(Name::ROOT));
            self.has_owner = true;
            return token.fault(Problem::of_name(token.shown(), error));
        }
        self.has_owner = true;
        self.receive.on_owner(self.owner.as_name());
        Ok(())
    }

    /// TTL and class in either order, each at most once, then the type (RFC 1035, 5.1).
    pub(super) fn head<'t>(&mut self, lexer: &mut Lexer<'t>, first: Option<Token<'t>>) -> Parsed<Head> {
        const EXPECTED: &str = "a TTL, a class or a type";
        let mut ttl = None;
        let mut has_class = false;
        let mut first = first;
        loop {
            let token = match first.take() {
                Some(token) => token,
                None => lexer.require(EXPECTED)?,
            };
            let text = token.text;
            if token.quoted {
                return token.unexpected(EXPECTED);
            } else if text.first().is_some_and(u8::is_ascii_digit) && ttl.is_none() {
                ttl = Some(parse_ttl(&token)?);
            } else if text.eq_ignore_ascii_case(b"IN") && !has_class {
                has_class = true;
            } else if let Some(rtype) = Rtype::from_text(text) {
                if rtype.is_meta() {
                    return token.fault(Problem::MetaType(rtype));
                }
                return Ok(Head { ttl, rtype, rtype_position: token.position });
            } else {
                match Class::from_text(text) {
                    Some(Class::IN) if !has_class => has_class = true,
                    Some(class) if class != Class::IN => {
                        return token.fault(Problem::ClassNotIn(class.to_string()));
                    }
                    _ => return token.unexpected(EXPECTED),
                }
            }
        }
    }

    /// The data behind `head`; then the record is complete and goes to the receiver.
    pub(super) fn record(&mut self, lexer: &mut Lexer<'_>, head: Head, position: Position) -> Parsed<()> {
        self.rdata.clear();
        let origin = self.origin.as_ref().map(NameBuf::as_name);
        let (out, name) = (&mut self.rdata, &mut self.rdata_name);
        RdataReader { lexer, origin, out, name }.read(head.rtype)?;

        let Head { ttl, rtype, rtype_position } = head;
        if rtype == Rtype::SOA && self.is_soa_again() {
            return Ok(()); // As it ends a zone transfer (RFC 5936, 2.2), and what is made of one.
        }
        if (rtype == Rtype::SOA && !self.is_part) || !self.has_soa {
            self.start_of_authority(rtype, position, rtype_position)?;
        }
        self.require_owner_in_zone(position)?;
        let ttl = self.ttl(ttl, rtype_position)?;
        if !self.has_soa {
            return Ok(()); // an error was reported: records are checked, but they do not start a zone
        }
        let owner = self.owner.as_name();
        let record = Record { owner, ttl, class: Class::IN, rtype, rdata: &self.rdata, position };
        self.record_count += 1;
        self.receive
            .on_record(record)
            .or_else(|refusal| position.fault(Problem::Refused(refusal.to_string())))
    }

    /// Whether the record that was just read is the SOA that came first.
    fn is_soa_again(&self) -> bool {
        self.has_soa && self.zone.as_ref() == Some(&self.owner) && self.rdata == self.soa
    }

    /// What names are relative to.
    pub(super) fn origin_name(&self) -> Option<Name<'_>> {
        self.origin.as_ref().map(NameBuf::as_name)
    }

    /// The SOA is the first record, there is one, and it is at the origin of the zone (RFC 1035, 5.2).
    fn start_of_authority(
        &mut self,
        rtype: Rtype,
        position: Position,
        rtype_position: Position,
    ) -> Parsed<()> {
        if rtype != Rtype::SOA {
            // After an error the SOA may be what could not be read.
            let is_only_error = self.errors.is_empty();
            return if is_only_error {
                rtype_position.fault(Problem::FirstRecordNotSoa(rtype))
            } else {
                Ok(())
            };
        }
        if self.has_soa {
            return rtype_position.fault(Problem::SecondSoa);
        }
        if let Some(minimum) = self.rdata.last_chunk() {
            self.soa_minimum = Some(u32::from_be_bytes(*minimum)).filter(|ttl| u64::from(*ttl) <= TTL_MAX);
        }
        match &self.zone {
            Some(origin) if *origin != self.owner => {
                let (owner, origin) = (Box::new(self.owner.clone()), Box::new(origin.clone()));
                position.fault(Problem::SoaNotAtOrigin { owner, origin })
            }
            _ => {
                self.zone = Some(self.owner.clone());
                self.has_soa = true;
                self.soa.clone_from(&self.rdata);
                Ok(())
            }
        }
    }

    /// To be called when `owner` was changed without [`Reader::set_owner`].
    pub(super) fn forget_owner_check(&mut self) {
        self.owner_is_in_zone = false;
    }

    fn require_owner_in_zone(&mut self, position: Position) -> Parsed<()> {
        if self.owner_is_in_zone {
            return Ok(());
        }
        let Some(zone) = &self.zone else { return Ok(()) }; // an error says why there is none
        if !self.owner.as_name().ends_with(zone.as_name()) {
            let (owner, origin) = (Box::new(self.owner.clone()), Box::new(zone.clone()));
            return position.fault(Problem::OutOfZone { owner, origin });
        }
        self.owner_is_in_zone = true;
        Ok(())
    }

    /// Its own TTL, else that of `$TTL` (RFC 2308, 4), else the last one given (RFC 1035, 5.1), else the minimum of the
    /// SOA, as zones of the time before `$TTL` expect.
    fn ttl(&mut self, own: Option<u32>, position: Position) -> Parsed<u32> {
        if let Some(ttl) = own {
            self.explicit_ttl = Some(ttl);
            return Ok(ttl);
        }
        match self.default_ttl.or(self.explicit_ttl).or(self.soa_minimum) {
            Some(ttl) => Ok(ttl),
            None => position.fault(Problem::NoTtl),
        }
    }
}

/// The zone that a file is about if nothing else says so: of `example.com.zone` it is `example.com`. Other names say nothing.
pub fn origin_from_path(path: &Path) -> Option<NameBuf> {
    let file_name = path.file_name()?.to_str()?;
    let zone_name = file_name.strip_suffix(".zone")?;
    NameBuf::from_text(zone_name.as_bytes(), Some(Name::ROOT)).ok()
}

pub(super) fn parse_ttl(token: &Token<'_>) -> Parsed<u32> {
    let ttl = token.expect(duration_s(token.text), "a TTL such as 3600 or 1h30m")?;
    if ttl > TTL_MAX {
        return token.fault(Problem::TtlTooLarge(token.shown()));
    }
    Ok(ttl as u32)
}

/// `text` begins with `line`.
fn position_of_nul(text: &[u8], file: FileId, line: u32) -> Position {
    let before = text.split(|&octet| octet == 0).next().unwrap_or_default();
    let lines = before.split(|&octet| octet == b'\n');
    let last_line_len = lines.clone().next_back().map_or(0, <[u8]>::len);
    Position { file, line: line.saturating_add(lines.count() as u32 - 1), column: last_line_len as u32 + 1 }
}
