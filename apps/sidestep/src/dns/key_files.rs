//! The files of keys, as BIND's tools write them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use dns_sign::{Algorithm, Key, KeyFiles, KeySet, Role, Times};
use dns_wire::Name;
use rustix::fs::{FlockOperation, flock};

use super::journal;
use super::load::Stamp;
use super::privileges::{explain_denial, explain_write_denial};

/// Keeps others from changing the keys of a directory, until it is dropped.
///
/// The server and `dns key` both read times, decide, and write: without it one would write over what the other has decided meanwhile.
pub(super) struct Lock {
    _directory: File,
}

/// Waits until nobody else changes keys there.
pub(super) fn lock(directory: &Path) -> anyhow::Result<Lock> {
    const PATIENCE: Duration = Duration::from_secs(5);
    let began = Instant::now();
    let shown = directory.display();
    let file = File::open(directory).with_context(|| format!("opening the directory of keys {shown}"))?;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Lock { _directory: file }),
            Err(rustix::io::Errno::WOULDBLOCK) if began.elapsed() > PATIENCE => {
                bail!("another program holds the directory of keys {shown}: try again when that has ended")
            }
            Err(rustix::io::Errno::WOULDBLOCK) => thread::sleep(Duration::from_millis(10)),
            Err(error) => {
                return Err(error).with_context(|| format!("locking the directory of keys {shown}"));
            }
        }
    }
}

/// All keys of a zone in a directory.
pub(super) fn read(origin: Name<'_>, directory: &Path) -> anyhow::Result<KeySet> {
    let prefix = Key::file_prefix(origin);
    let names = match private_names(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(KeySet::default()),
        names => names.with_context(|| format!("looking for keys in {}", directory.display()))?,
    };
    let own = names.range(prefix.clone()..).take_while(|name| name.starts_with(&prefix));
    let read = |name: &String| {
        let path = directory.join(name);
        read_key(origin, &path).with_context(|| format!("reading the key {}", path.display()))
    };
    Ok(KeySet::new(own.map(read).collect::<Result<_, _>>()?))
}

thread_local! {
    /// Of a load on this thread: the names in each directory as they were at first, and those of keys that it made.
    static OF_LOAD: RefCell<Option<BTreeMap<PathBuf, Arc<BTreeSet<String>>>>> = const { RefCell::new(None) };
}

/// While `load` runs, this thread lists each directory of keys once, although the load itself changes it: zones that share one are many. Keys
/// that others make meanwhile are found afterwards.
pub(super) fn list_once<T>(load: impl FnOnce() -> T) -> T {
    OF_LOAD.set(Some(BTreeMap::new()));
    let loaded = load();
    OF_LOAD.set(None);
    loaded
}

/// The names of the files of private keys in a directory.
fn private_names(directory: &Path) -> io::Result<Arc<BTreeSet<String>>> {
    if let Some(names) = OF_LOAD.with_borrow(|held| held.as_ref()?.get(directory).cloned()) {
        return Ok(names);
    }
    let names = settled_names(directory)?;
    OF_LOAD.with_borrow_mut(|held| {
        held.as_mut().map(|held| held.insert(directory.to_owned(), Arc::clone(&names)))
    });
    Ok(names)
}

/// What private keys a directory had.
struct Listing {
    /// Of the directory, before it was listed.
    stamp: Stamp,
    names: Arc<BTreeSet<String>>,
}

/// The same. It is listed once for all the zones whose keys are there, unless it has changed.
fn settled_names(directory: &Path) -> io::Result<Arc<BTreeSet<String>>> {
    const LISTINGS_MAX: usize = 64;
    static LISTINGS: Mutex<BTreeMap<PathBuf, Listing>> = Mutex::new(BTreeMap::new());

    let mut listings = LISTINGS.lock().unwrap_or_else(PoisonError::into_inner); // Each change is whole.
    match listings.get(directory) {
        Some(held) if held.stamp.is_current(directory) => return Ok(Arc::clone(&held.names)),
        _ => drop(listings.remove(directory)),
    }
    let stamp = Stamp::of_settled(&fs::metadata(directory)?);
    let names = Arc::new(list_private(directory)?);
    if let Some(stamp) = stamp {
        if listings.len() >= LISTINGS_MAX {
            listings.clear();
        }
        listings.insert(directory.to_owned(), Listing { stamp, names: Arc::clone(&names) });
    }
    Ok(names)
}

fn list_private(directory: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for file in fs::read_dir(directory)? {
        let name = file?.file_name().into_string();
        names.extend(name.ok().filter(|name| name.ends_with(".private")));
    }
    Ok(names)
}

fn read_key(origin: Name<'_>, private: &Path) -> anyhow::Result<Key> {
    let public =
        fs::read_to_string(private.with_extension("key")).map_err(explain_denial).context("its .key file")?;
    let secret = fs::read_to_string(private).map_err(explain_denial)?;
    Ok(Key::read(origin, &public, &secret)?)
}

/// Makes a key, and says where it is, apart from the endings of its two files. It is on disk before anything is signed with it.
pub(super) fn generate(
    origin: Name<'_>,
    directory: &Path,
    algorithm: Algorithm,
    role: Role,
    times: Times,
) -> anyhow::Result<PathBuf> {
    write(directory, &KeyFiles::generate_by(algorithm, origin, role, times)?)
}

