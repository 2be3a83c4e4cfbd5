//! From tokens to statements and expressions.

use super::PythonError;
use super::lexer::{Placed, Token, tokens};
use super::syntax::{Expression, Statement};

/// Statements that only start something larger.
const COMPOUND: &[&str] = &[
    "if", "for", "while", "def", "class", "import", "from", "with", "try", "lambda", "return", "del",
    "global", "raise", "nonlocal", "yield", "async", "match",
];
const KEYWORDS: &[&str] = &["and", "or", "not", "in", "is", "if", "else", "assert"];
const DEPTH_MAX: u32 = 64;
/// Operators in one statement. Each may be one level of the tree that evaluation descends.
const OPERATORS_MAX: u32 = 400;

/// Binary operators from the loosest to the tightest.
const LEVELS: &[&[&str]] = &[&["|"], &["^"], &["&"], &["<<", ">>"], &["+", "-"], &["*", "//", "/", "%"]];

pub(super) fn statements(code: &str) -> Result<Vec<Statement>, PythonError> {
    let mut parser = Parser { code, tokens: tokens(code)?, next: 0, depth: 0, operators: 0 };
    let mut statements = Vec::new();
    loop {
        while parser.eat(&Token::EndOfStatement) {}
        if parser.peek().is_none() {
            return Ok(statements);
        }
        parser.operators = 0;
        statements.push(parser.statement()?);
        if parser.peek().is_some() && !parser.eat(&Token::EndOfStatement) {
            return Err(parser.unexpected());
        }
    }
}

