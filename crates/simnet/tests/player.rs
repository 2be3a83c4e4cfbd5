//! What the player does with scripts that are right, wrong, or beyond it.

use simnet::pkt::ast::{Position, ScriptOption};
use simnet::pkt::parser::Definitions;
use simnet::pkt::{Finding, Report, Verdict, play};

const CONNECTED: &str = "
    0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
   +0 bind(3, ..., ...) = 0
   +0 listen(3, 1) = 0
   +0 < S 0:0(0) win 65535 <mss 1000,sackOK,nop,nop,nop,wscale 7>
   +0 > S. 0:0(0) ack 1 <...>
  +.1 < . 1:1(0) ack 1 win 512
   +0 accept(3, ..., ...) = 4
";

fn play_with(options: &[&str], text: &str) -> Report {
    let option = |text: &&str| {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let at = Position { line: 0, column: 0 };
        ScriptOption { name: name.to_owned(), value: Some(value.to_owned()), at }
    };
    let options: Vec<ScriptOption> = options.iter().map(option).collect();
    play(text, &options, &Definitions::default())
}

/// Plays what follows a connection.
fn connected(rest: &str) -> Report {
    play_with(&[], &format!("{CONNECTED}{rest}"))
}

fn failure(report: Report) -> Finding {
    match report.verdict {
        Verdict::Failed(finding) => finding,
        other => panic!("{other:?}"),
    }
}

