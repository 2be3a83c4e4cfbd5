//! A queue that several processes can have: what the privileged process keeps of it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use frame::Region;
use serde::{Deserialize, Serialize};

use super::FILL_FACTOR;
use super::area::{Area, PLACES_MAX};
use crate::lane::Lane;
use crate::lending::{Lent, LentLayout, check_ring_entries};
use crate::loading::has_chains;
use crate::options::{FRAMES_PER_QUEUE, Resolved};
use crate::sockets::{self, bind_error, bulk_lane, create_socket_with, register, set_ring_size};
use crate::syscalls::{self, BindMode, RingKind};
use crate::{AttachMode, CopyMode, SteeringProgram, XdpError, XdpMode, XdpOptions, xsk};

/// One queue of an interface for several processes.
///
/// All processes with the queue must end before it can be anybody else's. Dropping this value makes it no longer possible to lend it;
/// processes that have it keep it.
#[derive(Debug)]
pub struct SharedQueue {
    queue: u16,
    options: Resolved,
    slots: u32,
    memory: OwnedFd,
    area: OwnedFd,
    /// Has the memory, the fill and the completion ring, and gets no packets.
    anchor: OwnedFd,
    is_bound: bool,
    places: Vec<Place>,
    places_max: u16,
}

/// What another privileged process must know to go on with a queue: [`SharedQueue::leave`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftPlaces {
    queue: u16,
    slots: u32,
    places_max: u16,
    /// The number of each place, and whether a process had it.
    places: Vec<(u16, bool)>,
}

impl LeftPlaces {
    /// Which queue of the interface it is.
    pub fn queue(&self) -> u16 {
        self.queue
    }
}

#[derive(Debug)]
struct Place {
    /// What the steering program calls whoever has the place.
    number: u16,
    /// With the rings of the place, whoever has it.
    socket: OwnedFd,
    is_lent: bool,
}

impl SharedQueue {
    /// Whether the kernel can have several sockets receive on one queue where `program` sits.
    pub fn is_possible(program: &SteeringProgram) -> bool {
        program.mode() == AttachMode::Native || has_chains(program.mode())
    }

    /// Makes memory for `places` processes, 1 to [`PLACES_MAX`], that are to share a queue. It is not theirs before the first
    /// [`SharedQueue::lend`].
    pub fn create(
        program: &SteeringProgram,
        queue: u16,
        places: u16,
        options: &XdpOptions,
    ) -> Result<SharedQueue, XdpError> {
        check_ring_entries(options)?;
        let places_max = places.clamp(1, PLACES_MAX);
        let options = options.resolve(program.netdev())?;
        // The fill ring, and for each process what its own rings may hold while it is stopped.
        let slots = options.frames_per_queue / 2 * (u32::from(places_max) + FILL_FACTOR);
        let slots = slots.clamp(*FRAMES_PER_QUEUE.start(), *FRAMES_PER_QUEUE.end());
        let octets = slots as usize * usize::from(options.frame_size);
        let no_memory = |source| XdpError::Memory { octets, source };
        let region = Region::memfd(c"sidestep-umem", octets).map_err(no_memory)?;
        // The kernel wants one more ring than those of the memory.
        let anchor = create_socket_with(&options, &[RingKind::Completion, RingKind::Rx])?;
        set_ring_size(anchor.as_fd(), RingKind::Fill, FILL_FACTOR * options.ring_entries)?;
        register(anchor.as_fd(), &region, options.frame_size)?;
        let memory = region.into_memfd().expect("it was made of a memfd");
        let area = Area::create(slots).map_err(no_memory)?;
        Ok(SharedQueue {
            queue,
            options,
            slots,
            memory,
            area,
            anchor,
            is_bound: false,
            places: Vec::new(),
            places_max,
        })
    }

    /// What another process goes on by, when this one ends: to lend places to more processes, which those that have one do not notice.
    /// `None`: no process has one.
    pub fn leave(&self) -> io::Result<Option<(LeftPlaces, Vec<OwnedFd>)>> {
        if self.is_unused() {
            return Ok(None);
        }
        let places = self.places.iter().map(|place| (place.number, place.is_lent)).collect();
        let SharedQueue { queue, slots, places_max, .. } = *self;
        let sockets = self.places.iter().map(|place| &place.socket);
        let all = [&self.memory, &self.area, &self.anchor].into_iter().chain(sockets);
        let copies = all.map(OwnedFd::try_clone).collect::<io::Result<Vec<OwnedFd>>>()?;
        Ok(Some((LeftPlaces { queue, slots, places_max, places }, copies)))
    }

    /// The same queue in the next process: `options` are those that it was made with, and `program` has the maps of the program before.
    ///
    /// # Errors
    /// `Lent`: what is described is not what the descriptors are.
    pub fn go_on(
        program: &SteeringProgram,
        (left, descriptors): (LeftPlaces, Vec<OwnedFd>),
        options: &XdpOptions,
    ) -> Result<SharedQueue, XdpError> {
        let options = options.resolve(program.netdev())?;
        let LeftPlaces { queue, slots, places_max, places } = left;
        let mut descriptors = descriptors.into_iter();
        let mut next =
            || descriptors.next().ok_or(XdpError::Lent("a descriptor of a shared queue is missing"));
        let (memory, area, anchor) = (next()?, next()?, next()?);
        let place = |(number, is_lent)| Ok(Place { number, socket: next()?, is_lent });
        let places = places.into_iter().map(place).collect::<Result<Vec<Place>, XdpError>>()?;
        Ok(SharedQueue { queue, options, slots, memory, area, anchor, is_bound: true, places, places_max })
    }

