//! The memory pair: frames arrive whole and in order, and every frame finds its way home.

use clock::Instant;
use device::memory::{Config, MemoryDevice, pair};
use device::{BURST, Burst, Device};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use wire::{ChecksumPolicy, Endpoints, Envelope, parse_udp, turn_around, write_udp};

const NOW: Instant = Instant::ZERO;

fn send(device: &mut MemoryDevice, packet: &[u8]) -> bool {
    let Some(mut frame) = device.alloc() else { return false };
    frame.copy_from(packet);
    let mut burst = Burst::new();
    burst.push(frame);
    let sent = device.tx_burst(&mut burst, NOW) == 1;
    burst.drain(..).for_each(|frame| device.release(frame));
    sent
}

fn receive(device: &mut MemoryDevice) -> Burst {
    let mut burst = Burst::new();
    device.rx_burst(&mut burst, NOW);
    burst
}

fn query(source_port: u16) -> Vec<u8> {
    let source = std::net::SocketAddr::new([192, 0, 2, 1].into(), source_port);
    let endpoints = Endpoints::new(source, "192.0.2.53:53".parse().unwrap()).unwrap();
    let mut frame = [0; 128];
    let len = write_udp(&mut frame, &Envelope::untagged(endpoints), &source_port.to_be_bytes()).unwrap();
    frame[..len].to_vec()
}

fn one_queue_each() -> (MemoryDevice, MemoryDevice) {
    let (mut left, mut right) = pair(&Config { frames: 128, ring: 64, ..Config::default() });
    (left.remove(0), right.remove(0))
}

