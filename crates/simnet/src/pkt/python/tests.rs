use super::{Interpreter, PythonError, Value};

fn interpreter() -> Interpreter {
    let mut interpreter = Interpreter::default();
    for (name, value) in
        [("tcpi_snd_cwnd", 10), ("tcpi_options", 7), ("tcpi_state", 1), ("TCP_ESTABLISHED", 1)]
    {
        interpreter.set(name, Value::Int(value));
    }
    interpreter
}

fn holds(condition: &str) -> bool {
    match interpreter().run(&format!("assert {condition}")) {
        Ok(()) => true,
        Err(PythonError::Assertion(_)) => false,
        Err(error) => panic!("{condition}: {error}"),
    }
}

fn error(code: &str) -> String {
    interpreter().run(code).unwrap_err().to_string()
}

#[test]
fn comparisons_chain_and_bind_looser_than_arithmetic() {
    assert!(holds("tcpi_snd_cwnd == 10"));
    assert!(holds("5 < tcpi_snd_cwnd <= 2 * 5"));
    assert!(!holds("5 < tcpi_snd_cwnd < 10"));
    assert!(holds("tcpi_state == TCP_ESTABLISHED and not tcpi_snd_cwnd != 10"));
    assert!(holds("0 or tcpi_snd_cwnd"));
}

#[test]
fn bit_operators_need_parentheses_in_front_of_comparisons_as_in_python() {
    assert!(holds("(tcpi_options & 4) != 0"));
    // `&` binds tighter than `==` in Python, unlike in C.
    assert!(holds("tcpi_options & 4 == 4"));
    assert!(holds("1 << 4 | 1 == 17"));
    assert!(holds("~0 == -1"));
}

#[test]
fn division_floors_and_slash_gives_a_float() {
    assert!(holds("-7 // 2 == -4 and -7 % 2 == 1 and 7 / 2 == 3.5"));
    assert!(holds("2 ** 10 == 1024 and abs(-3) == 3 and min(4, 2, 3) == 2 and int(2.9) == 2"));
}

#[test]
fn membership_and_conditions_work() {
    assert!(holds("tcpi_snd_cwnd in (9, 10, 11) and 3 not in [1, 2]"));
    assert!(holds("(1 if tcpi_snd_cwnd > 5 else 0) == 1"));
}

#[test]
fn statements_are_parted_by_lines_and_semicolons_and_joined_by_backslashes() {
    let code = "low = 9; high = low; high += 2\nassert low < tcpi_snd_cwnd \\\n  < high, tcpi_snd_cwnd # fits\nprint(low)";
    assert_eq!(interpreter().run(code), Ok(()));
    assert_eq!(interpreter().run("assert (1 ==\n 1)"), Ok(()));
}

#[test]
fn variables_outlive_a_piece_of_code() {
    let mut interpreter = interpreter();
    interpreter.run("before = tcpi_snd_cwnd").unwrap();
    interpreter.set("tcpi_snd_cwnd", Value::Int(12));
    assert_eq!(interpreter.run("assert tcpi_snd_cwnd == before + 2"), Ok(()));
}

#[test]
fn a_failed_assertion_tells_its_message_and_its_names() {
    let message = error("assert tcpi_snd_cwnd == 11, 'cwnd %d' % tcpi_snd_cwnd");
    assert_eq!(message, "assertion failed: tcpi_snd_cwnd == 11 (cwnd 10), with tcpi_snd_cwnd = 10");
}

#[test]
fn what_is_not_known_is_named() {
    assert_eq!(error("import sys"), "Python's `import` is not supported");
    assert_eq!(error("assert tcpi_new_thing == 1"), "Python's variable `tcpi_new_thing` is not supported");
    assert_eq!(error("assert a.b"), "Python's `.` behind an expression is not supported");
    assert_eq!(error("assert nothing == 1"), "NameError: name `nothing` is not defined");
    assert_eq!(error("assert 1 +"), "SyntaxError: the statement ends too early");
    assert_eq!(error("assert 'a' < 1"), "TypeError: `<` is not defined for str and int");
    assert_eq!(error("x = 1 // 0"), "ZeroDivisionError: division by zero");
}

#[test]
fn deep_nesting_is_refused() {
    assert!(error(&format!("assert {}", "(".repeat(100_000))).contains("nesting"));
    for operators in
        ["-".repeat(100_000), "not ".repeat(100_000), "1 + ".repeat(100_000), "1 or ".repeat(100_000)]
    {
        assert!(error(&format!("assert {operators}1")).contains("so many operators"));
    }
}