/// Writes the files of a new key, and says where they are, apart from their endings. Each is there whole or not at all, whenever others look
/// or the machine stops, and the public half first: a key counts from its private one on.
pub(super) fn write(directory: &Path, files: &KeyFiles) -> anyhow::Result<PathBuf> {
    let stem = directory.join(&files.stem);
    let write_all = || {
        fs::create_dir_all(directory)?;
        let [public, private] = ["key", "private"].map(|ending| with_ending(&stem, ending));
        // A crash may have left the public half of the same key, if that is in a token.
        let is_other = fs::read(&public).is_ok_and(|held| held != files.public.as_bytes());
        if is_other || private.try_exists()? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        replace(&public, 0o644, &files.public, directory)?;
        replace(&private, 0o600, &files.private, directory)?;
        OF_LOAD.with_borrow_mut(|held| {
            let names = held.as_mut().and_then(|held| held.get_mut(directory));
            names.map(|names| Arc::make_mut(names).insert(format!("{}.private", files.stem)))
        });
        io::Result::Ok(())
    };
    write_all().with_context(|| format!("writing the key {}", stem.display()))?;
    Ok(stem)
}

/// Gives a key other times. Whoever has read the old ones holds the lock since then.
pub(super) fn set_times(origin: Name<'_>, directory: &Path, key: &Key, times: Times) -> anyhow::Result<()> {
    let path = with_ending(&directory.join(key.file_stem(origin)), "private");
    let change = || replace(&path, 0o600, &times.written_into(&fs::read_to_string(&path)?), &path);
    change().with_context(|| format!("writing {}", path.display()))
}

/// Writes a file in place of the one that is there: a crash leaves one of them, whole. It belongs to the owner of `like`.
pub(super) fn replace(path: &Path, mode: u32, text: &str, like: &Path) -> io::Result<()> {
    let new = with_ending(path, "new");
    let _ = fs::remove_file(&new); // What a crash has left.
    write_new(&new, mode, text, like)?;
    fs::rename(&new, path)?;
    journal::sync_directory(path)
}

/// Writes a file that is not there. Root gives it to the owner of `like`: the server that is to read it may run as another user.
fn write_new(path: &Path, mode: u32, text: &str, like: &Path) -> io::Result<()> {
    let file = File::options().write(true).create_new(true).mode(mode).open(path);
    let mut file = file.map_err(explain_write_denial)?;
    if rustix::process::geteuid().is_root() {
        let owner = fs::metadata(like)?;
        std::os::unix::fs::fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// A path with a dot and an ending behind it: names of zones have dots of their own.
fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{ending}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use dns_wire::NameBuf;

    use super::*;

    #[test]
    fn a_directory_is_listed_again_when_it_has_changed() {
        let directory = std::env::temp_dir().join(format!("sidestep-listing-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let age = |seconds| {
            let then = std::time::SystemTime::now() - Duration::from_secs(seconds);
            File::open(&directory).unwrap().set_modified(then).unwrap();
        };
        let names = || private_names(&directory).unwrap();
        age(60);
        let listed = names();
        assert!(listed.is_empty() && Arc::ptr_eq(&listed, &names()));
        fs::write(directory.join("Ka.+013+00001.private"), "").unwrap();
        let (first, second) = (names(), names());
        assert_eq!(first.len(), 1);
        assert!(!Arc::ptr_eq(&first, &second), "the next change may have the same time as the last one");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_load_lists_a_directory_once_and_knows_the_keys_that_it_makes() {
        let directory = std::env::temp_dir().join(format!("sidestep-key-load-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let origin = NameBuf::from_text(b"example.", None).unwrap();
        let files = |number| {
            let about = (Role::KeySigning, Times::default());
            KeyFiles::of_token(origin.as_name(), about, (13, vec![number; 64]), "pkcs11:object=a").unwrap()
        };
        let keys = || read(origin.as_name(), &directory).unwrap().keys().len();
        list_once(|| {
            assert_eq!(keys(), 0);
            write(&directory, &files(7)).unwrap();
            assert_eq!(keys(), 1);
            std::thread::scope(|scope| scope.spawn(|| write(&directory, &files(8)).unwrap()).join()).unwrap();
            assert_eq!(keys(), 1, "another one's");
        });
        assert_eq!(keys(), 2);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_key_is_written_whole_and_in_place_of_no_other_one() {
        let directory = std::env::temp_dir().join(format!("sidestep-key-files-{}", std::process::id()));
        let origin = NameBuf::from_text(b"example.", None).unwrap();
        let about = (Role::KeySigning, Times::default());
        let files =
            KeyFiles::of_token(origin.as_name(), about, (13, vec![7; 64]), "pkcs11:object=a").unwrap();
        // What crashes have left: a half that was not renamed yet, and the public one.
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("{}.private.new", files.stem)), "half").unwrap();
        fs::write(directory.join(format!("{}.key", files.stem)), &files.public).unwrap();
        let keys = || read(origin.as_name(), &directory).unwrap().keys().len();
        assert_eq!(keys(), 0);
        write(&directory, &files).unwrap();
        assert_eq!((keys(), fs::read_dir(&directory).unwrap().count()), (1, 2));
        assert!(write(&directory, &files).is_err(), "it is there");
        fs::remove_file(directory.join(format!("{}.private", files.stem))).unwrap();
        fs::write(directory.join(format!("{}.key", files.stem)), "of another one").unwrap();
        assert!(write(&directory, &files).is_err(), "its private half may be elsewhere");
        fs::remove_dir_all(&directory).unwrap();
    }
}
