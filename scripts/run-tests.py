#!/usr/bin/env python3
"""Runs the tests that `cargo test` with the same arguments would run, two files of tests at a time: most wait rather than work.

    scripts/run-tests.py [--summary FILE] ARGUMENTS FOR CARGO...

Prints what each file says when it has ended. With SIDESTEP_REPEAT=1 up to three tests that failed are repeated, alone: what passes then is
unsteady. FILE gets three lines: how many passed, how many were ignored, the names of those that were unsteady. Exit status 1: a test failed.
"""

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import threading
import time

AT_A_TIME = 2
REPEATED_AT_MOST = 3
# What begins first: the file that needs most of the machine, beside one that only waits; then the other tests with hosts, which take longest, so that none of
# them is alone at the end.
FIRST = ["tests: tests/programs/", "tests: tests/audit/", "tests: "]

printing = threading.Lock()


class TestFile:
    """A file of tests: how it is called, the command that runs it, and where."""

    def __init__(self, name, command, directory):
        self.name, self.command, self.directory = name, command, directory
        self.output, self.passed, self.ignored, self.failed, self.crashed = "", 0, 0, [], False

    def run(self, names=()):
        """Runs all tests, or those with these names."""
        chosen = ["--exact", *names] if names else []
        began = time.monotonic()
        done = subprocess.run(
            self.command + chosen,
            cwd=self.directory,
            env={**os.environ, "CARGO_MANIFEST_DIR": self.directory},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self.output = done.stdout
        counts = re.findall(r"^test result: \w+\. (\d+) passed; \d+ failed; (\d+) ignored", self.output, re.MULTILINE)
        self.passed = sum(int(passed) for passed, _ in counts)
        self.ignored = sum(int(ignored) for _, ignored in counts)
        self.failed = re.findall(r"^test (\S+)(?: - .*)? \.\.\. FAILED$", self.output, re.MULTILINE)
        # Without a result at the end there are tests that never ran.
        self.crashed = done.returncode != 0 and not (counts and self.failed)
        with printing:
            print(f"\n     Running {self.name}, {time.monotonic() - began:.0f} s", flush=True)
            print(self.output, flush=True)
        return done.returncode == 0


def build(arguments):
    """Builds the tests and returns their files."""
    command = ["cargo", "test", *arguments, "--no-run", "--message-format", "json-render-diagnostics"]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        sys.exit(built.returncode)
    files = []
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") != "compiler-artifact" or not message["executable"] or not message["profile"]["test"]:
            continue
        directory = os.path.dirname(message["manifest_path"])
        name = f"{os.path.basename(directory)}: {os.path.relpath(message['target']['src_path'], directory)}"
        files.append(TestFile(name, [message["executable"]], directory))
    files.sort(key=lambda file: [not file.name.startswith(first) for first in FIRST])
    files.append(TestFile("examples in documentation", ["cargo", "test", "--doc", *arguments, "--"], os.getcwd()))
    return files


def repeat(files):
    """Repeats the tests that failed, if they are few. Returns their names, or None if that does not excuse them."""
    names = [name for file in files for name in file.failed]
    if os.environ.get("SIDESTEP_REPEAT", "0") == "0" or len(names) > REPEATED_AT_MOST or any(file.crashed for file in files):
        return None
    print(f"\n== again: {' '.join(names)}", flush=True)
    for file in files:
        again = TestFile(file.name, file.command, file.directory)
        if not again.run(file.failed) or again.passed != len(file.failed):
            return None  # Or some were not found by their names: examples in documentation have other ones.
    return names


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--summary")
    options, arguments = parser.parse_known_args()
    files = build(arguments)
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        good = list(pool.map(TestFile.run, files))
    bad = [file for file, is_good in zip(files, good) if not is_good]
    unsteady = repeat(bad) if bad else []
    if unsteady is None:
        for file in bad:
            print(f"FAILED in {file.name}: {' '.join(file.failed) or 'it ended without a result'}", file=sys.stderr)
        sys.exit(1)
    if options.summary:
        with open(options.summary, "w") as summary:
            passed = sum(file.passed for file in files) + len(unsteady)
            print(passed, sum(file.ignored for file in files), " ".join(unsteady), sep="\n", file=summary)


main()