    /// Whether the process that has a place by this number has ended; `None` if there is no such place.
    pub fn has_ended(&self, number: u16) -> Option<bool> {
        let place = self.places.iter().position(|place| place.number == number && place.is_lent)?;
        Some(Area::enter(self.area.as_fd(), place as u8).is_ok())
    }

    /// Makes a device for one more process, which the steering program calls `number`: below 64, and nobody else's on the interface.
    /// [`crate::adopt`] takes it over. The program delivers to it from now on: claim the number afterwards.
    ///
    /// # Errors
    /// After an error nothing is lent. `QueueBusy`: the queue is not free yet (use this value again: what a dropped one leaves behind, the
    /// kernel frees no sooner than the queue), or processes that have given up their places have not ended yet. `NotShared`: all places are
    /// lent, or the NIC writes the packets, and does so for one process only.
    pub fn lend(&mut self, program: &mut SteeringProgram, number: u16) -> Result<Lent, XdpError> {
        let mode = self.bind(program)?;
        if mode == CopyMode::ZeroCopy && self.places.iter().any(|place| place.is_lent) {
            return Err(self.not_shared(program));
        }
        let (place, area) = self.find_place(program, number)?;
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(XdpError::system("dup"));
        let (memory, socket) = (copy(&self.memory)?, copy(&self.places[place].socket)?);
        let lane = bulk_lane(program, &self.options, mode);
        let layout = LentLayout {
            frames: self.slots,
            bulk_lane: lane.is_some(),
            place: Some(place as u16),
            mode: XdpMode { attach: program.mode(), copy: mode },
            ..LentLayout::new(program, &[self.queue], &self.options)
        };
        // Nothing fails behind this: who is registered has a place.
        program.register_sharer(self.queue, number, self.places[place].socket.as_fd())?;
        (self.places[place].number, self.places[place].is_lent) = (number, true);
        let sockets = [socket].into_iter().chain(lane.map(Lane::into_socket)).chain([area]).collect();
        Ok(Lent { layout, memory, sockets })
    }

    /// Delivers nothing more to this process, which has given its device up, or ended, or will. The next one in its place takes what it left.
    pub fn withdraw(&mut self, program: &mut SteeringProgram, number: u16) -> Result<(), XdpError> {
        let own = self.places.iter_mut().filter(|place| place.number == number);
        own.for_each(|place| place.is_lent = false);
        program.remove_sharer(self.queue, number)
    }

    /// Whether this process has a place.
    pub fn has(&self, number: u16) -> bool {
        self.places.iter().any(|place| place.number == number && place.is_lent)
    }

    /// Whether no process has a place.
    pub fn is_unused(&self) -> bool {
        !self.places.iter().any(|place| place.is_lent)
    }

    /// Whether no process has ever had a place: nobody has had the memory.
    pub fn is_new(&self) -> bool {
        self.places.is_empty()
    }

    fn bind(&mut self, program: &SteeringProgram) -> Result<CopyMode, XdpError> {
        if !self.is_bound {
            let interface = program.netdev();
            let mode = sockets::bind_mode(program, &self.options);
            syscalls::bind(self.anchor.as_fd(), interface.index, u32::from(self.queue), mode)
                .map_err(|error| bind_error(&interface.name, self.queue, error))?;
            self.is_bound = true;
        }
        xsk::copy_mode(self.anchor.as_fd())
    }

    /// A place that nobody has, rather the one that had the number before; and what its process maps the area by.
    fn find_place(&mut self, program: &SteeringProgram, number: u16) -> Result<(usize, OwnedFd), XdpError> {
        let busy = || XdpError::QueueBusy { interface: program.interface().to_owned(), queue: self.queue };
        let mut free: Vec<usize> =
            (0..self.places.len()).filter(|place| !self.places[*place].is_lent).collect();
        free.sort_by_key(|place| self.places[*place].number != number);
        for place in free {
            match Area::enter(self.area.as_fd(), place as u8) {
                Ok(area) => return Ok((place, area)),
                // Its process has given it up, or was killed, and is not gone yet.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(XdpError::system("locking a place")(error)),
            }
        }
        if self.places.len() >= usize::from(self.places_max) {
            let are_all_lent = self.places.iter().all(|place| place.is_lent);
            return Err(if are_all_lent { self.not_shared(program) } else { busy() });
        }
        let socket = self.open_place(program)?;
        let place = self.places.len();
        let area =
            Area::enter(self.area.as_fd(), place as u8).map_err(XdpError::system("locking a place"))?;
        self.places.push(Place { number, socket, is_lent: false });
        Ok((place, area))
    }

    fn not_shared(&self, program: &SteeringProgram) -> XdpError {
        XdpError::NotShared { interface: program.interface().to_owned(), queue: self.queue }
    }

    fn open_place(&self, program: &SteeringProgram) -> Result<OwnedFd, XdpError> {
        let interface = program.netdev();
        let socket = create_socket_with(&self.options, &[RingKind::Rx, RingKind::Tx])?;
        let mode = BindMode::Shared(self.anchor.as_fd());
        syscalls::bind(socket.as_fd(), interface.index, u32::from(self.queue), mode)
            .map_err(|error| bind_error(&interface.name, self.queue, error))?;
        Ok(socket)
    }
}
