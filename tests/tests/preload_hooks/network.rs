//! Programs from elsewhere that talk over loopback.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::library::{With, scratch};

/// A server in Python that names its port in its first line.
const SERVER: &str = "
import functools, http.server, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
print(server.server_address[1], flush=True)
server.serve_forever()
";

/// CPython's own tests; those for VSOCK never end on a machine without it.
const SOCKET_TESTS: [&str; 6] = ["-m", "test", "-i", "*VSOCK*", "test_socket", "test_selectors"];

/// Runs of the tests with the library, in all of which one has to fail.
const TRIES: u32 = 3;

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn curl_gets_from_python() {
    let directory = scratch().join("served");
    std::fs::create_dir_all(&directory).unwrap();
    let content: Vec<u8> = (0..3_000_000u32).map(|place| ((place * 31) >> 7) as u8).collect();
    std::fs::write(directory.join("file"), &content).unwrap();
    for with in [With::Library, With::Mirror] {
        let mut command = Command::new("python3");
        command.args(["-c", SERVER]).arg(&directory).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = Server(with.apply(&mut command).spawn().unwrap());
        let mut port = String::new();
        BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let url = format!("http://127.0.0.1:{}/file", port.trim());
        for _ in 0..3 {
            let got = with.output("curl", &["-sS", &url]);
            assert!(got.stdout == content, "{with:?}: {} octets, {:?}", got.stdout.len(), got.stderr);
        }
    }
}

#[test]
fn pythons_socket_tests_pass_with_the_library() {
    assert_no_new_failure(With::Library);
}

#[test]
fn pythons_socket_tests_pass_with_the_mirror() {
    assert_no_new_failure(With::Mirror);
}

fn assert_no_new_failure(with: With) {
    let Some(python) = python_with_tests() else {
        lab::skip("needs CPython's tests (libpython3.11-testsuite)");
        return;
    };
    let mut failures = failures(with, python);
    if failures.is_empty() {
        return;
    }
    // Some fail on some machines, whatever is loaded; and some now and then, where other work is done.
    let expected = self::failures(With::Nothing, python);
    failures.retain(|failure| !expected.contains(failure));
    for _ in 1..TRIES {
        if !failures.is_empty() {
            let again = self::failures(with, python);
            failures.retain(|failure| again.contains(failure));
        }
    }
    assert!(failures.is_empty(), "{with:?}: {failures:#?}");
}

fn python_with_tests() -> Option<&'static str> {
    let has_tests = |python: &&str| {
        let output = With::Nothing.output(python, &["-c", "import test.test_socket"]);
        output.status.success()
    };
    ["/usr/bin/python3", "python3"].into_iter().find(has_tests)
}

/// The names of the tests that fail; a run that ends in another way is a failure by itself.
fn failures(with: With, python: &str) -> Vec<String> {
    let mut command = Command::new("timeout");
    command.args(["1200", python]).args(SOCKET_TESTS).current_dir(scratch());
    let output = with.apply(&mut command).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let named = |line: &str| line.starts_with("FAIL:") || line.starts_with("ERROR:");
    let mut failures: Vec<String> = text.lines().filter(|line| named(line)).map(str::to_owned).collect();
    if failures.is_empty() && !output.status.success() {
        failures.push(text);
    }
    failures
}
