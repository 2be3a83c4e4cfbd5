# Reads what `cargo test --no-fail-fast` has printed, and prints a line for each target that failed: what selects it, a tab, and the names of
# its failed tests. A target that ended without naming any has a line without names.
/^failures:$/ { names = "" }
/^    [^ ]+$/ { names = names (names == "" ? "" : " ") $1 }
/^test result: ok/ { names = "" }
/^error: test failed, to rerun pass `/ {
    target = $0
    gsub(/^[^`]*`|`.*$/, "", target)
    print target "\t" names
    names = ""
}
