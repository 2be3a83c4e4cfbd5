//! System calls and the expressions that are their arguments and results.

use clock::Duration;

use super::Position;

/// A system call that a script makes.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// For a call that blocks: when it is to return, counted as the event's time is.
    pub end: Option<Duration>,
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<Expression>,
    /// What it is to return.
    pub result: Expression,
    /// The error that it is to set.
    pub errno: Option<String>,
}

/// An expression and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    /// What it is.
    pub kind: ExpressionKind,
    /// Where it starts.
    pub at: Position,
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub enum ExpressionKind {
    /// `...`: whatever the player has in mind.
    Ellipsis,
    /// A number.
    Integer(i64),
    /// A name that stands for a number, such as `SOL_TCP`.
    Word(String),
    /// Octets in double quotes.
    Text(Vec<u8>),
    /// `a | b`.
    Or(Box<Expression>, Box<Expression>),
    /// `[a, b]`.
    Array(Vec<Expression>),
    /// `{name = value, ...}`.
    Struct(Vec<Field>),
    /// `{a, b}`.
    Tuple(Vec<Expression>),
    /// `name(arguments)`.
    Apply(String, Vec<Expression>),
}

/// A field of a structure.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// What stands in parentheses behind the name, as in `msg_iov(1)`.
    pub index: Option<Expression>,
    /// Its value.
    pub value: Expression,
}

impl Expression {
    /// The field `name` of a structure.
    pub fn field(&self, name: &str) -> Option<&Expression> {
        match &self.kind {
            ExpressionKind::Struct(fields) => {
                fields.iter().find(|field| field.name == name).map(|field| &field.value)
            }
            _ => None,
        }
    }

    /// Whether this is `...`.
    pub fn is_ellipsis(&self) -> bool {
        self.kind == ExpressionKind::Ellipsis
    }
}
