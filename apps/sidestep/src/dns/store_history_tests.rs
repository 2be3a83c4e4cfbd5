//! Updates, changes by hand, new files, crashes and restarts in any order: an update that was answered is served, or its journal lies aside.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dns_wire::Rtype;
use dns_zone::ZoneBuilder;

use super::*;

/// An address of a host: its name, and the last octet.
type Address = (u8, u8);

/// Numbers that look like chance, the same for each seed (Marsaglia's xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, count: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % count
    }

    fn address(&mut self) -> Address {
        (self.below(3) as u8, self.below(2) as u8)
    }

    /// Some way ahead on the circle (RFC 1982): two of the long steps and two short ones lead round it.
    fn step(&mut self) -> u32 {
        [1, 2, 0x7fff_ffff, 0x7fff_ffff][self.below(4) as usize]
    }
}

fn zone(serial: u32, addresses: &BTreeSet<Address>) -> Zone {
    let origin = NameBuf::from_text(b"example.", None).unwrap();
    let mut builder = ZoneBuilder::new(origin.as_name(), 3);
    let soa = [&[0, 0][..], &[serial, 1, 2, 3, 4].map(u32::to_be_bytes).concat()].concat();
    builder.add(origin.as_name(), 60, Rtype::SOA, &soa).unwrap();
    for (host, last) in addresses {
        let owner = NameBuf::from_text(format!("h{host}.example.").as_bytes(), None).unwrap();
        builder.add(owner.as_name(), 60, Rtype::A, &[192, 0, 2, *last]).unwrap();
    }
    builder.finish().unwrap()
}

fn addresses(zone: &Zone) -> BTreeSet<Address> {
    let of_host = |host: u8| {
        let owner = NameBuf::from_text(format!("h{host}.example.").as_bytes(), None).unwrap();
        let set = zone.find(owner.as_name().as_bytes()).and_then(|node| node.rrset(Rtype::A));
        set.into_iter()
            .flat_map(move |set| set.records().map(move |rdata| (host, rdata[3])))
            .collect::<Vec<_>>()
    };
    (0..3).flat_map(of_host).collect()
}

struct History {
    spec: ZoneSpec,
    directory: PathBuf,
    served: Zone,
    /// What the journal says last of each address, and the serial that it ends with.
    answered: (BTreeMap<Address, bool>, u32),
    /// All serials that there were.
    serials: Vec<u32>,
    is_edited: bool,
    edits: u64,
    asides: usize,
    log: Vec<String>,
}

