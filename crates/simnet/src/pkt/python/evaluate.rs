//! What an expression gives.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::syntax::Expression;
use super::{PythonError, Value};

type Variables = BTreeMap<String, Value>;
type Result<T> = std::result::Result<T, PythonError>;

pub(super) fn evaluate(expression: &Expression, variables: &Variables) -> Result<Value> {
    match expression {
        Expression::Int(value) => Ok(Value::Int(*value)),
        Expression::Float(value) => Ok(Value::Float(*value)),
        Expression::Text(text) => Ok(Value::Text(text.clone())),
        Expression::Name(name) => name_value(name, variables),
        Expression::List(items) => Ok(Value::List(all(items, variables)?)),
        Expression::Unary(operator, operand) => unary(operator, evaluate(operand, variables)?),
        Expression::Binary("and", left, right) => {
            let left = evaluate(left, variables)?;
            if left.is_true() { evaluate(right, variables) } else { Ok(left) }
        }
        Expression::Binary("or", left, right) => {
            let left = evaluate(left, variables)?;
            if left.is_true() { Ok(left) } else { evaluate(right, variables) }
        }
        Expression::Binary(operator, left, right) => {
            binary(operator, evaluate(left, variables)?, evaluate(right, variables)?)
        }
        Expression::Comparison(first, others) => comparison(first, others, variables),
        Expression::Conditional(parts) => {
            let [then, condition, otherwise] = &**parts;
            let chosen = if evaluate(condition, variables)?.is_true() { then } else { otherwise };
            evaluate(chosen, variables)
        }
        Expression::Call(name, arguments) => call(name, all(arguments, variables)?),
    }
}

fn all(items: &[Expression], variables: &Variables) -> Result<Vec<Value>> {
    items.iter().map(|item| evaluate(item, variables)).collect()
}

/// Variables that packetdrill may set and this player does not.
fn is_foreign(name: &str) -> bool {
    ["tcpi_", "SK_MEMINFO_", "bbr_", "dctcp_", "tcpv_"].iter().any(|prefix| name.starts_with(prefix))
}

fn name_value(name: &str, variables: &Variables) -> Result<Value> {
    match name {
        "True" => Ok(Value::Bool(true)),
        "False" => Ok(Value::Bool(false)),
        "None" => Ok(Value::None),
        _ => match variables.get(name) {
            Some(value) => Ok(value.clone()),
            None if is_foreign(name) => Err(PythonError::Unsupported(format!("variable `{name}`"))),
            None => Err(PythonError::Raised(format!("NameError: name `{name}` is not defined"))),
        },
    }
}

fn unary(operator: &str, operand: Value) -> Result<Value> {
    match (operator, operand.as_int(), &operand) {
        ("not", ..) => Ok(Value::Bool(!operand.is_true())),
        ("-", Some(value), _) => value.checked_neg().map(Value::Int).ok_or_else(overflow),
        ("-", None, Value::Float(value)) => Ok(Value::Float(-value)),
        ("+", Some(value), _) => Ok(Value::Int(value)),
        ("+", None, Value::Float(value)) => Ok(Value::Float(*value)),
        ("~", Some(value), _) => Ok(Value::Int(!value)),
        _ => Err(wrong_type(operator, &[&operand])),
    }
}

fn comparison(first: &Expression, others: &[(&str, Expression)], variables: &Variables) -> Result<Value> {
    let mut left = evaluate(first, variables)?;
    for (operator, right) in others {
        let right = evaluate(right, variables)?;
        if !compare(operator, &left, &right)? {
            return Ok(Value::Bool(false));
        }
        left = right;
    }
    Ok(Value::Bool(true))
}

fn compare(operator: &str, left: &Value, right: &Value) -> Result<bool> {
    let order = left.compare(right);
    match operator {
        "==" => return Ok(left.equals(right)),
        "!=" => return Ok(!left.equals(right)),
        "in" => return contains(left, right),
        "not in" => return contains(left, right).map(|found| !found),
        _ => {}
    }
    let Some(order) = order else {
        let both_numbers = left.as_float().is_some() && right.as_float().is_some();
        return if both_numbers { Ok(false) } else { Err(wrong_type(operator, &[left, right])) };
    };
    Ok(match operator {
        "<" => order == Ordering::Less,
        "<=" => order != Ordering::Greater,
        ">" => order == Ordering::Greater,
        _ => order != Ordering::Less,
    })
}

fn contains(item: &Value, container: &Value) -> Result<bool> {
    match (item, container) {
        (_, Value::List(values)) => Ok(values.iter().any(|value| value.equals(item))),
        (Value::Text(part), Value::Text(whole)) => Ok(whole.contains(part.as_str())),
        _ => Err(wrong_type("in", &[item, container])),
    }
}

fn binary(operator: &str, left: Value, right: Value) -> Result<Value> {
    match (operator, &left, &right) {
        ("+", Value::Text(left), Value::Text(right)) => return Ok(Value::Text(format!("{left}{right}"))),
        ("%", Value::Text(pattern), _) => return Ok(Value::Text(format_text(pattern, &right))),
        _ => {}
    }
    if operator != "/"
        && let (Some(left), Some(right)) = (left.as_int(), right.as_int())
    {
        return int_binary(operator, left, right);
    }
    match (left.as_float(), right.as_float()) {
        (Some(left_value), Some(right_value)) => float_binary(operator, left_value, right_value)
            .ok_or_else(|| wrong_type(operator, &[&left, &right]))?,
        _ => Err(wrong_type(operator, &[&left, &right])),
    }
}

