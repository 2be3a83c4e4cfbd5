//! Processes that share a queue, and a kernel, in one process.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use device::Burst;

use super::*;
use crate::fuse::{kill_after, silence};
use crate::ring::memory::RingMemory;

const SLOTS: u32 = 1024;
const SLOT_SIZE: u16 = 2048;
const RING: u32 = 128;

/// The memory of a queue, and all rings on it.
struct Queue {
    memory: File,
    area: OwnedFd,
    fill: RingMemory<u64>,
    completion: RingMemory<u64>,
    places: Vec<(RingMemory<Descriptor>, RingMemory<Descriptor>)>,
}

impl Queue {
    fn new(places: usize) -> Queue {
        let octets = SLOTS as usize * usize::from(SLOT_SIZE);
        let area = Area::create(SLOTS).unwrap();
        let ring = || RingMemory::new(RING, 0);
        Queue {
            memory: Region::memfd(c"test", octets).unwrap().into_memfd().unwrap().into(),
            area,
            fill: RingMemory::new(RING, 0),
            completion: RingMemory::new(RING, 0),
            places: (0..places).map(|_| (ring(), ring())).collect(),
        }
    }

    /// A process in a place: its memory, and its view of the rings.
    fn enter(&self, place: usize) -> (SharedUmem, QueueRings) {
        let file = Area::enter(self.area.as_fd(), place as u8).unwrap();
        let area = Area::map(file, SLOTS, place as u16).unwrap();
        let octets = SLOTS as usize * usize::from(SLOT_SIZE);
        // SAFETY: all pools of this memory are those of `SharedUmem`s with one area.
        let region = unsafe { Region::shared(&self.memory, octets) }.unwrap();
        // SAFETY: as above.
        let umem = unsafe { SharedUmem::new(region, SLOT_SIZE, area) };
        let (rx, tx) = &self.places[place];
        let rings = QueueRings {
            fill: Producer::new(self.fill.side()),
            completion: Consumer::new(self.completion.side()),
            rx: Consumer::new(rx.side()),
            tx: Producer::new(tx.side()),
            invalid: 0,
            chain: crate::chain::Chain::default(),
        };
        (umem, rings)
    }

    fn kernel(&self) -> Kernel {
        let places = self.places.iter();
        Kernel {
            fill: Consumer::new(self.fill.side()),
            completion: Producer::new(self.completion.side()),
            places: places.map(|(rx, tx)| (Producer::new(rx.side()), Consumer::new(tx.side()))).collect(),
        }
    }

    /// An observer of the area, in a place that nobody else uses.
    fn observer(&self) -> Area {
        let place = PLACES - 1;
        Area::map(Area::enter(self.area.as_fd(), place as u8).unwrap(), SLOTS, place).unwrap()
    }
}

const PLACES: u16 = crate::shared::PLACES_MAX;

/// The kernel's ends of all rings.
struct Kernel {
    fill: Consumer<u64>,
    completion: Producer<u64>,
    places: Vec<(Producer<Descriptor>, Consumer<Descriptor>)>,
}

impl Kernel {
    /// Receives a packet for the process in a place, if there is room.
    fn deliver(&mut self, place: usize) -> bool {
        let (rx, _) = &mut self.places[place];
        if rx.room(1) == 0 || self.fill.waiting() == 0 {
            return false;
        }
        let slot = self.fill.pop().unwrap();
        self.fill.release();
        assert!(slot.is_multiple_of(u64::from(SLOT_SIZE)), "an address that nobody wrote: {slot}");
        rx.push(Descriptor { address: slot + 256, len: 60, options: 0 });
        rx.publish();
        true
    }

    /// Sends what is in the transmit ring of a place, as far as it can tell of it; returns how much that was.
    fn transmit(&mut self, place: usize) -> u32 {
        let (_, tx) = &mut self.places[place];
        let count = tx.waiting().min(self.completion.room(RING));
        for descriptor in (0..count).map_while(|_| tx.pop()) {
            self.completion.push(descriptor.address);
        }
        tx.release();
        self.completion.publish();
        count
    }
}

/// A process, and the frames that its program has.
struct Process {
    umem: SharedUmem,
    rings: QueueRings,
    frames: Vec<Frame>,
    name: u64,
    has_begun: bool,
}

impl Process {
    fn begin(&mut self) {
        if !self.has_begun {
            self.umem.begin(&mut self.rings).unwrap();
            self.has_begun = true;
        }
    }

    /// Marks a frame as this process's.
    fn keep(&mut self, mut frame: Frame) {
        frame.copy_from(&self.name.to_ne_bytes());
        self.frames.push(frame);
    }

    /// A frame of the program's, in which nobody else may have written.
    fn let_go(&mut self) -> Option<Frame> {
        let frame = self.frames.pop()?;
        assert_eq!(frame.bytes(), self.name.to_ne_bytes(), "somebody else has the same slot");
        Some(frame)
    }

    fn harvest(&mut self) -> u32 {
        self.rings.harvest(&mut self.umem)
    }