fn unsupported(report: Report) -> String {
    match report.verdict {
        Verdict::Unsupported(finding) => finding.details.join("\n"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_difference_names_the_line_and_what_came_instead() {
    let finding = failure(connected("+0 write(4, ..., 100) = 100\n+0 > . 1:201(200) ack 1\n"));
    assert_eq!(finding.at.unwrap().line, 10);
    assert_eq!(finding.text, "+0 > . 1:201(200) ack 1");
    assert!(finding.details[0].starts_with("came at 0.100000: > P. 1:101(100) ack 1"), "{finding:?}");
    assert!(
        finding.details.iter().any(|line| line == "octets of payload: expected 200, came 100"),
        "{finding:?}"
    );
}

#[test]
fn a_packet_that_does_not_come_is_told() {
    let finding = failure(connected("+.5 > . 1:1(0) ack 1\n"));
    assert_eq!(finding.details, ["nothing came until 0.662500"], "half a second and its eighth");
}

#[test]
fn a_packet_at_another_time_is_told() {
    let finding = failure(connected("+0 write(4, ..., 100) = 100\n+.5 > P. 1:101(100) ack 1\n"));
    assert_eq!(finding.details[1], "time: expected 0.600000, came too early at 0.100000");
}

#[test]
fn a_packet_that_nobody_expected_stands_in_the_way_of_the_next() {
    let rest = "+0 write(4, ..., 100) = 100\n+.1 < . 1:1(0) ack 101 win 512\n+0 close(4) = 0\n+0 > F. 101:101(0) ack 1\n";
    let finding = failure(connected(rest));
    assert!(finding.details[0].contains("> P. 1:101(100)"), "{finding:?}");
}

#[test]
fn what_is_left_at_the_end_fails_only_on_request() {
    let text = format!("{CONNECTED}+0 write(4, ..., 100) = 100\n");
    assert!(play_with(&[], &text).passed());
    let finding = failure(play_with(&["check_rest"], &text));
    assert!(finding.details[0].contains("was not expected: > P. 1:101(100)"), "{finding:?}");
}

#[test]
fn segments_in_a_row_stand_for_one_unless_told_otherwise() {
    let text = format!("{CONNECTED}+0 write(4, ..., 3000) = 3000\n+0 > P. 1:3001(3000) ack 1\n");
    assert!(play_with(&[], &text).passed());
    assert!(!play_with(&["strict_segments"], &text).passed());
}

#[test]
fn results_and_errors_of_calls_are_compared() {
    let finding = failure(connected(
        "+0 fcntl(4, F_SETFL, O_NONBLOCK) = 0\n+0 read(4, ..., 10) = -1 EPIPE (Broken pipe)\n",
    ));
    let expected = "expected -1 EPIPE (Broken pipe), came -1 EAGAIN (Resource temporarily unavailable)";
    assert_eq!(finding.details, [expected]);
}

#[test]
fn a_call_that_blocks_without_end_is_told() {
    let finding = failure(connected("+0 read(4, ..., 10) = 10\n"));
    assert_eq!(finding.details, ["read() blocks, and nothing will ever end that"]);
    let finding = failure(connected("+0...0.1 read(4, ..., 10) = 10\n"));
    assert_eq!(finding.details, ["read() still blocks at the end of the script"]);
}

#[test]
fn a_call_that_returns_at_another_time_is_told() {
    let rest = "+0...0.2 read(4, ..., 10) = 10\n+.3 < P. 1:11(10) ack 1 win 512\n";
    let finding = failure(connected(rest));
    assert_eq!(finding.details, ["read() was to return at 0.300000, and returned at 0.400000"]);
    assert_eq!(finding.text, "+0...0.2 read(4, ..., 10) = 10", "told at the call, though others came since");
}

#[test]
fn differences_may_be_told_only() {
    let text = format!("{CONNECTED}+0 write(4, ..., 100) = 99\n+0 > P. 1:101(100) ack 2\n");
    let report = play_with(&["non_fatal=packet,syscall"], &text);
    assert!(report.passed());
    assert_eq!(report.notes.len(), 2, "{report:?}");
}

#[test]
fn assertions_see_the_connection_under_test() {
    assert!(connected("+0 %{ assert tcpi_state == TCP_ESTABLISHED and tcpi_snd_mss == 1000 }%\n").passed());
    let finding = failure(connected("+0 %{ assert tcpi_snd_mss == 1, 'mss' }%\n"));
    assert_eq!(finding.details, ["assertion failed: tcpi_snd_mss == 1 (mss), with tcpi_snd_mss = 1000"]);
}

#[test]
fn what_the_player_cannot_do_is_named() {
    assert_eq!(
        unsupported(connected("+0 splice(4, 0, 5, 0, 10, 0) = 10\n")),
        "system call splice() is not supported"
    );
    assert_eq!(unsupported(connected("+0 write(4, ..., 9) = WHAT\n")), "the name WHAT is not supported");
    let setup = format!("`iptables -A INPUT -j DROP`\n{CONNECTED}");
    assert_eq!(
        unsupported(play_with(&[], &setup)),
        "shell command `iptables -A INPUT -j DROP` is not supported"
    );
    assert_eq!(
        unsupported(play_with(&[], "`sysctl -q net.ipv4.tcp_ecn=3`\n0 close(3) = 0")),
        "sysctl tcp_ecn=3 is not supported"
    );
}

#[test]
fn what_is_not_of_the_language_is_no_failure_of_the_stack() {
    let report = connected("+0 < . 1:1(0) ack 1 win 9 { mut tcp mss }\n");
    let text = report.display("fuzzed").to_string();
    assert!(text.starts_with("fuzzed: NOT SUPPORTED\n  fuzzed:9:"), "{text}");
    assert!(text.contains("not understood: "), "{text}");
}

#[test]
fn what_a_null_pointer_cannot_take_stays_to_be_read() {
    let rest = "
   +0 < P. 1:101(100) ack 1 win 512
   +0 read(4, NULL, 100) = -1 EFAULT (Bad address)
   +0 recv(4, NULL, 100, 0) = -1 EFAULT (Bad address)
   +0 recv(4, NULL, 40, MSG_TRUNC) = 40
   +0 read(4, ..., 100) = 60
";
    let report = connected(rest);
    assert!(report.passed(), "{}", report.display("null"));
}

#[test]
fn writes_without_copies_are_told_in_the_error_queue() {
    let entry = |first, last| {
        format!(
            "+0 recvmsg(4, {{msg_name(...)=..., msg_iov(1)=[{{...,0}}], msg_flags=MSG_ERRQUEUE, msg_control=[{{
                cmsg_level=CMSG_LEVEL_IP, cmsg_type=CMSG_TYPE_RECVERR, cmsg_data={{ee_errno=0,
                ee_origin=SO_EE_ORIGIN_ZEROCOPY, ee_type=0, ee_code=SO_EE_CODE_ZEROCOPY_COPIED,
                ee_info={first}, ee_data={last}}}}}]}}, MSG_ERRQUEUE) = 0\n"
        )
    };
    let empty = "+0 recvmsg(4, {msg_name(...)=..., msg_iov(1)=[{...,0}], msg_flags=MSG_ERRQUEUE, msg_control=[]}, MSG_ERRQUEUE) = -1 EAGAIN (Resource temporarily unavailable)\n";
    let send = "+0 send(4, ..., 100, MSG_ZEROCOPY) = 100\n";
    let poll = |events| format!("+0 poll([{{fd=4, events=POLLOUT, revents={events}}}], 1, 0) = 1\n");
    let on = "+0 setsockopt(4, SOL_SOCKET, SO_ZEROCOPY, [1], 4) = 0\n";
    let rest = [
        send,
        empty,
        on,
        send,
        send,
        &poll("POLLOUT|POLLERR"),
        &entry(0, 1),
        &poll("POLLOUT"),
        send,
        &entry(2, 2),
        empty,
    ];
    let report = connected(&rest.concat());
    assert!(report.passed(), "{}", report.display("zero copy"));
    let wrong = connected(&[on, send, &entry(0, 5)].concat());
    assert_eq!(failure(wrong).details, ["ee_data: expected 5, came 0"]);
}

