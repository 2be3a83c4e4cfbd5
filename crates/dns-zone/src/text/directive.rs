//! Directives: `$ORIGIN`, `$TTL`, `$INCLUDE`. `$GENERATE` has a file of its own.

use std::path::Path;

use dns_wire::NameBuf;

use super::error::{FileId, Parsed, Problem};
use super::lexer::{Lexer, Token};
use super::reader::{Reader, parse_ttl};
use super::{Files, Receiver};

impl<F: Files + ?Sized, R: Receiver> Reader<'_, F, R> {
    pub(super) fn directive<'t>(&mut self, lexer: &mut Lexer<'t>, token: &Token<'t>) -> Parsed<()> {
        match token.text.to_ascii_uppercase().as_slice() {
            b"$ORIGIN" => {
                let origin = self.name(lexer)?;
                lexer.finish_entry()?;
                self.origin = Some(origin);
                Ok(())
            }
            b"$TTL" => {
                let ttl = parse_ttl(&lexer.require_word("a TTL")?)?;
                lexer.finish_entry()?;
                self.default_ttl = Some(ttl);
                Ok(())
            }
            b"$INCLUDE" => self.include(lexer),
            b"$GENERATE" => self.generate(lexer, token.position),
            _ => token.fault(Problem::UnknownDirective(token.shown())),
        }
    }

    fn name(&self, lexer: &mut Lexer<'_>) -> Parsed<NameBuf> {
        let token = lexer.require_word("a domain name")?;
        NameBuf::from_text(token.text, self.origin_name())
            .or_else(|error| token.fault(Problem::of_name(token.shown(), error)))
    }

    /// `$INCLUDE file [origin]`: origin and owner are afterwards what they were before (RFC 1035, 5.1).
    fn include(&mut self, lexer: &mut Lexer<'_>) -> Parsed<()> {
        let token = lexer.require("a file name")?;
        let mut file_name = Vec::new();
        let unescaped = super::encoding::push_unescaped(token.text, &mut file_name);
        let file_name =
            unescaped.and_then(|()| String::from_utf8(file_name).ok()).filter(|name| !name.is_empty());
        let file_name = token.expect(file_name, "a file name")?;
        let included_origin =
            if lexer.next_is_end()? { self.origin.clone() } else { Some(self.name(lexer)?) };
        lexer.finish_entry()?;

        let directory = self.paths[token.position.file.0 as usize].parent().unwrap_or(Path::new(""));
        let path = directory.join(file_name);
        if self.open.iter().any(|file| self.paths[file.0 as usize] == path) {
            return token.fault(Problem::IncludeLoop(path));
        }
        if self.open.len() > self.limits.include_depth_max {
            return token.fault(Problem::IncludeTooDeep(self.limits.include_depth_max));
        }
        if self.paths.len() > self.limits.includes_max {
            return token.fault(Problem::TooManyIncludes(self.limits.includes_max));
        }
        let text = match self.files.open(&path) {
            Ok(text) => text,
            Err(error) => return token.fault(Problem::CannotRead { path, reason: error.to_string() }),
        };
        let file = FileId(self.paths.len() as u32);
        self.paths.push(path);

        let (origin, owner) = (std::mem::replace(&mut self.origin, included_origin), self.owner.clone());
        let read = self.read_text(text, file);
        (self.origin, self.owner) = (origin, owner);
        self.forget_owner_check();
        read
    }
}