    fn receive(&mut self) {
        let mut burst = Burst::new();
        self.rings.receive(&mut self.umem, &mut burst, 0);
        burst.drain(..).for_each(|frame| self.keep(frame));
    }

    fn send(&mut self, count: usize) {
        for _ in 0..count {
            if self.rings.tx.room(1) == 0 {
                break;
            }
            let Some(frame) = self.let_go() else { break };
            self.rings.send(&mut self.umem, frame);
        }
        self.rings.tx.publish();
    }

    fn act(&mut self, what: u64) {
        match what % 7 {
            0 | 1 => self.receive(),
            2 => self.send((what / 7 % 30) as usize),
            3 => {
                self.rings.harvest(&mut self.umem);
            }
            4 => {
                self.rings.refill(&mut self.umem, 1);
            }
            5 => {
                for _ in 0..what / 7 % 10 {
                    let Some(frame) = self.umem.alloc() else { break };
                    self.keep(frame);
                }
            }
            _ => {
                for _ in 0..what / 7 % 50 {
                    let Some(frame) = self.let_go() else { break };
                    self.umem.release(frame);
                }
            }
        }
    }

    /// What the kernel does with a process that is killed: its memory is unmapped, and its place is free. Nothing is stored anywhere.
    fn end(self) {
        let Process { mut umem, rings, frames, .. } = self;
        frames.into_iter().for_each(std::mem::forget);
        // SAFETY: dropped once; the pool, whose mapping stays, is leaked with the rest.
        unsafe { ManuallyDrop::drop(&mut umem.area) };
        std::mem::forget(umem);
        drop(rings);
    }
}

/// xorshift64*: Marsaglia, "Xorshift RNGs".
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }
}

/// Lets processes and the kernel work until nothing moves, and says where each slot is then: the fill ring has so many, and all others are
/// the processes' own or nobody's.
fn settle(queue: &Queue, kernel: &mut Kernel, processes: &mut [Process]) {
    loop {
        let mut moved = 0;
        for (place, process) in processes.iter_mut().enumerate() {
            process.receive();
            while let Some(frame) = process.let_go() {
                process.umem.release(frame);
                moved += 1;
            }
            moved += kernel.transmit(place);
            moved += process.harvest();
        }
        if moved == 0 {
            break;
        }
    }
    let mut fill = Consumer::new(queue.fill.side());
    let filled = fill.waiting() as usize;
    let addresses: Vec<u64> = (0..filled).map(|_| fill.pop().unwrap()).collect();
    let mut times: BTreeMap<u64, usize> = BTreeMap::new();
    addresses.iter().for_each(|address| *times.entry(*address).or_default() += 1);
    assert!(times.values().all(|count| *count == 1), "a slot is in the fill ring twice");
    let observer = queue.observer();
    assert_eq!(observer.lent(), filled, "slots are lost, or were lent twice");
    let nobodys = (0..SLOTS).filter(|slot| observer.take_free(FrameIndex(*slot))).count();
    (0..SLOTS).map(FrameIndex).filter(|slot| observer.is_own(*slot)).for_each(|slot| observer.free(slot));
    let own: usize = processes.iter().map(|process| process.umem.pool().available()).sum();
    assert_eq!(nobodys + own + filled, SLOTS as usize, "slots belong to those who are no more");
    assert!(processes.iter().all(|process| process.umem.held() == 0));
}

#[test]
fn what_one_sends_another_may_take_back() {
    let queue = Queue::new(2);
    let mut kernel = queue.kernel();
    let mut processes: Vec<Process> = (0..2).map(|place| begin(&queue, place, place as u64)).collect();
    assert!(kernel.fill.waiting() > 100, "the first has filled the ring");
    assert!(kernel.deliver(1));
    processes[1].receive();
    assert_eq!(processes[1].frames.len(), 1);
    processes[1].send(1);
    assert_eq!(kernel.transmit(1), 1);
    assert_eq!(processes[0].harvest(), 1);
    assert_eq!(processes[1].harvest(), 0);
    settle(&queue, &mut kernel, &mut processes);
    assert_eq!(processes.iter().map(|process| process.rings.invalid).sum::<u64>(), 0);
}

fn enter(queue: &Queue, place: usize, name: u64) -> Process {
    let (umem, rings) = queue.enter(place);
    Process { umem, rings, frames: Vec::new(), name, has_begun: false }
}

fn begin(queue: &Queue, place: usize, name: u64) -> Process {
    let mut process = enter(queue, place, name);
    process.begin();
    process
}

#[test]
fn who_is_given_back_whole_leaves_what_it_had_to_the_next() {
    let queue = Queue::new(1);
    let mut kernel = queue.kernel();
    for name in 0..20 {
        let mut processes = vec![begin(&queue, 0, name)];
        assert!(kernel.deliver(0));
        processes[0].receive();
        settle(&queue, &mut kernel, &mut processes);
        let Process { mut umem, rings, .. } = processes.pop().unwrap();
        drop(rings);
        // SAFETY: there are no sockets, and it is dropped next.
        unsafe { umem.take_back_all() };
        drop(umem);
    }
}