#[test]
fn times_in_the_error_queue_are_not_to_be_had() {
    let rest = "
   +0 setsockopt(4, SOL_SOCKET, SO_TIMESTAMPING, [SOF_TIMESTAMPING_TX_ACK | SOF_TIMESTAMPING_SOFTWARE], 4) = 0
   +0 send(4, ..., 100, 0) = 100
   +0 recvmsg(4, {msg_name(...)=..., msg_iov(1)=[{...,0}], msg_flags=MSG_ERRQUEUE}, MSG_ERRQUEUE) = 0
";
    assert_eq!(unsupported(connected(rest)), "times in the error queue of a socket is not supported");
}

#[test]
fn the_low_water_of_what_is_not_sent_reads_as_it_was_set() {
    let rest = "
   +0 getsockopt(4, SOL_TCP, TCP_NOTSENT_LOWAT, [0], [4]) = 0
   +0 setsockopt(4, SOL_TCP, TCP_NOTSENT_LOWAT, [0xffffffff], 4) = 0
   +0 getsockopt(4, SOL_TCP, TCP_NOTSENT_LOWAT, [0xffffffff], [4]) = 0
   +0 getsockopt(4, SOL_TCP, TCP_NOTSENT_LOWAT, [-1], [4]) = 0
";
    let sysctl = "`sysctl -q net.ipv4.tcp_notsent_lowat=4000`\n";
    let report = play_with(&[], &format!("{sysctl}{CONNECTED}{rest}"));
    assert!(report.passed(), "{}", report.display("low water"));
}

#[test]
fn large_segments_arrive_cut_to_the_size_that_an_option_says() {
    let rest = "
   +0 < P. 1:3501(3500) ack 1 win 512
   +0 > . 1:1(0) ack 3501
   +0 %{ assert tcpi_rcv_mss == 1000 and tcpi_data_segs_in == 4, tcpi_data_segs_in }%
   +0 read(4, ..., 9999) = 3500
   +0 < F. 3501:4701(1200) ack 1 win 512
   +0 > . 1:1(0) ack 4702
";
    let report = play_with(&["mss=1000"], &format!("{CONNECTED}{rest}"));
    assert!(report.passed(), "{}", report.display("cut"));
}

