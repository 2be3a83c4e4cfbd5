#!/usr/bin/env bash
# Instructions that the responder takes for one answer, and the stack for one segment, counted by callgrind: the same on every run,
# whatever else the machine does. The difference of two runs leaves out what it takes to begin.
#
# Usage: instructions.sh [answers [NAMES] | segments]; without arguments both.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v valgrind >/dev/null || { echo "instructions: valgrind is missing: make setup" >&2; exit 1; }
cargo build --quiet --release --package bench --bin responder --bin segments
binaries="${CARGO_TARGET_DIR:-$PWD/target}/release"

# collect [OPTION...] BINARY ARGUMENT...: instructions of one run.
collect() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>&1 | awk '/Collected/ { print $4 }'
}

answers() {
    local names=${1:-10000} less more
    less=$(collect "$binaries/responder" "$names" 128000)
    more=$(collect "$binaries/responder" "$names" 256000)
    echo "instructions an answer, $names names, type A, without EDNS: $(((more - less) / 128000))"
    less=$(collect "$binaries/responder" changed "$names" 128000)
    more=$(collect "$binaries/responder" changed "$names" 256000)
    echo "  in a zone in which 999 names were changed: $(((more - less) / 128000))"
    less=$(collect "$binaries/responder" engine "$names" 128000)
    more=$(collect "$binaries/responder" engine "$names" 256000)
    echo "  from frame to frame, by the engine: $(((more - less) / 128000))"
    for kind in lines networks plain-networks; do
        less=$(collect "$binaries/responder" "$kind" "$names" 128000 100000)
        more=$(collect "$binaries/responder" "$kind" "$names" 256000 100000)
        case $kind in
            lines) echo "  by the line of the client's address, of 100000 prefixes: $(((more - less) / 128000))" ;;
            networks) echo "  by the line of its EDNS client subnet: $(((more - less) / 128000))" ;;
            plain-networks) echo "  with EDNS client subnet, in a zone without lines: $(((more - less) / 128000))" ;;
        esac
    done
    for labels in 3 115; do
        less=$(collect "$binaries/responder" denials "$labels" 64000)
        more=$(collect "$binaries/responder" denials "$labels" 128000)
        echo "instructions to deny a name of $labels labels: $(((more - less) / 64000))"
    done
}

# each WHAT COUNT [OPTION...]: instructions for each of those that `segments WHAT` does.
each() {
    local what=$1 count=$2 less more
    less=$(collect "${@:3}" "$binaries/segments" "$what" "$count")
    more=$(collect "${@:3}" "$binaries/segments" "$what" $((2 * count)))
    echo $(((more - less) / count))
}

# path FUNCTION: instructions inside a function of `segments` for each segment, while every second is acknowledged.
path() {
    each pairs 20000 --toggle-collect="segments::Hosts::$1*"
}

segments() {
    echo "instructions of TCP, both sides together:"
    echo "  request and response of 64 octets, each with an acknowledgement: $(each transact 10000)"
    echo "  connection opened, used once and closed, 7 segments: $(each connect 4000)"
    echo "  1448 octets in bulk, copied in and out: $(each bulk 20000)"
    echo "instructions of one side:"
    echo "  to transmit a segment of 1448 octets: $(path client_transmits)"
    echo "  to receive it: $(path server_receives)"
    echo "  to transmit an acknowledgement of two: $((2 * $(path server_transmits)))"
    echo "  to receive it: $((2 * $(path client_receives)))"
}

case ${1:-both} in
    answers) answers "${@:2}" ;;
    segments) segments ;;
    both) answers && segments ;;
    *) echo "usage: instructions.sh [answers [NAMES] | segments]" >&2 && exit 2 ;;
esac
