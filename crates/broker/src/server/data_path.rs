//! The operations that the broker needs on an interface: steering packets, and lending queues.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use clock::{Duration, Instant};
use device_xdp::{
    AttachMode, Flow, Lent, LentLayout, QueueOwner, SharedQueue, Spare, SteeringOptions, SteeringProgram,
    XdpDevice, XdpError, XdpOptions, mode_for_streams, queue_pairs,
};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use steering::{Claim, ClaimTerms, Marks, Transport};

use super::machine::memory_len;
use super::pins::{Kept, Pins};
use super::queues_left::{Left, QueuesLeft};
use super::spread::DeviceSpread;
use crate::protocol::{QUEUES_MAX, QueueLeft};
use crate::registry::{Identity, LinkNumber};

/// How long claimed TCP waits for queues to be lent anew.
const REOPEN_MAX: Duration = Duration::from_secs(1);
/// Flows of the kernel that are remembered for a user on each interface at least and at most; more, and the longest unused are forgotten.
const KERNEL_FLOWS_MIN: usize = 1 << 16;
const KERNEL_FLOWS_MAX: usize = 1 << 18;
/// One for so many octets of the machine's memory. One takes about a hundred.
const MEMORY_OF_A_FLOW: usize = 1 << 15;
/// Processes that can share a queue: the memory for each, 4 MB, is there as soon as the queue is lent. With one place it takes half as much again as a
/// queue that is not shared.
const PLACES: u16 = 8;

