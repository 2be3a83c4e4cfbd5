//! The little Python that scripts assert with: expressions over numbers and strings, `assert`, assignments, `print`.

mod evaluate;
mod lexer;
mod parser;
mod syntax;
#[cfg(test)]
mod tests;
mod value;

use std::collections::{BTreeMap, BTreeSet};

pub use value::Value;

use syntax::{Expression, Statement};

/// Why a piece of Python did not run to its end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PythonError {
    /// An assertion does not hold.
    #[error("assertion failed: {0}")]
    Assertion(String),
    /// Python itself would have raised this.
    #[error("{0}")]
    Raised(String),
    /// Python that this evaluator does not know.
    #[error("Python's {0} is not supported")]
    Unsupported(String),
}

/// Variables by name. They live as long as a script does.
#[derive(Clone, Debug, Default)]
pub struct Interpreter {
    variables: BTreeMap<String, Value>,
}

impl Interpreter {
    /// Sets a variable.
    pub fn set(&mut self, name: &str, value: Value) {
        self.variables.insert(name.to_owned(), value);
    }

    /// What a variable stands for.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.variables.get(name)
    }

    /// Runs statements in order, up to the first that fails.
    pub fn run(&mut self, code: &str) -> Result<(), PythonError> {
        for statement in parser::statements(code)? {
            self.execute(&statement)?;
        }
        Ok(())
    }

    fn execute(&mut self, statement: &Statement) -> Result<(), PythonError> {
        match statement {
            Statement::Nothing => Ok(()),
            Statement::Expression(expression) => self.evaluate(expression).map(drop),
            Statement::Assign(name, expression) => {
                let value = self.evaluate(expression)?;
                self.variables.insert(name.clone(), value);
                Ok(())
            }
            Statement::Assert { condition, message, text } => {
                if self.evaluate(condition)?.is_true() {
                    return Ok(());
                }
                Err(PythonError::Assertion(self.explain(condition, message.as_ref(), text)))
            }
        }
    }

    fn evaluate(&self, expression: &Expression) -> Result<Value, PythonError> {
        evaluate::evaluate(expression, &self.variables)
    }

    /// The assertion, its message, and what the names in it stand for.
    fn explain(&self, condition: &Expression, message: Option<&Expression>, text: &str) -> String {
        let mut names = BTreeSet::new();
        condition.names(&mut names);
        let known = names.iter().filter_map(|name| Some(format!("{name} = {}", self.variables.get(*name)?)));
        let known: Vec<String> = known.collect();
        let mut explanation = text.to_owned();
        if let Some(Ok(message)) = message.map(|message| self.evaluate(message)) {
            explanation += &format!(" ({message})");
        }
        if !known.is_empty() {
            explanation += &format!(", with {}", known.join(", "));
        }
        explanation
    }
}
