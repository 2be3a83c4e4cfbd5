//! Statements and expressions of Python.

use std::collections::BTreeSet;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Statement {
    Nothing,
    Expression(Expression),
    Assign(String, Expression),
    Assert { condition: Expression, message: Option<Expression>, text: String },
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expression {
    Int(i128),
    Float(f64),
    Text(String),
    Name(String),
    List(Vec<Expression>),
    Unary(&'static str, Box<Expression>),
    Binary(&'static str, Box<Expression>, Box<Expression>),
    /// The first operand, then operators with the next operand.
    Comparison(Box<Expression>, Vec<(&'static str, Expression)>),
    /// `then if condition else otherwise`.
    Conditional(Box<[Expression; 3]>),
    Call(String, Vec<Expression>),
}

impl Expression {
    /// Adds the names of variables in this expression to `names`.
    pub(super) fn names<'a>(&'a self, names: &mut BTreeSet<&'a str>) {
        match self {
            Expression::Int(_) | Expression::Float(_) | Expression::Text(_) => {}
            Expression::Name(name) => {
                names.insert(name);
            }
            Expression::List(items) | Expression::Call(_, items) => {
                items.iter().for_each(|item| item.names(names));
            }
            Expression::Unary(_, operand) => operand.names(names),
            Expression::Binary(_, left, right) => {
                left.names(names);
                right.names(names);
            }
            Expression::Comparison(first, others) => {
                first.names(names);
                others.iter().for_each(|(_, operand)| operand.names(names));
            }
            Expression::Conditional(parts) => parts.iter().for_each(|part| part.names(names)),
        }
    }
}