/// An interface whose packets we can take.
pub(crate) trait DataPath: Send {
    /// How packets come in, for people.
    fn describe(&self) -> String;
    /// Whether the driver has XDP, so that nobody else's packets cost more by it.
    fn is_native(&self) -> bool;
    /// Whether several datagrams may come as one packet.
    fn merges_datagrams(&self) -> bool;
    /// Whether its queues go on if this process is killed.
    fn is_kept(&self) -> bool;
    /// Makes sockets on these queues, and memory of such frames for them, to be given away. `None`: there are none for the interface, which
    /// lending will tell. Without `zero_copy` the owner gets only what is claimed, and others' packets do not depend on its filling the ring.
    fn lend(
        &mut self,
        queues: &[u16],
        frame_size: Option<u16>,
        zero_copy: bool,
        owner: QueueOwner,
    ) -> Result<LentQueues, XdpError>;
    /// How many processes can have each queue at a time, where there are so many queues.
    fn places(&self, queues: u16) -> u16;
    /// As `lend`, to one of the processes that may have a queue, by its own number: `(queue, number)`. All have the same identity; who has none
    /// gets the queue alone.
    fn share(
        &mut self,
        place: (u16, u16),
        frame_size: Option<u16>,
        zero_copy: bool,
        owner: QueueOwner,
        identity: Option<Identity>,
    ) -> Result<LentQueues, XdpError>;
    /// Whether no process has a socket at this queue. Takes the queue for a moment if so.
    fn is_free(&mut self, queue: u16) -> bool;
    /// Who has which queue, also by a broker that was killed.
    fn owners(&self) -> Vec<(u16, QueueOwner)>;
    /// The claims in force: at first those that a broker has left which was killed.
    fn claims(&self) -> Vec<(Claim, ClaimTerms)>;
    /// Queues are lent anew: claimed TCP waits for a moment, instead of being the kernel's, which would reset it.
    fn begin_reopening(&mut self) -> Result<(), XdpError>;
    /// Delivers nothing to the socket of this queue any more.
    fn remove_queue(&mut self, queue: u16) -> Result<(), XdpError>;
    /// Takes packets from the kernel.
    fn put_claim(&mut self, claim: Claim, terms: ClaimTerms) -> Result<(), XdpError>;
    /// Leaves packets to the kernel.
    fn remove_claim(&mut self, claim: Claim) -> Result<(), XdpError>;
    /// Leaves a TCP connection to the kernel, while claims have these marks.
    fn add_kernel_flow(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        marks: Marks,
    ) -> Result<(), XdpError>;
    /// Whether a TCP connection is noted as the kernel's, while claims have these marks.
    fn is_kernel_flow(&self, local: SocketAddr, remote: SocketAddr, marks: Marks) -> Result<bool, XdpError>;
    /// Has the packets of a TCP connection be nobody's until somebody serves their queue, while claims have these marks; false if it is
    /// the kernel's.
    fn add_awaited_flow(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        marks: Marks,
    ) -> Result<bool, XdpError>;
    /// A TCP connection is no longer that process's which had it, of those that share a queue.
    fn forget_shared_flow(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<(), XdpError>;
    /// Whether an answer to a connection came by a queue on which its claim does not hold, since this was asked last.
    fn take_misdirected(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<bool, XdpError>;
    /// See [`SteeringProgram::settle_sharers`].
    fn settle_sharers(&mut self, now: Instant) -> Result<(), XdpError>;
    /// Lets go of it as if by SIGKILL: what is kept goes on.
    fn leave(&mut self);
    /// The queues that processes share, with what the next broker goes on by, which knows the interface by this number.
    fn queues_to_leave(&self, link: LinkNumber) -> Vec<Left>;
    /// What became of the interface's packets.
    fn counters(&self) -> Vec<(String, u64)>;
}

/// What is given to a client.
#[derive(Debug)]
pub(crate) struct LentQueues {
    /// How it is mapped.
    pub(crate) layout: LentLayout,
    /// Packet memory.
    pub(crate) memory: OwnedFd,
    /// One socket for each queue.
    pub(crate) sockets: Vec<OwnedFd>,
}

/// Opens data paths, and says what can be known without one.
pub(crate) trait DataPaths: Send {
    /// Attaches to the interface of this name, which programs know by this number; or takes over what a killed broker left there.
    fn open(&self, interface: &str, link: LinkNumber) -> Result<Box<dyn DataPath>, XdpError>;
    /// Its queues.
    fn queues(&self, interface: &str) -> Result<u16, XdpError>;
    /// Octets of the frames that fit an MTU; a larger size needs other devices.
    fn frame_size(&self, mtu: u32) -> Option<u16>;
    /// How it spreads packets over its queues, if it says so.
    fn spread(&self, interface: &str) -> Option<DeviceSpread>;
}

/// AF_XDP.
#[derive(Debug)]
pub(crate) struct Xdp {
    /// How devices are made.
    device: XdpOptions,
    /// Where XDP is to run, if that is said.
    mode: Option<AttachMode>,
    /// What keeps XDP programs, and the name of the broker's socket.
    pins: Option<(Pins, String)>,
    /// Queues are to be shared however many there are.
    share: bool,
    /// What the broker has left whose place this one takes.
    left: QueuesLeft,
}

impl Xdp {
    pub(super) fn new(mode: Option<AttachMode>, pins: Option<(Pins, String)>) -> Xdp {
        Xdp { device: XdpOptions::default(), mode, pins, share: false, left: QueuesLeft::default() }
    }

    /// Has queues shared however many there are, if `share` says so.
    pub(super) fn sharing(self, share: bool) -> Xdp {
        Xdp { share, ..self }
    }

    /// Goes on with these queues.
    pub(super) fn with_queues_left(self, left: QueuesLeft) -> Xdp {
        Xdp { left, ..self }
    }

    fn steering(&self, interface: &str) -> Result<SteeringOptions, XdpError> {
        let mode = match self.mode {
            Some(mode) => Some(mode),
            None => mode_for_streams(interface)?,
        };
        Ok(SteeringOptions { mode, kernel_flows: kernel_flows(memory_len()) })
    }

    /// A program that goes on if this process is killed: one that a killed broker left, or a new one. `None`: there can be none. One that
    /// was left and cannot be taken over stays as it is, with its connections.
    fn open_kept(
        &self,
        interface: &str,
        link: LinkNumber,
        steering: SteeringOptions,
    ) -> Result<Option<SteeringProgram>, XdpError> {
        let Some((pins, broker)) = self.pins.as_ref() else { return Ok(None) };
        let Some(index) = index_of(interface) else { return Ok(None) };
        let own = pins.path(&Kept { interface: index, link, broker: broker.clone() });
        let left =
            pins.left().into_iter().filter(|left| left.interface == index).map(|left| pins.path(&left));
        for path in left.chain([own.clone()]).filter(|path| path.exists()) {
            match SteeringProgram::take_over(interface, steering, &path) {
                Ok(mut program) => {
                    let _ = program.rename_kept(&own); // It goes on by the other name, and the next broker does not find it.
                    return Ok(Some(program));
                }
                Err(error) if SteeringProgram::is_kept_in(&path, interface) => return Err(error),
                Err(_) => drop(SteeringProgram::remove_kept(&path)), // Attaching ours will tell.
            }
        }
        Ok(SteeringProgram::attach_kept(interface, steering, &own).ok())
    }
}

fn flow(local: SocketAddr, remote: SocketAddr) -> Flow {
    Flow { transport: Transport::Tcp, local, remote }
}

/// The kernel's number of an interface.
fn index_of(interface: &str) -> Option<u32> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    name_to_index(socket, interface).ok()
}

impl DataPaths for Xdp {
    fn open(&self, interface: &str, link: LinkNumber) -> Result<Box<dyn DataPath>, XdpError> {
        let steering = self.steering(interface)?;
        let program = match self.open_kept(interface, link, steering)? {
            Some(program) => program,
            None => SteeringProgram::attach(interface, steering)?,
        };
        let (device, share) = (self.device.clone(), self.share);
        let mut path = XdpPath { program, device, spare: None, shared: BTreeMap::new(), share };
        self.left.take(link).into_iter().for_each(|left| path.go_on(left));
        Ok(Box::new(path))
    }