struct Parser<'a> {
    code: &'a str,
    tokens: Vec<Placed>,
    next: usize,
    depth: u32,
    operators: u32,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|placed| &placed.token)
    }

    fn eat(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.next += usize::from(found);
        found
    }

    fn eat_symbol(&mut self, symbols: &[&'static str]) -> Option<&'static str> {
        let found = match self.peek() {
            Some(Token::Symbol(symbol)) => symbols.iter().find(|candidate| *candidate == symbol),
            _ => None,
        }?;
        self.next += 1;
        Some(found)
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Name(name)) if name == word);
        self.next += usize::from(found);
        found
    }

    fn count_operator(&mut self) -> Result<(), PythonError> {
        self.operators += 1;
        if self.operators > OPERATORS_MAX {
            return Err(PythonError::Unsupported("statement with so many operators".to_owned()));
        }
        Ok(())
    }

    fn unexpected(&self) -> PythonError {
        let Some(placed) = self.tokens.get(self.next) else {
            return PythonError::Raised("SyntaxError: the statement ends too early".to_owned());
        };
        PythonError::Raised(format!("SyntaxError: `{}`", &self.code[placed.start..placed.end]))
    }

    fn statement(&mut self) -> Result<Statement, PythonError> {
        if let Some(Token::Name(name)) = self.peek()
            && COMPOUND.contains(&name.as_str())
        {
            return Err(PythonError::Unsupported(format!("`{name}`")));
        }
        if self.eat_word("assert") {
            return self.assertion();
        }
        if self.eat_word("pass") {
            return Ok(Statement::Nothing);
        }
        let expression = self.tuple()?;
        let Some(operator) = self.eat_symbol(&["=", "+=", "-=", "*="]) else {
            return Ok(Statement::Expression(expression));
        };
        match expression {
            Expression::Name(name) if operator == "=" => Ok(Statement::Assign(name, self.tuple()?)),
            Expression::Name(name) => {
                let operator = operator.trim_end_matches('=');
                let (before, change) = (Expression::Name(name.clone()), self.tuple()?);
                let sum = Expression::Binary(operator, Box::new(before), Box::new(change));
                Ok(Statement::Assign(name, sum))
            }
            _ => Err(PythonError::Unsupported("assignment to more than a name".to_owned())),
        }
    }

    fn assertion(&mut self) -> Result<Statement, PythonError> {
        let start = self.tokens.get(self.next).map_or(0, |placed| placed.start);
        let condition = self.expression()?;
        let end = self.tokens[..self.next].last().map_or(start, |placed| placed.end);
        let message = if self.eat_symbol(&[","]).is_some() { Some(self.expression()?) } else { None };
        let text = self.code[start..end].split_whitespace().collect::<Vec<_>>().join(" ");
        Ok(Statement::Assert { condition, message, text })
    }

    /// Expressions between commas make a tuple.
    fn tuple(&mut self) -> Result<Expression, PythonError> {
        let first = self.expression()?;
        if self.eat_symbol(&[","]).is_none() {
            return Ok(first);
        }
        let mut items = vec![first];
        while !matches!(self.peek(), None | Some(Token::EndOfStatement | Token::Symbol(")" | "]" | "="))) {
            items.push(self.expression()?);
            if self.eat_symbol(&[","]).is_none() {
                break;
            }
        }
        Ok(Expression::List(items))
    }

    fn expression(&mut self) -> Result<Expression, PythonError> {
        if self.depth == DEPTH_MAX {
            return Err(PythonError::Unsupported("nesting of such depth".to_owned()));
        }
        self.depth += 1;
        let expression = self.conditional();
        self.depth -= 1;
        expression
    }

    fn conditional(&mut self) -> Result<Expression, PythonError> {
        let then = self.or()?;
        if !self.eat_word("if") {
            return Ok(then);
        }
        let condition = self.or()?;
        if !self.eat_word("else") {
            return Err(self.unexpected());
        }
        let otherwise = self.expression()?;
        Ok(Expression::Conditional(Box::new([then, condition, otherwise])))
    }

    fn or(&mut self) -> Result<Expression, PythonError> {
        let mut left = self.and()?;
        while self.eat_word("or") {
            self.count_operator()?;
            left = Expression::Binary("or", Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Expression, PythonError> {
        let mut left = self.not()?;
        while self.eat_word("and") {
            self.count_operator()?;
            left = Expression::Binary("and", Box::new(left), Box::new(self.not()?));
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Expression, PythonError> {
        let mut negations = 0;
        while self.eat_word("not") {
            self.count_operator()?;
            negations += 1;
        }
        let mut expression = self.comparison()?;
        for _ in 0..negations {
            expression = Expression::Unary("not", Box::new(expression));
        }
        Ok(expression)
    }

    fn comparison(&mut self) -> Result<Expression, PythonError> {
        let first = self.binary(0)?;
        let mut others = Vec::new();
        while let Some(operator) = self.comparison_operator() {
            others.push((operator, self.binary(0)?));
        }
        Ok(if others.is_empty() { first } else { Expression::Comparison(Box::new(first), others) })
    }

    fn comparison_operator(&mut self) -> Option<&'static str> {
        if let Some(symbol) = self.eat_symbol(&["==", "!=", "<=", ">=", "<", ">"]) {
            return Some(symbol);
        }
        if self.eat_word("in") {
            return Some("in");
        }
        if self.eat_word("is") {
            return Some(if self.eat_word("not") { "!=" } else { "==" });
        }
        let not_in = matches!(self.tokens.get(self.next + 1), Some(Placed { token: Token::Name(name), .. }) if name == "in");
        if not_in && self.eat_word("not") {
            self.eat_word("in");
            return Some("not in");
        }
        None
    }

    fn binary(&mut self, level: usize) -> Result<Expression, PythonError> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = self.eat_symbol(operators) {
            self.count_operator()?;
            left = Expression::Binary(operator, Box::new(left), Box::new(self.binary(level + 1)?));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expression, PythonError> {
        let mut signs = Vec::new();
        while let Some(sign) = self.eat_symbol(&["-", "+", "~"]) {
            self.count_operator()?;
            signs.push(sign);
        }
        let mut expression = self.power()?;
        while let Some(sign) = signs.pop() {
            expression = Expression::Unary(sign, Box::new(expression));
        }
        Ok(expression)
    }

    fn power(&mut self) -> Result<Expression, PythonError> {
        let base = self.primary()?;
        if self.eat_symbol(&["**"]).is_none() {
            return Ok(base);
        }
        let exponent = self.expression()?;
        Ok(Expression::Binary("**", Box::new(base), Box::new(exponent)))
    }

    fn primary(&mut self) -> Result<Expression, PythonError> {
        let Some(token) = self.peek().cloned() else { return Err(self.unexpected()) };
        if matches!(&token, Token::Name(name) if KEYWORDS.contains(&name.as_str())) {
            return Err(self.unexpected());
        }
        self.next += 1;
        let expression = match token {
            Token::Int(value) => Expression::Int(value),
            Token::Float(value) => Expression::Float(value),
            Token::Text(text) => Expression::Text(text),
            Token::Name(name) if self.eat_symbol(&["("]).is_some() => {
                Expression::Call(name, self.items(")")?)
            }
            Token::Name(name) => Expression::Name(name),
            Token::Symbol("(") => self.parenthesised()?,
            Token::Symbol("[") => Expression::List(self.items("]")?),
            _ => {
                self.next -= 1;
                return Err(self.unexpected());
            }
        };
        match self.peek() {
            Some(Token::Symbol(symbol @ ("." | "[" | "("))) => {
                Err(PythonError::Unsupported(format!("`{symbol}` behind an expression")))
            }
            _ => Ok(expression),
        }
    }

    fn parenthesised(&mut self) -> Result<Expression, PythonError> {
        if self.eat_symbol(&[")"]).is_some() {
            return Ok(Expression::List(Vec::new()));
        }
        let expression = self.tuple()?;
        if self.eat_symbol(&[")"]).is_none() {
            return Err(self.unexpected());
        }
        Ok(expression)
    }

    fn items(&mut self, end: &'static str) -> Result<Vec<Expression>, PythonError> {
        let mut items = Vec::new();
        while self.eat_symbol(&[end]).is_none() {
            items.push(self.expression()?);
            if self.eat_symbol(&[","]).is_none() && self.peek() != Some(&Token::Symbol(end)) {
                return Err(self.unexpected());
            }
        }
        Ok(items)
    }
}