impl History {
    fn new(seed: u64) -> History {
        let directory = std::env::temp_dir().join(format!("sidestep-history-{seed}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("a.zone");
        let served = zone(1, &BTreeSet::new());
        save(&file, &served).unwrap();
        let origin = Some(NameBuf::from_text(b"example.", None).unwrap());
        let spec = ZoneSpec { origin, ..ZoneSpec::of(file) };
        let answered = (BTreeMap::new(), 1);
        let log = vec![format!("seed {seed}")];
        History {
            spec,
            directory,
            served,
            answered,
            serials: vec![1],
            is_edited: false,
            edits: 0,
            asides: 0,
            log,
        }
    }

    fn step(&mut self, chance: &mut Chance) {
        match chance.below(12) {
            0..=6 => self.update(chance),
            7 | 8 => self.edit(chance),
            9 => self.fold(chance.below(2) == 0),
            _ => self.restart(),
        }
    }

    fn update(&mut self, chance: &mut Chance) {
        let (address, is_added) = (chance.address(), chance.below(2) == 0);
        let mut next = addresses(&self.served);
        let changes = if is_added { next.insert(address) } else { next.remove(&address) };
        let serial = self.served.serial().wrapping_add(chance.step());
        self.log.push(format!("{address:?} is there: {is_added}, serial {serial}"));
        let next = zone(serial, &next);
        let difference = Difference::between(&self.served, &next, usize::MAX).unwrap();
        add_update(&self.spec.file, &[Arc::new(difference)], &next).unwrap();
        self.served = next;
        self.answered.1 = serial;
        if changes {
            self.answered.0.insert(address, is_added);
        }
        self.serials.push(serial);
    }

    /// Somebody changes the file, or only its time.
    fn edit(&mut self, chance: &mut Chance) {
        let file = &self.spec.file;
        let held = read_file_alone(&self.spec).unwrap().tree().unwrap().clone();
        let mut content = addresses(&held);
        for _ in 0..chance.below(3) {
            let address = chance.address();
            if !content.remove(&address) {
                content.insert(address);
            }
        }
        let serial = match chance.below(3) {
            0 => held.serial(),
            1 => held.serial().wrapping_add(1),
            _ => self.serials[chance.below(self.serials.len() as u64) as usize],
        };
        self.log.push(format!("by hand: {content:?}, serial {serial}"));
        let has_journal = journal::path(file).exists();
        let mut text = Vec::new();
        write_zone_to(&zone(serial, &content), &mut text).unwrap();
        fs::write(file, text).unwrap();
        self.edits += 1;
        let time = SystemTime::now() + Duration::from_secs(1000 * self.edits);
        File::options().append(true).open(file).unwrap().set_modified(time).unwrap();
        self.is_edited = true;
        if !has_journal {
            self.restart(); // Without a journal nobody knows when the file was read.
        }
    }

    /// All of it goes into the file; with a crash before the journal is removed.
    fn fold(&mut self, is_crash: bool) {
        let journal = journal::path(&self.spec.file);
        let left = fs::read(&journal).ok();
        let is_settled = settle(&self.spec.file, &self.served).is_ok();
        self.log.push(format!("written anew: {is_settled}, crash: {is_crash}"));
        assert_eq!(is_settled, !(self.is_edited && left.is_some()), "{:#?}", self.log);
        if is_settled && let Some(left) = left.filter(|_| is_crash) {
            fs::write(&journal, left).unwrap();
            journal::set_time(&self.spec.file, SystemTime::UNIX_EPOCH).unwrap();
            self.restart();
        } else if is_settled {
            self.answered.0.clear();
        }
    }

    fn restart(&mut self) {
        let file = read_file_alone(&self.spec).unwrap().tree().unwrap().clone();
        let had_journal = !journal::look(&self.spec.file).unwrap().is_empty();
        let read = read(&self.spec).unwrap().tree().unwrap().clone();
        self.log.push(format!("restart: {:?}, serial {}", addresses(&read), read.serial()));
        if let Some(aside) = self.take_aside() {
            self.log.push("set aside".to_owned());
            assert!(self.is_edited, "nobody has changed the file: {:#?}", self.log);
            self.check_aside(&aside);
            assert_eq!(
                (read.serial(), addresses(&read)),
                (file.serial(), addresses(&file)),
                "{:#?}",
                self.log
            );
            self.answered.0.clear();
        } else {
            self.check(&file, &read, had_journal);
        }
        if !journal::path(&self.spec.file).exists() {
            self.answered.0.clear();
        }
        self.served = read;
        self.is_edited = false;
    }

    /// What was answered is served, and else what the file has.
    fn check(&self, file: &Zone, read: &Zone, had_journal: bool) {
        let mut expected = addresses(file);
        for (address, is_there) in &self.answered.0 {
            if *is_there {
                expected.insert(*address);
            } else {
                expected.remove(address);
            }
        }
        let serial = if had_journal { self.answered.1 } else { file.serial() };
        assert_eq!((read.serial(), addresses(read)), (serial, expected), "{:#?}", self.log);
    }

    fn take_aside(&mut self) -> Option<PathBuf> {
        let mut aside = journal::path(&self.spec.file).into_os_string();
        aside.push(".unfit");
        let taken = self.directory.join(format!("aside{}.journal", self.asides));
        fs::rename(aside, &taken).ok()?;
        self.asides += 1;
        Some(taken)
    }

    /// It has all that was answered.
    fn check_aside(&self, aside: &Path) {
        let differences = journal::look(&aside.with_extension("")).unwrap();
        assert_eq!(differences.last().unwrap().to(), self.answered.1, "{:#?}", self.log);
        let mut said = BTreeMap::new();
        for difference in &differences {
            let mut soas = 0;
            for record in difference.records() {
                soas += usize::from(record.rtype == Rtype::SOA);
                if record.rtype == Rtype::A {
                    let host = record.owner.labels().next().unwrap()[1] - b'0';
                    said.insert((host, record.rdata[3]), soas == 2);
                }
            }
        }
        assert_eq!(said, self.answered.0, "{:#?}", self.log);
    }
}

impl Drop for History {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn an_answered_update_is_served_or_set_aside_whatever_happens() {
    let mut asides = 0;
    for seed in 1..=150 {
        let (mut history, mut chance) =
            (History::new(seed), Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        (0..40).for_each(|_| history.step(&mut chance));
        history.restart();
        asides += history.asides;
    }
    assert!(asides > 50, "{asides} journals were set aside: nothing was tried");
}