    fn queues(&self, interface: &str) -> Result<u16, XdpError> {
        queue_pairs(interface)
    }

    fn frame_size(&self, mtu: u32) -> Option<u16> {
        self.device.frame_size_for(mtu)
    }

    fn spread(&self, interface: &str) -> Option<DeviceSpread> {
        DeviceSpread::of(interface)
    }
}

fn kernel_flows(memory: usize) -> u32 {
    (memory / MEMORY_OF_A_FLOW).clamp(KERNEL_FLOWS_MIN, KERNEL_FLOWS_MAX) as u32 // At most 2^18.
}

struct XdpPath {
    program: SteeringProgram,
    device: XdpOptions,
    /// For the queues that were busy when they were last asked for, in this way.
    spare: Option<(XdpOptions, Spare)>,
    /// Queues that processes of one identity have, or are about to.
    shared: BTreeMap<u16, Shared>,
    /// Queues are to be shared however many there are.
    share: bool,
}

struct Shared {
    queue: SharedQueue,
    /// What it was made with.
    options: XdpOptions,
    /// How many processes it was to be for.
    places: u16,
    /// Who shares it; `None`: one process has it, which shares it with nobody.
    identity: Option<Identity>,
}

impl Shared {
    /// Whether `identity` may have it, or more of it.
    fn is_for(&self, identity: Option<Identity>) -> bool {
        identity.is_some() && self.identity == identity
    }
}

impl XdpPath {
    fn options(&self, frame_size: Option<u16>, zero_copy: bool) -> XdpOptions {
        XdpOptions {
            frame_size: frame_size.or(self.device.frame_size),
            zero_copy: zero_copy && self.device.zero_copy,
            ..self.device.clone()
        }
    }

    /// Goes on with a queue that processes share, if they do still. If that cannot be, nobody else comes to share it.
    fn go_on(&mut self, (left, descriptors): Left) {
        let QueueLeft { places, places_wanted, frame_size, zero_copy, identity, .. } = left;
        let (queue, options) = (places.queue(), self.options(frame_size, zero_copy));
        if !self.program.is_shared(queue) {
            return; // The interface is another one by now.
        }
        if let Ok(went_on) = SharedQueue::go_on(&self.program, (places, descriptors), &options) {
            let identity = identity.map(|(user, group)| Identity { user, group });
            self.shared.insert(queue, Shared { queue: went_on, options, places: places_wanted, identity });
        }
    }

    /// A queue for processes of one identity, with memory that nobody else's have had.
    fn prepare_shared(
        &mut self,
        queue: u16,
        identity: Option<Identity>,
        options: &XdpOptions,
    ) -> Result<(), XdpError> {
        let not_shared = || XdpError::NotShared { interface: self.program.interface().to_owned(), queue };
        let places = if identity.is_some() { PLACES } else { 1 };
        match self.shared.get_mut(&queue) {
            // Made while the queue was busy: each attempt with new memory would pin it faster than the kernel frees it.
            Some(it) if it.queue.is_new() && it.options == *options && it.places >= places => {
                it.identity = identity;
            }
            Some(it) if it.queue.is_unused() && !(it.is_for(identity) && it.options == *options) => {
                self.shared.remove(&queue);
            }
            Some(it) if !it.is_for(identity) => return Err(not_shared()),
            _ => {}
        }
        if !self.shared.contains_key(&queue) {
            if self.program.is_shared(queue) {
                return Err(not_shared()); // By processes of a broker that was killed: it had what binds more sockets.
            }
            let made = self.make_shared(queue, places, options)?;
            self.shared.insert(queue, Shared { queue: made, options: options.clone(), places, identity });
        }
        Ok(())
    }