fn int_binary(operator: &str, left: i128, right: i128) -> Result<Value> {
    let shift = || u32::try_from(right).ok().filter(|shift| *shift < 127);
    let result = match operator {
        "+" => left.checked_add(right),
        "-" => left.checked_sub(right),
        "*" => left.checked_mul(right),
        "//" | "%" if right == 0 => return Err(division_by_zero()),
        "//" => left.checked_div_euclid(right).map(|_| floor_divide(left, right)),
        "%" => {
            left.checked_rem(right).map(|_| left.wrapping_sub(floor_divide(left, right).wrapping_mul(right)))
        }
        "&" => Some(left & right),
        "|" => Some(left | right),
        "^" => Some(left ^ right),
        "<<" => shift().and_then(|shift| left.checked_mul(1_i128.checked_shl(shift)?)),
        ">>" => shift().map(|shift| left >> shift),
        "**" if right < 0 => return Ok(Value::Float((left as f64).powf(right as f64))),
        "**" => u32::try_from(right).ok().and_then(|right| left.checked_pow(right)),
        _ => None,
    };
    result.map(Value::Int).ok_or_else(overflow)
}

/// Towards minus infinity, as Python divides; `right` is not zero.
fn floor_divide(left: i128, right: i128) -> i128 {
    let quotient = left.wrapping_div(right);
    let is_inexact = quotient.wrapping_mul(right) != left;
    if is_inexact && (left < 0) != (right < 0) { quotient - 1 } else { quotient }
}

/// `None` if floating-point numbers have no such operator.
fn float_binary(operator: &str, left: f64, right: f64) -> Option<Result<Value>> {
    Some(Ok(Value::Float(match operator {
        "+" => left + right,
        "-" => left - right,
        "*" => left * right,
        "/" | "//" | "%" if right == 0.0 => return Some(Err(division_by_zero())),
        "/" => left / right,
        "//" => (left / right).floor(),
        "%" => left - right * (left / right).floor(),
        "**" => left.powf(right),
        _ => return None,
    })))
}

fn call(name: &str, arguments: Vec<Value>) -> Result<Value> {
    let arguments = match (name, &arguments[..]) {
        ("min" | "max", [Value::List(values)]) => values.clone(),
        _ => arguments,
    };
    match (name, &arguments[..]) {
        ("print", _) => Ok(Value::None),
        ("abs", [value]) => match value.as_int() {
            Some(value) => value.checked_abs().map(Value::Int).ok_or_else(overflow),
            None => Ok(Value::Float(number(name, value)?.abs())),
        },
        ("int", [value]) => match value.as_int() {
            Some(value) => Ok(Value::Int(value)),
            None => Ok(Value::Int(number(name, value)? as i128)),
        },
        ("float", [value]) => Ok(Value::Float(number(name, value)?)),
        ("round", [value]) => Ok(Value::Int(number(name, value)?.round_ties_even() as i128)),
        ("bool", [value]) => Ok(Value::Bool(value.is_true())),
        ("str", [value]) => Ok(Value::Text(value.to_string())),
        ("len", [Value::Text(text)]) => Ok(Value::Int(text.chars().count() as i128)),
        ("len", [Value::List(values)]) => Ok(Value::Int(values.len() as i128)),
        ("min" | "max", values) if !values.is_empty() => extreme(name, values),
        _ => Err(PythonError::Unsupported(format!("`{name}()` with these arguments"))),
    }
}

fn extreme(name: &str, values: &[Value]) -> Result<Value> {
    let wanted = if name == "min" { Ordering::Less } else { Ordering::Greater };
    let mut best = &values[0];
    for value in &values[1..] {
        let order = value.compare(best).ok_or_else(|| wrong_type(name, &[value, best]))?;
        if order == wanted {
            best = value;
        }
    }
    Ok(best.clone())
}

fn number(name: &str, value: &Value) -> Result<f64> {
    value.as_float().ok_or_else(|| wrong_type(name, &[value]))
}

/// `%d`, `%s` and the like replaced by the values in order; widths and precisions are left out.
fn format_text(pattern: &str, values: &Value) -> String {
    let single = std::slice::from_ref(values);
    let mut values = match values {
        Value::List(values) => values.iter(),
        _ => single.iter(),
    };
    let mut pieces = pattern.split('%');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let behind = piece.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
        let behind = behind.get(1..).unwrap_or_default();
        text += &values.next().map(Value::to_string).unwrap_or_default();
        text += behind;
    }
    text
}

fn wrong_type(operator: &str, operands: &[&Value]) -> PythonError {
    let types: Vec<&str> = operands.iter().map(|operand| operand.type_name()).collect();
    PythonError::Raised(format!("TypeError: `{operator}` is not defined for {}", types.join(" and ")))
}

fn overflow() -> PythonError {
    PythonError::Unsupported("arithmetic beyond 128 bits".to_owned())
}

fn division_by_zero() -> PythonError {
    PythonError::Raised("ZeroDivisionError: division by zero".to_owned())
}