#[test]
fn a_place_is_not_free_while_frames_of_it_are_out() {
    let queue = Queue::new(1);
    let Process { mut umem, rings, .. } = begin(&queue, 0, 1);
    let frame = umem.alloc().unwrap();
    drop(rings);
    // SAFETY: there are no sockets, and it is dropped next.
    unsafe { umem.take_back_all() };
    drop(umem);
    assert!(Area::enter(queue.area.as_fd(), 0).is_err());
    assert_eq!(frame.headroom(), usize::from(PACKET_HEADROOM), "and it can be used");
}

#[test]
fn addresses_that_the_kernel_does_not_have_are_refused() {
    let queue = Queue::new(1);
    let mut process = begin(&queue, 0, 1);
    let frame = process.umem.alloc().unwrap();
    let own = u64::from(frame.index().0) * u64::from(SLOT_SIZE);
    let free = (SLOTS as u64 - 1) * u64::from(SLOT_SIZE);
    for address in [own, free, u64::from(SLOTS) * u64::from(SLOT_SIZE), u64::MAX] {
        assert!(!process.umem.take_back(address));
        assert!(process.umem.take_packet(Descriptor { address, len: 1, options: 0 }).is_none());
    }
    // Whatever others write into the area: what is ours is not ours twice.
    process.umem.area.give_to_kernel(frame.index());
    assert!(!process.umem.take_back(own));
    process.umem.area.take_from_kernel(frame.index());
    process.umem.release(frame);
}

/// Processes are killed at any store. A slot is never lost, and never has two owners.
#[test]
fn killed_processes_leave_every_slot_to_somebody() {
    silence();
    for seed in 1..=20 {
        let queue = Queue::new(3);
        let mut kernel = queue.kernel();
        let mut random = Random(seed);
        let mut processes: Vec<Option<Process>> = (0..3).map(|_| None).collect();
        let (mut names, mut deaths) = (0, 0);
        for _ in 0..6000 {
            let place = (random.next() % 3) as usize;
            let fuse = random.next().is_multiple_of(4).then(|| (random.next() % 120) as u32);
            let mut process = processes[place].take().unwrap_or_else(|| {
                names += 1;
                enter(&queue, place, names)
            });
            let what = random.next();
            let survives = kill_after(fuse, || match process.has_begun {
                true => process.act(what),
                false => process.begin(),
            });
            match survives {
                Some(()) => processes[place] = Some(process),
                None => {
                    deaths += 1;
                    process.end();
                }
            }
            let place = (random.next() % 3) as usize;
            match random.next() % 3 {
                0 => assert!(kernel.transmit(place) <= RING),
                _ => assert!((0..random.next() % 20).filter(|_| kernel.deliver(place)).count() < 20),
            }
        }
        assert!(deaths > 300, "{deaths}");
        let mut living: Vec<Process> = Vec::new();
        for (place, process) in processes.into_iter().enumerate() {
            let mut process = process.unwrap_or_else(|| {
                names += 1;
                enter(&queue, place, names)
            });
            process.begin();
            living.push(process);
        }
        for process in &mut living {
            process.rings.refill(&mut process.umem, 1);
            assert!(!process.umem.owes(), "the lock is free, or its holder is dead");
        }
        settle(&queue, &mut kernel, &mut living);
        living.into_iter().for_each(Process::end);
    }
}

/// Threads for processes, and one for the kernel: all at full speed.
#[test]
fn processes_that_hammer_one_queue_lose_nothing() {
    const TURNS: usize = 20_000;
    let queue = Queue::new(2);
    let (is_over, delivered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (mut processes, mut kernel) = std::thread::scope(|scope| {
        let mut kernel = queue.kernel();
        let (is_over, delivered) = (&is_over, &delivered);
        let kernel = scope.spawn(move || {
            let mut turn = 0usize;
            while !is_over.load(Ordering::Relaxed) {
                turn += 1;
                for place in 0..2 {
                    kernel.transmit(place);
                    let count = (0..turn % 17).filter(|_| kernel.deliver(place)).count();
                    delivered.fetch_add(count, Ordering::Relaxed);
                }
            }
            kernel
        });
        let queue = &queue;
        let work = |place: usize| {
            move || {
                let mut process = begin(queue, place, place as u64 + 1);
                let mut random = Random(place as u64 + 7);
                for turn in 0..TURNS {
                    process.act(random.next());
                    process.rings.refill(&mut process.umem, 16);
                    process.harvest();
                    if turn % 100 == 0 {
                        std::thread::yield_now();
                    }
                }
                process
            }
        };
        let workers = [0, 1].map(|place| scope.spawn(work(place)));
        let processes: Vec<Process> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        is_over.store(true, Ordering::Relaxed);
        (processes, kernel.join().unwrap())
    });
    settle(&queue, &mut kernel, &mut processes);
    assert!(delivered.into_inner() > 0);
    assert_eq!(processes.iter().map(|process| process.rings.invalid).sum::<u64>(), 0);
    processes.into_iter().for_each(Process::end);
}
