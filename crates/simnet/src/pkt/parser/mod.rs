//! From the text of a script to what it says.

mod call;
mod cursor;
mod definitions;
mod error;
mod expression;
mod icmp;
mod options;
mod packet;
mod script;
mod tcp;
#[cfg(test)]
mod tests;
mod time;

pub use definitions::Definitions;
pub use error::{ParseError, Problem};

use super::ast::Script;
use cursor::Cursor;

/// Reads a script. `definitions` are those of the command line; the script's own are added to them.
pub fn parse(text: &str, definitions: &Definitions) -> Result<Script, ParseError> {
    let options = script::options(&mut Cursor::new(text, definitions))?;
    let definitions = script::with_own_definitions(definitions, &options)?;
    script::script(&mut Cursor::new(text, &definitions))
}