#[test]
fn nothing_leaves_by_a_queue_without_room() {
    let rest = "
   +0 `tc qdisc replace dev tun0 root pfifo limit 0`
   +0 write(4, ..., 100) = 100
   +0 `tc qdisc replace dev tun0 root pfifo`
  +.3 > P. 1:101(100) ack 1
   +0 %{ assert tcpi_total_retrans == 1, tcpi_total_retrans }%
";
    let report = connected(rest);
    assert!(report.passed(), "{}", report.display("lost"));
}

#[test]
fn a_connecting_socket_takes_a_port_of_its_range() {
    let text = "
    0 socket(..., SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_TCP) = 3
   +0 setsockopt(3, SOL_IP, IP_LOCAL_PORT_RANGE, [0x12351234], 4) = 0
   +0 connect(3, ..., ...) = -1 EINPROGRESS (Operation now in progress)
   +0 > 4660 > 8080 S 0:0(0) <...>
   +0 socket(..., SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_TCP) = 4
   +0 setsockopt(4, SOL_IP, IP_LOCAL_PORT_RANGE, [0x12351234], 4) = 0
   +0 connect(4, ..., ...) = -1 EINPROGRESS (Operation now in progress)
   +0 > 4661 > 8080 S 0:0(0) <...>
   +0 socket(..., SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_TCP) = 5
   +0 setsockopt(5, SOL_IP, IP_LOCAL_PORT_RANGE, [0x12351234], 4) = 0
   +0 connect(5, ..., ...) = -1 EADDRNOTAVAIL (Cannot assign requested address)
";
    let report = play_with(&[], text);
    assert!(report.passed(), "{}", report.display("range"));
}

#[test]
fn sysctls_reach_the_stack() {
    let text = CONNECTED.replace("<...>", "<mss 1460>");
    let sysctls = "`sysctl -q net.ipv4.tcp_sack=0 net.ipv4.tcp_window_scaling=0`\n";
    let report = play_with(&[], &format!("{sysctls}{text}"));
    assert!(report.passed(), "{report:?}");
}

#[test]
fn ipv6_scripts_are_the_same_scripts() {
    for version in ["ip_version=ipv6", "ip_version=ipv4-mapped-ipv6"] {
        let text = format!("{CONNECTED}+0 write(4, ..., 100) = 100\n+0 > P. 1:101(100) ack 1\n");
        let report = play_with(&[version], &text);
        assert!(report.passed(), "{version}: {report:?}");
    }
}

#[test]
fn a_descriptor_that_is_not_there_is_told() {
    assert_eq!(failure(play_with(&[], "0 read(7, ..., 1) = 0")).details, ["there is no descriptor 7"]);
}

#[test]
fn datagrams_go_both_ways_and_icmp_tells_of_a_closed_port() {
    let text = "
    0 socket(..., SOCK_DGRAM, IPPROTO_UDP) = 3
   +0 bind(3, ..., ...) = 0
   +0 connect(3, ..., ...) = 0
   +0 write(3, ..., 1000) = 1000
   +0 > udp (1000)
  +.1 < udp (500)
   +0 read(3, ..., 9999) = 500
   +0 fcntl(3, F_SETFL, O_NONBLOCK) = 0
   +0 read(3, ..., 9999) = -1 EAGAIN (Resource temporarily unavailable)
   +0 < icmp unreachable port_unreachable [udp (1000)]
   +0 read(3, ..., 9999) = -1 ECONNREFUSED (Connection refused)
   +0 close(3) = 0
";
    for version in ["ip_version=ipv4", "ip_version=ipv6"] {
        let report = play_with(&[version], text);
        assert!(report.passed(), "{}", report.display(version));
    }
}