    /// Memory for so many processes, or as many as may be locked.
    fn make_shared(
        &self,
        queue: u16,
        mut places: u16,
        options: &XdpOptions,
    ) -> Result<SharedQueue, XdpError> {
        loop {
            match SharedQueue::create(&self.program, queue, places, options) {
                Err(XdpError::Memory { .. }) if places > 1 => places /= 2,
                made => return made,
            }
        }
    }
}

impl DataPath for XdpPath {
    fn describe(&self) -> String {
        format!("AF_XDP, {}", self.program.mode())
    }

    fn is_kept(&self) -> bool {
        self.program.is_kept()
    }

    fn leave(&mut self) {
        self.program.leave();
    }

    fn queues_to_leave(&self, link: LinkNumber) -> Vec<Left> {
        let leave = |shared: &Shared| {
            let Shared { queue, options, places, identity } = shared;
            let (left, descriptors) = queue.leave().ok()??; // Without descriptors nobody else comes to share it.
            let left = QueueLeft {
                link,
                places: left,
                places_wanted: *places,
                frame_size: options.frame_size,
                zero_copy: options.zero_copy,
                identity: identity.map(|Identity { user, group }| (user, group)),
            };
            Some((left, descriptors))
        };
        self.shared.values().filter_map(leave).collect()
    }

    fn is_native(&self) -> bool {
        // A veth's driver has XDP, also where generic mode was the better choice.
        self.program.mode() == AttachMode::Native || self.program.merges_datagrams()
    }

    fn merges_datagrams(&self) -> bool {
        self.program.merges_datagrams()
    }

    fn lend(
        &mut self,
        queues: &[u16],
        frame_size: Option<u16>,
        zero_copy: bool,
        owner: QueueOwner,
    ) -> Result<LentQueues, XdpError> {
        let options = self.options(frame_size, zero_copy);
        let mut spare = self.spare.take().filter(|(asked, _)| *asked == options).map(|(_, spare)| spare);
        let lent = XdpDevice::lend_with(&mut self.program, queues, &options, &mut spare);
        self.spare = spare.map(|spare| (options, spare));
        let Lent { layout, memory, sockets } = lent?;
        queues.iter().try_for_each(|queue| self.program.set_owner(*queue, Some(owner)))?;
        Ok(LentQueues { layout, memory, sockets })
    }

    fn places(&self, queues: u16) -> u16 {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let are_enough = queues > 1 && usize::from(queues) >= cores && !self.share;
        if are_enough || !SharedQueue::is_possible(&self.program) {
            return 1;
        }
        (QUEUES_MAX / queues.max(1)).clamp(1, PLACES)
    }

    fn share(
        &mut self,
        (queue, number): (u16, u16),
        frame_size: Option<u16>,
        zero_copy: bool,
        owner: QueueOwner,
        identity: Option<Identity>,
    ) -> Result<LentQueues, XdpError> {
        let options = self.options(frame_size, zero_copy);
        self.prepare_shared(queue, identity, &options)?;
        let XdpPath { program, shared, .. } = self;
        let shared = shared.get_mut(&queue).expect("it was prepared just now");
        let Lent { layout, memory, sockets } = shared.queue.lend(program, number)?;
        if let Err(error) = program.set_owner(number, Some(owner)) {
            shared.queue.withdraw(program, number)?;
            return Err(error);
        }
        Ok(LentQueues { layout, memory, sockets })
    }

    fn begin_reopening(&mut self) -> Result<(), XdpError> {
        self.program.set_reopening(REOPEN_MAX)
    }

    fn remove_queue(&mut self, queue: u16) -> Result<(), XdpError> {
        let XdpPath { program, shared, .. } = self;
        match shared.iter_mut().find(|(_, it)| it.queue.has(queue)) {
            Some((&of, it)) => {
                it.queue.withdraw(program, queue)?;
                if it.queue.is_unused() {
                    shared.remove(&of); // The next processes get fresh memory.
                }
            }
            None if program.forget_sharer(queue)? => {}
            None => program.remove_queue(queue)?,
        }
        program.set_owner(queue, None)
    }

