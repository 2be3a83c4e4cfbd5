//! CPython's own tests of sockets under `sidestep run`, at 127.0.0.1, which stays the kernel's, and at the address of the interface, whose
//! listeners are accelerated and whose connections come by the kernel, as peer and program are on one host.
//!
//! A test that fails under `sidestep run` has to fail on the kernel too.

use std::collections::BTreeSet;
use std::time::Duration;

use lab::programs::{Network, python_suite};
use lab::{SERVER_V4, Side};

use crate::trial::Trial;

/// Time for all of them, on a machine that does other work too.
const SUITE_MAX: Duration = Duration::from_secs(1800);

/// What there is to run: the tests of asyncio apart, so that several can run at a time.
fn modules() -> String {
    let directory =
        std::fs::read_dir("/usr/lib/python3.11/test/test_asyncio").expect("libpython3.11-testsuite");
    let names = directory.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let asyncio = names.filter_map(|name| {
        let name = name.strip_suffix(".py")?;
        name.starts_with("test_").then(|| format!("test_asyncio.{name}"))
    });
    let mut modules: Vec<String> = asyncio.collect();
    modules.sort();
    modules.splice(0..0, ["test_socket", "test_ssl", "test_selectors"].map(str::to_owned));
    modules.join(" ")
}

/// Runs tests on a network, at an address of the host; returns how many were run, and which of them failed.
fn run(trial: &Trial, network: &Network, host: &str, arguments: &str) -> (usize, BTreeSet<String>) {
    let program = python_suite(host, arguments).on_cores("0,1");
    let mut running = program.start(&trial.lab, Side::Server, network).unwrap();
    running.process.wait(SUITE_MAX).unwrap_or_else(|error| panic!("{error}"));
    let results = running.read("results.xml");
    let output = running.process.output();
    assert!(!results.is_empty(), "{output}");
    let mut failed = failures(&results);
    // A module that could not even be run to its end has no line of its own there.
    let crashed =
        output.lines().filter_map(|line| line.trim().split_once(" crashed")).map(|(module, _)| module);
    failed.extend(crashed.filter_map(|module| module.rsplit(' ').next()).map(str::to_owned));
    let count = results.matches("<testcase ").count();
    if count == 0 {
        println!("{output}");
    }
    (count, failed)
}

/// The names of the tests that failed, in JUnit's XML. Why they did is printed: it may not happen again.
fn failures(results: &str) -> BTreeSet<String> {
    let cases = results.split("<testcase ").skip(1);
    let failed = cases.filter(|case| case.contains("<failure") || case.contains("<error"));
    let failed = failed.inspect(|case| println!("{case}"));
    failed.filter_map(|case| case.split("name=\"").nth(1)?.split('"').next()).map(str::to_owned).collect()
}

#[test]
fn the_tests_of_cpython_find_no_difference() {
    let Some(trial) = Trial::of("CPython tests") else { return };
    find_no_difference(&trial, "127.0.0.1", &modules(), 3000);
    // The other modules name 127.0.0.1 themselves.
    find_no_difference(&trial, SERVER_V4, "test_socket", 500);
}

fn find_no_difference(trial: &Trial, host: &str, modules: &str, count_min: usize) {
    let (count, failed) = run(trial, &trial.network, host, &format!("-j4 {modules}"));
    assert!(count > count_min, "only {count} tests were run at {host}");
    println!("{count} tests at {host}, failed: {failed:?}");
    if trial.network == Network::Kernel {
        return; // What fails there is what is to be expected.
    }
    let ours: Vec<String> = failed.into_iter().filter(|test| !fails_on_kernel(trial, host, test)).collect();
    assert!(ours.is_empty(), "fail under `sidestep run` only, at {host}: {ours:#?}");
    trial.assert_nothing_left("");
}

fn fails_on_kernel(trial: &Trial, host: &str, test: &str) -> bool {
    let arguments = format!("-m {test} {}", module_of(test));
    !run(trial, &Network::Kernel, host, &arguments).1.is_empty()
}

/// `test.test_asyncio.test_events.Class.test` is in `test_asyncio.test_events`.
fn module_of(test: &str) -> String {
    let words =
        test.trim_start_matches("setUpClass (").trim_end_matches(')').trim_start_matches("test.").split('.');
    words.take_while(|word| word.starts_with("test_")).collect::<Vec<_>>().join(".")
}

#[test]
fn the_module_of_a_test_is_known() {
    assert_eq!(module_of("test.test_asyncio.test_events.EPollTests.test_close"), "test_asyncio.test_events");
    assert_eq!(module_of("setUpClass (test.test_socket.ThreadedVSOCKSocketStreamTest)"), "test_socket");
    let xml = "<testcase name=\"a.b\" time=\"1\"/><testcase name=\"a.c\"><failure>no</failure></testcase>";
    assert_eq!(failures(xml), BTreeSet::from(["a.c".to_owned()]));
}
