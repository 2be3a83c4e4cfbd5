use clock::Duration;

use super::{Definitions, Problem, parse};
use crate::pkt::ast::{
    Action, Body, Call, Direction, Ecn, Event, ExpressionKind, Flags, OptionSpec, OptionsSpec, PacketSpec,
    Quote, Script, SequenceRange, TcpSpec, When, flag,
};

fn script(text: &str) -> Script {
    parse(text, &Definitions::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn event(text: &str) -> Event {
    script(text).events.remove(0)
}

fn packet(text: &str) -> PacketSpec {
    match event(&format!("0 {text}")).action {
        Action::Packet(packet) => packet,
        other => panic!("{other:?}"),
    }
}

fn tcp(text: &str) -> TcpSpec {
    match packet(text).body {
        Body::Tcp(tcp) => tcp,
        other => panic!("{other:?}"),
    }
}

fn call(text: &str) -> Call {
    match event(text).action {
        Action::Call(call) => call,
        other => panic!("{other:?}"),
    }
}

fn problem(text: &str) -> String {
    parse(text, &Definitions::default()).unwrap_err().to_string()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn times_are_absolute_relative_ranges_or_any() {
    assert_eq!(event("0.25 > . 1:1(0)").when, When::At(ms(250)));
    assert_eq!(event("+.1 > . 1:1(0)").when, When::After(ms(100)));
    assert_eq!(event("1~1.5 > . 1:1(0)").when, When::Between(ms(1000), ms(1500)));
    assert_eq!(event("+0~+.2 > . 1:1(0)").when, When::AfterBetween(ms(0), ms(200)));
    assert_eq!(event("* > . 1:1(0)").when, When::Anytime);
}

#[test]
fn three_dots_behind_a_time_are_not_its_decimals() {
    let blocking = event("+0...0.010 connect(3, ..., ...) = 0");
    assert_eq!(blocking.when, When::After(ms(0)));
    assert_eq!(call("0.1...0.2 accept(3, ..., ...) = 4").end, Some(ms(200)));
}

#[test]
fn a_range_of_time_is_only_for_packets_that_are_expected() {
    assert!(problem("+0~+1 < . 1:1(0)").contains("only for packets that are expected"));
    assert!(problem("* close(3) = 0").contains("only for packets that are expected"));
    assert!(problem("+1~+0 > . 1:1(0)").contains("ends before it starts"));
}

#[test]
fn a_segment_has_flags_numbers_window_and_options() {
    let segment = tcp("< SEW 0:0(0) win 65535 <mss 1460,sackOK,TS val 100 ecr 0,nop,wscale 7>");
    assert_eq!(segment.flags.bits, u16::from(flag::SYN | flag::ECE | flag::CWR));
    assert_eq!(segment.window, Some(65535));
    let OptionsSpec::Exactly(options) = segment.options else { panic!("options are listed") };
    assert_eq!(options.len(), 5);
    assert_eq!(options[2], OptionSpec::Timestamps { value: Some(100), echo_reply: Some(0) });
    assert_eq!(options[4], OptionSpec::WindowScale(Some(7)));
}

#[test]
fn a_dot_is_the_ack_flag_and_a_digit_behind_it_the_ecn_counter() {
    let segment = tcp("> P. 1:1001(1000) ack 1");
    assert_eq!(segment.flags.bits, u16::from(flag::PSH | flag::ACK));
    assert_eq!(segment.sequence, SequenceRange { start: 1, len: 1000 });
    assert_eq!((segment.ack, segment.window), (1, None));
    let counter = tcp("> P.5 1:1(0)").flags;
    let expected = flag::AE | u16::from(flag::ECE | flag::PSH | flag::ACK);
    assert_eq!(counter, Flags { bits: expected, counts_ce: true });
    assert_eq!(tcp("> - 1:1(0)").flags.bits, 0);
}

#[test]
fn sequence_numbers_must_agree_and_may_wrap() {
    assert!(problem("0 > . 1:1001(999)").contains("1 and 999 octets do not make 1001"));
    assert_eq!(tcp("> . 4294967295:1(2)").sequence.start, u32::MAX);
}

#[test]
fn selective_acknowledgements_list_their_blocks() {
    let segment = tcp("< . 1:1(0) ack 1 win 257 <sack 2001:3001 4001:5001,nop,nop>");
    let OptionsSpec::Exactly(options) = segment.options else { panic!("options are listed") };
    assert_eq!(options[0], OptionSpec::Sack(vec![(2001, 3001), (4001, 5001)]));
}

#[test]
fn fast_open_cookies_are_hexadecimal_or_defined_names() {
    let mut definitions = Definitions::default();
    definitions.define("TFO_COOKIE=3021b9d8").unwrap();
    let text = "0 < S 0:10(10) win 1 <FO TFO_COOKIE,nop,nop,FO,FOEXP 01>";
    let Action::Packet(packet) = &parse(text, &definitions).unwrap().events[0].action else { panic!() };
    let Body::Tcp(TcpSpec { options: OptionsSpec::Exactly(options), .. }) = &packet.body else { panic!() };
    let cookie = vec![0x30, 0x21, 0xb9, 0xd8];
    assert_eq!(options[0], OptionSpec::FastOpen { cookie, experimental: false });
    assert_eq!(options[3], OptionSpec::FastOpen { cookie: Vec::new(), experimental: false });
    assert_eq!(options[4], OptionSpec::FastOpen { cookie: vec![1], experimental: true });
    assert!(problem("0 < S 0:0(0) win 1 <FO TFO_COOKIE>").contains("must be defined"));
}

#[test]
fn any_options_are_only_for_packets_that_are_expected() {
    assert_eq!(tcp("> . 1:1(0) ack 1 <...>").options, OptionsSpec::Any);
    assert!(problem("0 < . 1:1(0) ack 1 <...>").contains("only for packets that are expected"));
}

#[test]
fn an_ip_header_may_be_described_in_either_bracket() {
    assert_eq!(packet("> [ect0] . 1:1(0) ack 1").ip.ecn, Some(Ecn::Ect0));
    let ip = packet("< (tos 0x12, ttl 5) . 1:1(0) ack 1").ip;
    assert_eq!((ip.tos, ip.ttl), (Some(0x12), Some(5)));
    assert_eq!(packet("> [flowlabel 0x2] . 1:1(0)").ip.flow_label, Some(2));
}

#[test]
fn ports_may_stand_in_front_of_the_flags() {
    let packet = packet("< 40000 > 8080 S 0:0(0) win 100");
    assert_eq!((packet.direction, packet.ports), (Direction::Inbound, Some((40000, 8080))));
}

#[test]
fn udp_and_icmp_packets_are_known() {
    assert_eq!(packet("> udp (1000)").body, Body::Udp(1000));
    let Body::Icmp(icmp) = packet("< icmp unreachable frag_needed mtu 1400 [1:1461(1460)]").body else {
        panic!("an ICMP message")
    };
    assert_eq!((icmp.kind.as_str(), icmp.code.as_deref()), ("unreachable", Some("frag_needed")));
    assert_eq!((icmp.mtu, icmp.quote), (Some(1400), Quote::Tcp(SequenceRange { start: 1, len: 1460 })));
    let Body::Icmp(icmp) = packet("< icmp unreachable port_unreachable [udp (10)]").body else { panic!() };
    assert_eq!(icmp.quote, Quote::Udp(10));
    assert_eq!(script("0 < icmp unreachable\n+0 close(3) = 0").events.len(), 2);
}

#[test]
fn calls_have_arguments_results_and_errors() {
    let call = call("+0 accept(3, ..., ...) = -1 EAGAIN (Resource temporarily unavailable)");
    assert_eq!((call.name.as_str(), call.arguments.len()), ("accept", 3));
    assert_eq!(call.result.kind, ExpressionKind::Integer(-1));
    assert_eq!(call.errno.as_deref(), Some("EAGAIN"));
    assert!(call.arguments[1].is_ellipsis());
}

#[test]
fn a_note_behind_a_result_is_ignored() {
    let script = script("0 fcntl(3, F_GETFL) = 0x2 (flags O_RDWR|O_NONBLOCK)\n+0 close(3) = 0");
    assert_eq!(script.events.len(), 2);
}

#[test]
fn arguments_nest() {
    let text = "+0 sendmsg(4, {msg_name(...)=..., msg_iov(2)=[{..., 5}, {..., 6}], msg_flags=0,
                    msg_control=[{cmsg_level=SOL_TCP, cmsg_type=1, cmsg_data=[7]}]}, MSG_MORE|MSG_DONTWAIT) = 11";
    let call = call(text);
    let message = &call.arguments[1];
    let ExpressionKind::Array(vector) = &message.field("msg_iov").unwrap().kind else { panic!() };
    assert_eq!(vector.len(), 2);
    assert!(matches!(call.arguments[2].kind, ExpressionKind::Or(..)));
    let ExpressionKind::Array(control) = &message.field("msg_control").unwrap().kind else { panic!() };
    assert!(control[0].field("cmsg_type").is_some());
}

#[test]
fn definitions_stand_for_expressions() {
    let text = "--define=CC=\"reno\"\n0 setsockopt(3, SOL_TCP, TCP_CONGESTION, CC, 4) = 0";
    assert_eq!(call(text).arguments[3].kind, ExpressionKind::Text(b"reno".to_vec()));
    let mut given = Definitions::default();
    given.define("CC=\"bbr\"").unwrap();
    let Action::Call(call) = &parse(text, &given).unwrap().events[0].action else { panic!() };
    assert_eq!(call.arguments[3].kind, ExpressionKind::Text(b"bbr".to_vec()), "the command line wins");
}

#[test]
fn strings_stick_together_and_have_escapes() {
    let call = call(r#"0 write(3, "a\n" "\x41\"", 4) = 4"#);
    assert_eq!(call.arguments[1].kind, ExpressionKind::Text(b"a\nA\"".to_vec()));
}

#[test]
fn options_commands_and_code_surround_the_events() {
    let text = "// What it proves.\n--mss=1000\n--ip_version=ipv4\n`sysctl -q a=1\nsysctl -q b=2`\n\
                0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3 # three\n+0 `true` /* inline */\n\
                +0 %{ assert tcpi_rto == 3,\\\n tcpi_rto }%\n`restore`";
    let script = script(text);
    assert_eq!(script.options[0].value.as_deref(), Some("1000"));
    assert_eq!(script.setup.len(), 1);
    assert_eq!(script.cleanup[0].text, "restore");
    assert!(matches!(&script.events[2].action, Action::Code(code) if code.contains("tcpi_rto == 3")));
    assert_eq!(script.events[0].text, "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3");
}

#[test]
fn what_this_player_cannot_do_is_named_with_its_place() {
    let error = parse("\n0 < S 0:0(0) win 1 <mp_capable v1>", &Definitions::default()).unwrap_err();
    assert!(matches!(error.problem, Problem::Unsupported(_)));
    assert_eq!(error.to_string(), "2:21: TCP option mp_capable is not supported");
    assert_eq!(problem("0 > gre: . 1:1(0)"), "1:5: encapsulation in gre is not supported");
}

#[test]
fn errors_say_what_was_expected_and_what_came() {
    assert_eq!(problem("0 > . 1:1(0) ack x"), "1:18: an acknowledgement number expected, not `x`");
    assert_eq!(problem("0 close(3"), "1:10: `,` expected, not the end");
    assert_eq!(problem("0 `true"), "1:3: no ` ends what this one starts");
}

#[test]
fn nesting_without_end_is_refused() {
    let text = format!("0 f({}", "[".repeat(100_000));
    assert!(problem(&text).contains("so much nesting"));
}