    fn is_free(&mut self, queue: u16) -> bool {
        if let Some(has_ended) = self.shared.values().find_map(|shared| shared.queue.has_ended(queue)) {
            return has_ended;
        }
        if let Some(has_ended) = self.program.has_ended(queue) {
            return has_ended;
        }
        let least = XdpOptions {
            ring_entries: 512,
            frames_per_queue: 256,
            zero_copy: false,
            busy_poll: None,
            bulk_lane: false,
            ..self.device.clone()
        };
        XdpDevice::lend(&mut self.program, &[queue], &least).is_ok()
    }

    fn owners(&self) -> Vec<(u16, QueueOwner)> {
        self.program.owners().unwrap_or_default() // Who cannot be known to have a queue gets none back.
    }

    fn claims(&self) -> Vec<(Claim, ClaimTerms)> {
        self.program.claims().iter().map(|(claim, terms)| (*claim, *terms)).collect()
    }

    fn put_claim(&mut self, claim: Claim, terms: ClaimTerms) -> Result<(), XdpError> {
        self.program.put_claim(claim, terms)
    }

    fn remove_claim(&mut self, claim: Claim) -> Result<(), XdpError> {
        self.program.remove_claim(claim)
    }

    fn add_kernel_flow(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        marks: Marks,
    ) -> Result<(), XdpError> {
        self.program.add_kernel_flow(flow(local, remote), marks)
    }

    fn is_kernel_flow(&self, local: SocketAddr, remote: SocketAddr, marks: Marks) -> Result<bool, XdpError> {
        self.program.is_kernel_flow(flow(local, remote), marks)
    }

    fn add_awaited_flow(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        marks: Marks,
    ) -> Result<bool, XdpError> {
        self.program.add_awaited_flow(flow(local, remote), marks)
    }

