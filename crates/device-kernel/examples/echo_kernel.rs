//! Echoes UDP datagrams through the Device trait: `cargo run --release --example echo_kernel -- 127.0.0.1:7777`.
//!
//! With `--flood N` it also asks itself `N` times from a thread and tells the rate.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use device::{Burst, Device};
use device_kernel::{Config, KernelSockets};
use rustix::event::{PollFd, PollFlags, poll};
use wire::{ChecksumPolicy, parse_udp, turn_around};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:7777".into());
    let flood = arguments.nth(1).map(|count| count.parse::<usize>()).transpose()?;
    let mut device = KernelSockets::open(Config { listen: vec![address.parse()?], ..Config::default() })?;
    let server = device.local_addrs().next().expect("one was opened");
    println!("echoing on {server}");
    match flood {
        None => loop {
            sleep(&mut device)?;
            serve(&mut device);
        },
        Some(count) => {
            let client = std::thread::spawn(move || ask(server, count));
            while !client.is_finished() {
                serve(&mut device);
            }
            let rate = client.join().expect("the client does not panic");
            println!("{rate:.0} replies a second; {:?}", device.counters());
        }
    }
    Ok(())
}

/// One turn: receives a burst, answers each datagram with itself.
fn serve(device: &mut KernelSockets) {
    const VERIFIED: ChecksumPolicy = ChecksumPolicy { verified: true, accept_partial: false };
    let mut burst = Burst::new();
    device.rx_burst(&mut burst, clock::Instant::ZERO);
    let mut replies = Burst::new();
    for mut frame in burst {
        match parse_udp(frame.bytes(), VERIFIED) {
            Ok(headers) => {
                let payload_len = headers.payload_range().len();
                let len = turn_around(frame.bytes_and_tailroom_mut(), &headers, payload_len, true);
                frame.set_len(len);
                replies.push(frame);
            }
            Err(_) => device.release(frame),
        }
    }
    device.tx_burst(&mut replies, clock::Instant::ZERO);
    replies.drain(..).for_each(|frame| device.release(frame)); // No room: lost, as on any network.
}

fn sleep(device: &mut KernelSockets) -> std::io::Result<()> {
    let mut fds = Vec::new();
    if device.prepare_wait() {
        device.wait_fds(&mut fds);
        let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        poll(&mut polled, None)?;
    }
    Ok(())
}

/// Keeps 64 questions under way until `count` are answered; returns replies a second.
fn ask(server: SocketAddr, count: usize) -> f64 {
    let client = UdpSocket::bind((server.ip(), 0)).expect("a free port");
    client.connect(server).expect("a route to ourselves");
    client.set_read_timeout(Some(Duration::from_millis(100))).expect("a valid timeout");
    let start = Instant::now();
    let mut answered = 0;
    (0..64).for_each(|_| drop(client.send(&[0x5a; 40])));
    while answered < count {
        answered += usize::from(client.recv(&mut [0; 64]).is_ok());
        drop(client.send(&[0x5a; 40]));
    }
    answered as f64 / start.elapsed().as_secs_f64()
}