#[test]
fn packets_arrive_in_order() {
    let (mut left, mut right) = one_queue_each();
    assert!((0..5u8).all(|number| send(&mut left, &[number; 60])));
    assert!(!right.prepare_wait());
    let burst = receive(&mut right);
    assert_eq!(burst.iter().map(|frame| frame.bytes()[0]).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    burst.into_iter().for_each(|frame| right.release(frame));
    assert!(right.prepare_wait());
}

#[test]
fn a_question_is_answered_in_its_own_frame_which_then_goes_home() {
    let (mut left, mut right) = one_queue_each();
    send(&mut left, &query(4000));
    let mut burst = receive(&mut right);
    let (pool, index) = (burst[0].pool(), burst[0].index());
    let headers = parse_udp(burst[0].bytes(), ChecksumPolicy::default()).unwrap();
    turn_around(burst[0].bytes_mut(), &headers, 2, false);
    right.tx_burst(&mut burst, NOW);
    let mut burst = receive(&mut left);
    assert_eq!((burst[0].pool(), burst[0].index()), (pool, index));
    left.release(burst.pop().unwrap());
    assert_eq!((left.available(), right.available()), (128, 128));
}

#[test]
fn frames_released_abroad_come_home_when_the_pool_runs_dry() {
    let (mut left, mut right) = one_queue_each();
    for _ in 0..1000 {
        assert!(send(&mut left, b"one way"));
        receive(&mut right).into_iter().for_each(|frame| right.release(frame));
    }
    assert_eq!((left.available(), right.available()), (128, 128));
}

#[test]
fn a_full_ring_leaves_frames_with_the_sender() {
    let (mut left, mut right) = one_queue_each();
    assert_eq!((0..70).filter(|_| send(&mut left, b"x")).count(), 64);
    receive(&mut right).into_iter().for_each(|frame| right.release(frame));
    assert!(send(&mut left, b"x"));
    assert_eq!(left.counters().tx_frames, 65);
}

#[test]
fn a_dry_pool_gives_no_frame() {
    let (mut left, _right) = one_queue_each();
    let held: Vec<_> = std::iter::from_fn(|| left.alloc()).collect();
    assert_eq!(held.len(), 128);
    held.into_iter().for_each(|frame| left.release(frame));
    assert_eq!(left.available(), 128);
}

#[test]
fn a_flow_always_arrives_on_the_same_queue_and_flows_spread() {
    let (mut left, mut right) = pair(&Config { queues: [1, 4], ..Config::default() });
    let mut queue_of = vec![None; 200];
    for round in 0..2 {
        assert!((0..200).all(|port| send(&mut left[0], &query(4000 + port))));
        for (queue, device) in right.iter_mut().enumerate() {
            loop {
                let burst = receive(device);
                if burst.is_empty() {
                    break;
                }
                for frame in burst {
                    assert_eq!(usize::from(frame.queue), queue);
                    let port = parse_udp(frame.bytes(), ChecksumPolicy::default()).unwrap();
                    let port = usize::from(port.source(frame.bytes()).port()) - 4000;
                    let before = queue_of[port].replace(queue);
                    assert!(round == 0 || before == Some(queue));
                    device.release(frame);
                }
            }
        }
    }
    for queue in 0..4 {
        let share = queue_of.iter().filter(|&&of| of == Some(queue)).count();
        assert!((20..=80).contains(&share), "queue {queue} has {share} of 200 flows");
    }
    assert_eq!(left[0].available(), 1024);
}

#[test]
fn a_frame_of_a_stranger_is_copied_and_given_back() {
    let (mut left, mut right) = one_queue_each();
    let (mut stranger, _) = one_queue_each();
    let mut burst = Burst::new();
    for number in 0..3u8 {
        let mut frame = stranger.alloc().unwrap();
        frame.copy_from(&[number; 60]);
        burst.push(frame);
    }
    assert_eq!(left.tx_burst(&mut burst, NOW), 3);
    while let Some(frame) = left.take_foreign() {
        stranger.release(frame);
    }
    assert_eq!(stranger.available(), 128);
    let burst = receive(&mut right);
    assert_eq!(burst.iter().map(|frame| frame.bytes()[0]).collect::<Vec<_>>(), [0, 1, 2]);
    burst.into_iter().for_each(|frame| right.release(frame));
    assert_eq!(left.available(), 128);
}

#[test]
fn threads_lose_nothing() {
    const COUNT: u64 = 200_000;
    let (mut left, mut right) = one_queue_each();
    let sender = std::thread::spawn(move || {
        let mut sent = 0u64;
        while sent < COUNT {
            sent += u64::from(send(&mut left, &sent.to_be_bytes()));
        }
        left
    });
    let mut expected = 0u64;
    while expected < COUNT {
        for frame in receive(&mut right) {
            assert_eq!(frame.bytes(), expected.to_be_bytes());
            expected += 1;
            right.release(frame);
        }
    }
    assert_eq!(sender.join().unwrap().available(), 128);
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    /// Whatever is sent, answered, released or left lying: in the end every frame is at home.
    #[test]
    fn no_frame_is_ever_lost(steps in proptest::collection::vec((0usize..4, 0u8..4, 1usize..BURST), 1..200)) {
        let (left, right) = pair(&Config { queues: [2, 2], frames: 64, ring: 16, ..Config::default() });
        let mut ends: Vec<MemoryDevice> = left.into_iter().chain(right).collect();
        for (port, (end, action, count)) in steps.into_iter().enumerate() {
            let device = &mut ends[end];
            match action {
                0 | 1 => drop((0..count).take_while(|at| send(device, &query((port + at) as u16 + 1))).count()),
                2 => receive(device).into_iter().for_each(|frame| device.release(frame)),
                _ => {
                    let mut burst = receive(device);
                    device.tx_burst(&mut burst, NOW);
                    burst.drain(..).for_each(|frame| device.release(frame));
                }
            }
        }
        for _ in 0..8 {
            for device in &mut ends {
                receive(device).into_iter().for_each(|frame| device.release(frame));
            }
        }
        for device in &mut ends {
            prop_assert_eq!(device.available(), 64);
        }
    }
}