#[test]
fn a_datagram_socket_sends_without_being_connected() {
    let text = "
    0 socket(..., SOCK_DGRAM, IPPROTO_UDP) = 3
   +0 sendto(3, ..., 100, 0, ..., ...) = 100
   +0 > udp (100)
   +0...0.2 recvfrom(3, ..., 10, 0, ..., ...) = 10
  +.2 < udp (50)
";
    let report = play_with(&[], text);
    assert!(report.passed(), "{}", report.display("datagram"));
}

#[test]
fn the_fast_open_cookie_of_scripts_stands_for_the_stacks() {
    let text = "
    0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
   +0 bind(3, ..., ...) = 0
   +0 setsockopt(3, SOL_TCP, TCP_FASTOPEN, [5], 4) = 0
   +0 listen(3, 5) = 0
   +0 < S 0:100(100) win 65535 <mss 1000,FO TFO_COOKIE,nop,nop>
   +0 > S. 0:0(0) ack 101 <...>
   +0 accept(3, ..., ...) = 4
   +0 read(4, ..., 1000) = 100
";
    let report = play_with(&["ip_version=ipv4"], text);
    assert!(report.passed(), "{}", report.display("fast open"));
    let other = text.replace("TFO_COOKIE", "0011223344556677");
    assert!(!play_with(&[], &other).passed(), "any other cookie is wrong");
}

#[test]
fn data_waits_for_the_cookie_of_a_server_that_is_not_known() {
    let text = "
    0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
   +0...0.1 sendto(3, ..., 500, MSG_FASTOPEN, ..., ...) = 500
   +0 > S 0:0(0) <...>
  +.1 < S. 0:0(0) ack 1 win 65535 <mss 1000,FO 1122334455667788,nop,nop>
   +0 > . 1:1(0) ack 1
   +0 > P. 1:501(500) ack 1
  +.1 < . 1:1(0) ack 501 win 65535
   +0 close(3) = 0
   +0 > F. 501:501(0) ack 1
  +.1 < F. 1:1(0) ack 502 win 65535
   +0 > . 502:502(0) ack 2

// The second time the data goes with the SYN.
   +0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 4
   +0 fcntl(4, F_SETFL, O_NONBLOCK) = 0
   +0 setsockopt(4, SOL_TCP, TCP_FASTOPEN_CONNECT, [1], 4) = 0
   +0 connect(4, ..., ...) = 0
   +0 write(4, ..., 500) = 500
   +0 > S 0:500(500) <...>
  +.1 < S. 0:0(0) ack 501 win 65535 <mss 1000>
   +0 > . 501:501(0) ack 1
";
    let report = play_with(&[], text);
    assert!(report.passed(), "{}", report.display("fast open"));
}

#[test]
fn a_blocked_write_goes_on_when_the_buffer_is_a_third_free() {
    let rest = "
   +0 setsockopt(4, SOL_SOCKET, SO_SNDBUF, [14000], 4) = 0
   +0...0.1 write(4, ..., 38000) = 38000
  +.1 < . 1:1(0) ack 10001 win 512
";
    let report = connected(rest);
    assert!(report.passed(), "{}", report.display("write"));
}

#[test]
fn a_failed_connection_is_still_known_to_code() {
    let text = "
    0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
   +0...0.1 connect(3, ..., ...) = -1 ECONNREFUSED (Connection refused)
   +0 > S 0:0(0) <...>
  +.1 < R. 0:0(0) ack 1 win 0
   +0 %{ assert tcpi_state == TCP_CLOSE }%
";
    let report = play_with(&[], text);
    assert!(report.passed(), "{}", report.display("refused"));
}

#[test]
fn counters_are_looked_at_as_nstat_does() {
    let rest = "+0 `nstat > /dev/null`\n+0 < icmp unreachable [5000:6000(1000)]\n+0 `nstat | grep TcpExtOutOfWindowIcmps`\n";
    assert!(connected(rest).passed());
    let finding = failure(connected("+0 `nstat > /dev/null`\n+0 `nstat | grep TcpExtTCPTimeouts`\n"));
    assert_eq!(finding.details, ["counter TcpExtTCPTimeouts has not grown"]);
}
