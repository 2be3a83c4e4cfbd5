//! The kernel keeps everything that is not claimed, also when the server is busy.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use lab::{Kxdpgun, Lab, SERVER_V4, Side, Workload, Zone};

use crate::{PATIENCE, Setting, empty_lab, has_xdp_program};

const STREAM: usize = 4 << 20;

/// Octets that show where they belong.
pub(crate) fn stream() -> Vec<u8> {
    (0..STREAM).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

/// Sends the stream through a TCP connection to the server's namespace and takes it back.
pub(crate) fn tcp_echo(lab: &Lab) -> Vec<u8> {
    let listener = lab.inside(Side::Server, || TcpListener::bind((SERVER_V4, 7007)).unwrap());
    let echo = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut writer = stream.try_clone().unwrap();
        std::io::copy(&mut stream, &mut writer).unwrap();
    });
    let client = lab.inside(Side::Client, || TcpStream::connect((SERVER_V4, 7007)).unwrap());
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut reader, mut writer) = (client.try_clone().unwrap(), client);
    let sender = thread::spawn(move || {
        writer.write_all(&stream()).unwrap();
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    reader.read_to_end(&mut received).unwrap();
    sender.join().unwrap();
    echo.join().unwrap();
    received
}

#[test]
fn ping_and_a_tcp_stream_go_on_while_the_generator_runs_at_full_rate() {
    let directory = lab::Directory::new().unwrap();
    let questions = Workload::Address.prepare(&directory).unwrap();
    let Some(setting) = Setting::new(&questions.zone) else { return };
    let generator = Kxdpgun { seconds: 6, ..Kxdpgun::asking(&questions, 1_000_000) };
    let running = generator.start(&setting.lab).unwrap();
    thread::sleep(Duration::from_millis(1500)); // It has begun by then.
    // Until ten answers have come: beside such a load either kernel may drop one.
    setting.lab.run_in(Side::Client, "ping", &["-c10", "-i0.1", "-w60", SERVER_V4]).unwrap();
    assert!(tcp_echo(&setting.lab) == stream(), "the stream came back changed");
    let report = generator.finish(running).unwrap();
    assert!(report.replies > 10_000, "{}", report.text);
}

#[test]
fn the_interface_of_another_xdp_program_is_left_alone() {
    let Some((lab, _turn)) = empty_lab() else { return };
    let directory = lab::Directory::new().unwrap();
    let source = "__attribute__((section(\"xdp\"), used)) int others(void *context) { return 2; }\n\
                  char _license[] __attribute__((section(\"license\"), used)) = \"GPL\";\n";
    let source = directory.write("others.c", source).unwrap().display().to_string();
    let object = directory.path().join("others.o").display().to_string();
    lab.run_in(Side::Server, "clang", &["-O2", "-target", "bpf", "-c", &source, "-o", &object]).unwrap();
    lab.ip(Side::Server, &format!("link set dev veth-s xdp obj {object} sec xdp")).unwrap();

    let zone = Zone::sample().file.display().to_string();
    let mut command = lab.command(Side::Server, &lab::sidestep_binary().display().to_string());
    let control = directory.path().join("control.sock").display().to_string();
    command.args(["dns", "serve", "--device", "veth-s", "--zone", &zone, "--control", &control]);
    let mut server = lab::Child::spawn("sidestep", &mut command).unwrap();
    let complaint = server.wait_for_line("others", PATIENCE).unwrap();
    assert!(complaint.contains("veth-s") && complaint.contains("XDP program"), "{complaint}");
    server.end();
    assert!(has_xdp_program(&lab), "the other program stays");
}
