//! `sidestep dns query`: what people see of an answer, and what they are told when there is none.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::Output;

use lab::Directory;
use tests::{Serving, command, make_certificate};

/// A name with one address, one with a set that fits no datagram, and data of types that few programs know.
fn zone(directory: &Directory) -> String {
    let long =
        (0..30).map(|number| format!("long TXT \"{number} {}\"\n", "x".repeat(60))).collect::<String>();
    let text = format!(
        "$ORIGIN example.com.\n@ 60 SOA ns host 1 2 3 4 5\n@ 60 NS ns\nns 60 A 192.0.2.53\nwww 60 A 192.0.2.1\n\
         alias 60 CNAME www\nsvc 60 HTTPS 1 . alpn=h2,h3 port=8443\nnew 60 TYPE65280 \\# 2 abcd\n{long}"
    );
    directory.write("example.com.zone", &text).unwrap().display().to_string()
}

fn serve() -> Serving {
    let directory = Directory::new().unwrap();
    let zone = zone(&directory);
    Serving::start_in(directory, &["--zone", &zone], &[])
}

fn query(server: SocketAddr, words: &str) -> Output {
    let (at, port) = (format!("@{}", server.ip()), server.port().to_string());
    let words: Vec<&str> = words.split_whitespace().collect();
    command(&[&["dns", "query", &at, "-p", &port], &words[..]].concat())
}

fn answer(server: SocketAddr, words: &str) -> String {
    let output = query(server, words);
    assert!(output.status.success(), "{words}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_answer_is_shown_as_zone_files_have_it() {
    let server = serve();
    for address in [server.v4, server.v6] {
        let text = answer(address, "www.example.com");
        assert!(text.starts_with(";; NOERROR, flags qr aa rd, id "), "{text}");
        assert!(text.contains("\n;www.example.com. IN A\n"), "{text}");
        assert!(text.contains("\n;; answer\nwww.example.com. 60 IN A 192.0.2.1\n"), "{text}");
        assert!(text.contains(&format!("from {address} over UDP in ")), "{text}");
    }
    assert!(answer(server.v4, "nobody.example.com").starts_with(";; NXDOMAIN, "));
    let soa = "example.com. 60 IN SOA ns.example.com. host.example.com. 1 2 3 4 5";
    assert!(answer(server.v4, "soa example.com").contains(soa));
}

#[test]
fn a_short_answer_is_its_data_and_nothing_else() {
    let server = serve();
    assert_eq!(answer(server.v4, "alias.example.com +short"), "www.example.com.\n192.0.2.1\n");
    assert_eq!(answer(server.v4, "svc.example.com HTTPS +short"), "1 . alpn=\"h2,h3\" port=8443\n");
    assert_eq!(answer(server.v4, "new.example.com TYPE65280 +short"), "\\# 2 ABCD\n");
    assert_eq!(answer(server.v4, "nobody.example.com +short"), "");
}

#[test]
fn what_fits_no_datagram_is_asked_for_again_over_tcp() {
    let server = serve();
    let whole = answer(server.v4, "long.example.com TXT");
    assert_eq!(whole.matches("IN TXT").count(), 30 + 1, "{whole}");
    assert!(whole.contains("over TCP"), "{whole}");
    let cut = answer(server.v4, "long.example.com TXT +ignore");
    assert!(cut.contains("flags qr aa tc rd") && cut.contains("over UDP"), "{cut}");
}

#[test]
fn scripts_get_the_json_of_rfc_8427() {
    let server = serve();
    let text = answer(server.v4, "www.example.com +json");
    for part in [
        "\"QNAME\": \"www.example.com.\"",
        "\"rdataA\": \"192.0.2.1\"",
        "\"RCODEname\": \"NOERROR\"",
        "\"ANCOUNT\": 1",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn no_answer_is_an_error_that_says_whom_it_asked_and_how() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (server, words, expected) in [
        (address, ". +timeout=1", format!("{address} over UDP: no answer within 3 s")),
        (closed, ". +tcp", format!("{closed} over TCP: Connection refused")),
        (closed, ". +shrot", "+shrot: no such option".to_owned()),
        (closed, "a..b", "a..b: ".to_owned()),
        (closed, ". +tls +tls-ca=/nowhere", "/nowhere: no certificates".to_owned()),
    ] {
        let output = query(server, words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{words}: {said}");
        assert!(said.contains(&expected), "{words}: {said}");
    }
}

#[test]
fn an_answer_to_another_question_is_passed_over() {
    let forger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = forger.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let mut buffer = [0; 512];
        let (len, client) = forger.recv_from(&mut buffer).unwrap();
        buffer[2] |= 0x80;
        let mut wrong_id = buffer;
        wrong_id[0] ^= 1;
        wrong_id[3] |= 3; // NXDOMAIN.
        let mut wrong_name = buffer;
        wrong_name[13] ^= 1;
        for reply in [wrong_id, wrong_name, buffer] {
            forger.send_to(&reply[..len], client).unwrap();
        }
    });
    let text = answer(address, "www.example.com +noedns");
    thread.join().unwrap();
    assert!(text.starts_with(";; NOERROR") && text.contains(";www.example.com. IN A"), "{text}");
}

#[test]
fn an_answer_that_is_cut_inside_a_record_is_asked_for_again_over_tcp() {
    // The port that TCP gets may be taken by somebody's UDP.
    let pair = std::iter::repeat_with(|| {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        UdpSocket::bind(tcp.local_addr().unwrap()).map(|udp| (tcp, udp))
    });
    let (tcp, udp) = pair.take(10).find_map(Result::ok).unwrap();
    let address = udp.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let mut buffer = [0; 512];
        let (len, client) = udp.recv_from(&mut buffer).unwrap();
        (buffer[2], buffer[7]) = (0x82, 1); // Cut, with a record of which nothing came.
        udp.send_to(&buffer[..len], client).unwrap();
        let (mut stream, _) = tcp.accept().unwrap();
        let mut question = vec![0; len + 2];
        stream.read_exact(&mut question).unwrap();
        question[4] |= 0x80;
        stream.write_all(&question).unwrap();
    });
    let text = answer(address, "www.example.com +noedns");
    thread.join().unwrap();
    assert!(text.contains("over TCP"), "{text}");
}

/// OpenSSL makes them so by default: they may sign others, too.
#[test]
fn a_certificate_that_has_signed_itself_is_one_that_nobody_vouches_for() {
    let directory = Directory::new().unwrap();
    make_certificate(&directory, "ns.test");
    directory.write("one.test.zone", "@ 60 SOA ns h 1 2 3 4 5\n").unwrap();
    let text = "[[zone]]\nfile = \"one.test.zone\"\n[encrypted]\ncertificate = \"certificate.pem\"\nkey = \"key.pem\"\n\
                quic = [\"127.0.0.1:0\"]\ntls = [\"127.0.0.1:0\"]\n";
    let config = directory.write("dns.toml", text).unwrap().display().to_string();
    let server = Serving::start_in(directory, &["--config", &config], &[]);
    for (prefix, option) in [("quic://", "+quic"), ("tls://", "+tls")] {
        let address = server.ready.split_whitespace().find_map(|word| word.strip_prefix(prefix)).unwrap();
        let output = query(address.trim_end_matches(',').parse().unwrap(), &format!("one.test SOA {option}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("UnknownIssuer") && !output.status.success(), "{said}");
    }
}
