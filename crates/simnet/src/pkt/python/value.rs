//! What expressions give.

use std::cmp::Ordering;
use std::fmt;

/// A value of Python's, as far as scripts need them.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `None`.
    None,
    /// `True` or `False`, which count as 1 and 0.
    Bool(bool),
    /// A whole number; Python's have no limit, these have 128 bits.
    Int(i128),
    /// A floating-point number.
    Float(f64),
    /// A string.
    Text(String),
    /// A tuple or list.
    List(Vec<Value>),
}

impl Value {
    /// What Python's `bool()` gives.
    pub fn is_true(&self) -> bool {
        match self {
            Value::None => false,
            Value::Bool(value) => *value,
            Value::Int(value) => *value != 0,
            Value::Float(value) => *value != 0.0,
            Value::Text(text) => !text.is_empty(),
            Value::List(values) => !values.is_empty(),
        }
    }

    pub(super) fn as_int(&self) -> Option<i128> {
        match self {
            Value::Bool(value) => Some(i128::from(*value)),
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    pub(super) fn as_float(&self) -> Option<f64> {
        match self {
            Value::Float(value) => Some(*value),
            other => other.as_int().map(|value| value as f64),
        }
    }

    /// Order of two values that Python can compare; equality is defined for all.
    pub(super) fn compare(&self, other: &Value) -> Option<Ordering> {
        if let (Some(left), Some(right)) = (self.as_int(), other.as_int()) {
            return Some(left.cmp(&right));
        }
        if let (Some(left), Some(right)) = (self.as_float(), other.as_float()) {
            return left.partial_cmp(&right);
        }
        match (self, other) {
            (Value::Text(left), Value::Text(right)) => Some(left.cmp(right)),
            (Value::List(left), Value::List(right)) => compare_lists(left, right),
            (Value::None, Value::None) => Some(Ordering::Equal),
            _ => None,
        }
    }

    pub(super) fn equals(&self, other: &Value) -> bool {
        self.compare(other) == Some(Ordering::Equal)
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Value::None => "None",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Text(_) => "str",
            Value::List(_) => "list",
        }
    }
}

fn compare_lists(left: &[Value], right: &[Value]) -> Option<Ordering> {
    for (left, right) in left.iter().zip(right) {
        match left.compare(right)? {
            Ordering::Equal => {}
            unequal => return Some(unequal),
        }
    }
    Some(left.len().cmp(&right.len()))
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::None => f.write_str("None"),
            Value::Bool(true) => f.write_str("True"),
            Value::Bool(false) => f.write_str("False"),
            Value::Int(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value:?}"),
            Value::Text(text) => f.write_str(text),
            Value::List(values) => {
                let texts: Vec<String> = values.iter().map(Value::to_string).collect();
                write!(f, "({})", texts.join(", "))
            }
        }
    }
}