    fn forget_shared_flow(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<(), XdpError> {
        self.program.forget_shared_flow(flow(local, remote))
    }

    fn take_misdirected(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<bool, XdpError> {
        self.program.take_misdirected(flow(local, remote))
    }

    fn settle_sharers(&mut self, now: Instant) -> Result<(), XdpError> {
        self.program.settle_sharers(now)
    }

    fn counters(&self) -> Vec<(String, u64)> {
        let counters = self.program.counters().map(|counters| counters.named());
        let named = counters.into_iter().flatten();
        named.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::LABORATORY;
    use super::*;

    /// A BPF file system of our own.
    struct Mount(lab::Directory);

    impl Mount {
        fn new() -> Mount {
            let directory = lab::Directory::new().unwrap();
            assert!(run("mount", &["-t", "bpf", "bpf"], &directory));
            Mount(directory)
        }
    }

    impl Drop for Mount {
        fn drop(&mut self) {
            run("umount", &[], &self.0);
        }
    }

    fn run(program: &str, arguments: &[&str], directory: &lab::Directory) -> bool {
        std::process::Command::new(program).args(arguments).arg(directory.path()).status().unwrap().success()
    }

    #[test]
    fn connections_of_the_kernel_are_remembered_as_memory_allows() {
        assert_eq!(kernel_flows(512 << 20), 65_536);
        assert!((200_000..300_000).contains(&kernel_flows(8 << 30)));
        assert_eq!(kernel_flows(1 << 40), 1 << 18);
    }

    /// As when there is no memory for the new program.
    #[test]
    fn a_program_that_cannot_be_taken_over_stays_attached_until_it_can() {
        if !lab::require_root_and_xdp() {
            return;
        }
        let _turn = LABORATORY.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let lab = lab::Lab::new().unwrap();
        let mount = Mount::new();
        lab.inside(lab::Side::Server, || {
            let pins = Pins::in_directory(&mount.0.path().join("sidestep"), 1).unwrap();
            let path = |broker: &str| {
                let interface = index_of(lab::SERVER_INTERFACE).unwrap();
                pins.path(&Kept { interface, link: 0, broker: broker.to_owned() })
            };
            let open = |broker: &str| {
                Xdp::new(None, Some((pins.clone(), broker.to_owned()))).open(lab::SERVER_INTERFACE, 0)
            };
            open("killed").unwrap().leave();
            let (map, aside) = (path("killed").join("claims"), path("killed").join("aside"));
            std::fs::rename(&map, &aside).unwrap();
            std::fs::create_dir(&map).unwrap();
            assert!(open("next").is_err());
            assert!(SteeringProgram::is_kept_in(&path("killed"), lab::SERVER_INTERFACE));
            std::fs::remove_dir(&map).unwrap();
            std::fs::rename(&aside, &map).unwrap();
            drop(open("next").unwrap());
            assert!(!path("killed").exists() && !path("next").exists());
        });
    }

    /// Memory of packets that this process has.
    fn packet_memory() -> std::collections::BTreeSet<u64> {
        use std::os::unix::fs::MetadataExt;
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
        let ours = descriptors.filter(|path| {
            std::fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains("sidestep-umem"))
        });
        ours.filter_map(|path| Some(std::fs::metadata(path).ok()?.ino())).collect()
    }

    #[test]
    fn attempts_at_a_busy_queue_make_memory_once() {
        if !lab::require_root_and_xdp() {
            return;
        }
        let _turn = LABORATORY.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let lab = lab::Lab::new().unwrap();
        lab.inside(lab::Side::Server, || {
            let mut path = Xdp::new(Some(AttachMode::Native), None).open(lab::SERVER_INTERFACE, 0).unwrap();
            let owner = QueueOwner { secret: [7, 8], user: 1000 };
            let busy = path.lend(&[0], None, false, owner).unwrap();
            let mut attempt = |identity| path.share((0, 0), None, false, owner, identity);
            let user = Some(Identity { user: 1000, group: 1000 });
            assert!(matches!(attempt(user), Err(XdpError::QueueBusy { .. })));
            let memory = packet_memory();
            for identity in [None, None, user, Some(Identity { user: 1001, group: 1001 }), None] {
                assert!(matches!(attempt(identity), Err(XdpError::QueueBusy { .. })));
                assert_eq!(packet_memory(), memory, "{identity:?}");
            }
            drop(busy);
            while attempt(None).is_err() {
                std::thread::sleep(std::time::Duration::from_millis(1)); // The kernel frees it a moment later.
            }
            assert!(matches!(attempt(user), Err(XdpError::NotShared { .. })), "one process has it");
        });
    }

    #[test]
    fn a_queue_is_free_when_its_socket_is_closed() {
        if !lab::require_root_and_xdp() {
            return;
        }
        let _turn = LABORATORY.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let lab = lab::Lab::new().unwrap();
        lab.inside(lab::Side::Server, || {
            let mut path = Xdp::new(None, None).open(lab::SERVER_INTERFACE, 0).unwrap();
            let owner = QueueOwner { secret: [7, 8], user: 1000 };
            let lent = path.lend(&[0], None, false, owner).unwrap();
            assert!(!path.is_free(0));
            drop(lent);
            while !path.is_free(0) {
                std::thread::sleep(std::time::Duration::from_millis(1)); // The kernel frees it a moment later.
            }
        });
    }

    /// As when a worker with so many connections is replaced.
    #[test]
    fn two_hundred_thousand_connections_of_the_kernel_are_remembered() {
        const FLOWS: u32 = 200_000;
        if !lab::require_root_and_xdp() {
            return;
        }
        if kernel_flows(memory_len()) < FLOWS {
            return lab::skip("the machine has less than 8 GB of memory");
        }
        let _turn = LABORATORY.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let lab = lab::Lab::new().unwrap();
        lab.inside(lab::Side::Server, || {
            let options = Xdp::new(None, None).steering(lab::SERVER_INTERFACE).unwrap();
            let mut program = SteeringProgram::attach(lab::SERVER_INTERFACE, options).unwrap();
            let local = SocketAddr::from(([10, 53, 0, 1], 80));
            let remote = |number: u32| SocketAddr::from((number.to_be_bytes(), 4000));
            for number in 0..FLOWS {
                program.add_kernel_flow(flow(local, remote(number)), Marks::default()).unwrap();
            }
            let is_known = |number: &u32| {
                program.is_kernel_flow(flow(local, remote(*number)), Marks::default()).unwrap()
            };
            assert_eq!((0..FLOWS).filter(is_known).count(), FLOWS as usize);
        });
    }
}
