//! The file with what was before: written before each step, so that a crash at any moment leaves what an undo needs.
//!
//! An undo writes what the file says into the kernel, as root. The directory may be that of a server's user. So the file is read only if
//! nobody else can have written it, and nothing here follows a link that somebody else has put there.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ::doctor::Setting;
use anyhow::{Context, bail};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use super::machine::read;

const VERSION: u32 = 1;
/// O_NOFOLLOW and O_NONBLOCK for `custom_flags`: no link, and no wait for the other end of a pipe.
const PLAIN: i32 = rustix::fs::OFlags::NOFOLLOW.union(rustix::fs::OFlags::NONBLOCK).bits() as i32;
/// What to do about a file that is of no use.
const LOST: &str =
    "what was before is not known: remove it, and start the machine again to have the kernel's defaults";
/// Octets of the file, at most: thousands of changes.
const SIZE_MAX: u64 = 4 << 20;

/// What was changed, in order, and where.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    version: u32,
    boot: String,
    namespace: String,
    /// The kernel's number for the namespace that is never used again; that in `namespace` is. States of before do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cookie: Option<u64>,
    pub(super) changes: Vec<Change>,
}

/// One change that was made, or was about to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    pub(super) setting: Setting,
    /// The number of its interface, if it has one: the name may change. States of before do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) number: Option<u32>,
    pub(super) before: String,
    pub(super) after: String,
}

/// The file, held by this process alone.
pub(super) struct StateFile {
    path: PathBuf,
    _lock: File,
}

impl StateFile {
    /// Makes the directory if that is missing.
    pub(super) fn open(path: &Path) -> anyhow::Result<StateFile> {
        let directory =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let made = DirBuilder::new().recursive(true).mode(0o755).create(directory);
        made.with_context(|| format!("making {}", directory.display()))?;
        let name = beside(path, ".lock");
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600).custom_flags(PLAIN);
        let lock = options.open(&name);
        let lock = lock.with_context(|| name.display().to_string())?;
        match lock.try_lock() {
            Ok(()) => Ok(StateFile { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => bail!("another `sidestep tune` uses {}", path.display()),
            Err(TryLockError::Error(error)) => Err(error).with_context(|| name.display().to_string()),
        }
    }

    /// The same of a file that is there; `None` leaves nothing behind, neither a directory nor a lock.
    pub(super) fn open_existing(path: &Path) -> anyhow::Result<Option<StateFile>> {
        let is_there = fs::symlink_metadata(path).is_ok();
        is_there.then(|| StateFile::open(path)).transpose()
    }

    /// What the file holds; `None` if it is not there.
    pub(super) fn load(&self) -> anyhow::Result<Option<State>> {
        let name = || self.path.display().to_string();
        let file = match OpenOptions::new().read(true).custom_flags(PLAIN).open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(name),
        };
        let metadata = file.metadata().with_context(name)?;
        let is_own = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0;
        if !metadata.is_file() {
            bail!("{} is no file: name another --state", name());
        }
        if !is_own {
            bail!("{} is not used: others can have written it", name());
        }
        let mut text = String::new();
        file.take(SIZE_MAX).read_to_string(&mut text).with_context(name)?;
        let state: State = serde_json::from_str(&text)
            .with_context(|| format!("{} is not a state of `sidestep tune`; {LOST}", self.path.display()))?;
        if state.version != VERSION {
            bail!(
                "{} is of version {}, and this program knows {VERSION}",
                self.path.display(),
                state.version
            );
        }
        Ok(Some(state))
    }

    /// Replaces the file as a whole, and returns when that is on the disk.
    pub(super) fn save(&self, state: &State) -> anyhow::Result<()> {
        let save = || -> io::Result<()> {
            let new = beside(&self.path, ".new");
            match fs::remove_file(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new)?;
            file.write_all(&serde_json::to_vec_pretty(state)?)?;
            file.sync_all()?;
            fs::rename(&new, &self.path)
        };
        save().with_context(|| format!("writing {}", self.path.display()))
    }

    /// Nothing is left to undo.
    pub(super) fn remove(&self) -> anyhow::Result<()> {
        fs::remove_file(&self.path).with_context(|| format!("removing {}", self.path.display()))
    }
}

impl State {
    /// Of this boot and this network namespace.
    pub(super) fn new() -> anyhow::Result<State> {
        let boot = read("/proc/sys/kernel/random/boot_id");
        let boot = boot.get().context("the kernel does not name this boot")?.clone();
        let namespace = fs::read_link("/proc/self/ns/net").context("/proc/self/ns/net")?;
        let namespace = namespace.to_string_lossy().into_owned();
        let cookie = namespace_cookie().ok();
        Ok(State { version: VERSION, boot, namespace, cookie, changes: Vec::new() })
    }

    /// Whether the machine has not been started again between the two. What `tune` changes does not survive that: the kernel has its defaults then,
    /// and whatever has a value of ours has it from somebody else.
    pub(super) fn is_of_boot(&self, now: &State) -> bool {
        self.boot == now.boot
    }

    /// Enters a change that is about to be made. A setting has one: if it is ours already, it goes back to where that began.
    pub(super) fn note(&mut self, mut change: Change) {
        let earlier = self.changes.iter().position(|earlier| earlier.setting == change.setting);
        if let Some(earlier) = earlier.map(|place| self.changes.remove(place))
            && earlier.after == change.before
        {
            change.before = earlier.before;
        }
        self.changes.push(change);
    }

    /// A change was taken back. What was changed before it still is.
    pub(super) fn forget(&mut self, undone: Change) {
        let place = self.changes.iter().position(|change| change.setting == undone.setting);
        if let Some(change) = place.map(|place| self.changes.remove(place))
            && change.before != undone.before
        {
            self.changes.push(Change { after: undone.before, ..change });
        }
    }

    /// An interface of the same name in another network namespace is another one.
    pub(super) fn check_place(&self) -> anyhow::Result<()> {
        let now = State::new()?;
        if !self.changes.iter().any(|change| change.setting.interface().is_some()) {
            return Ok(());
        }
        if self.namespace != now.namespace {
            bail!(
                "the changes were made in another network namespace ({}): go there, or name another --state",
                self.namespace
            );
        }
        if self.cookie.zip(now.cookie).is_some_and(|(then, now)| then != now) {
            bail!(
                "the changes were made in a network namespace that is gone, whose number this one has now ({}): name another --state",
                self.namespace
            );
        }
        Ok(())
    }
}

/// SO_NETNS_COOKIE, which kernels before 5.14 do not have.
fn namespace_cookie() -> io::Result<u64> {
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    syscall::network_namespace(socket.as_raw_fd())
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn directory(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("sidestep-tune-{name}-{}", std::process::id()))
    }

    #[test]
    fn what_is_saved_is_loaded_and_then_removed() {
        let directory = directory("saved");
        let file = StateFile::open(&directory.join("deep/tune.json")).unwrap();
        assert!(file.load().unwrap().is_none());
        let mut state = State::new().unwrap();
        let setting = Setting::Feature { interface: "eth0".to_owned(), name: "rx-lro".to_owned() };
        state.changes.push(Change {
            setting,
            number: Some(7),
            before: "on".to_owned(),
            after: "off".to_owned(),
        });
        file.save(&state).unwrap();
        assert_eq!(file.load().unwrap().unwrap().changes, state.changes);
        file.remove().unwrap();
        assert!(file.load().unwrap().is_none());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_is_not_there_is_not_made_for_an_undo() {
        let directory = directory("absent");
        assert!(StateFile::open_existing(&directory.join("tune.json")).unwrap().is_none());
        assert!(!directory.exists());
    }

    #[test]
    fn two_do_not_use_it_at_once() {
        let directory = directory("lock");
        let path = directory.join("tune.json");
        let _first = StateFile::open(&path).unwrap();
        let second = StateFile::open(&path).err().unwrap().to_string();
        assert!(second.starts_with("another `sidestep tune` uses"), "{second}");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_is_no_state_is_refused_by_name() {
        let directory = directory("damaged");
        let path = directory.join("tune.json");
        let file = StateFile::open(&path).unwrap();
        for text in ["", "{}", "[1]", r#"{"version":2,"boot":"","namespace":"","changes":[]}"#] {
            fs::write(&path, text).unwrap();
            let error = file.load().err().unwrap().to_string();
            assert!(error.contains("tune.json"), "{error}");
            let is_damaged = !text.contains("version");
            assert_eq!(error.contains("start the machine again"), is_damaged, "{error}");
        }
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_others_can_have_written_is_not_read_and_links_are_not_followed() {
        let directory = directory("others");
        let path = directory.join("tune.json");
        let file = StateFile::open(&path).unwrap();
        let target = directory.join("target");
        fs::write(&target, "as it was").unwrap();
        std::os::unix::fs::symlink(&target, beside(&path, ".new")).unwrap();
        file.save(&State::new().unwrap()).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "as it was");

        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let error = file.load().err().unwrap().to_string();
        assert!(error.contains("others can have written it"), "{error}");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(file.load().is_err());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_pipe_is_no_state_and_nobody_waits_for_its_other_end() {
        let directory = directory("pipe");
        let path = directory.join("tune.json");
        let file = StateFile::open(&path).unwrap();
        let make = |path: &Path| {
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        };
        make(&path);
        let error = file.load().err().unwrap().to_string();
        assert!(error.ends_with("is no file: name another --state"), "{error}");
        drop(file);
        fs::remove_file(beside(&path, ".lock")).unwrap();
        make(&beside(&path, ".lock"));
        assert!(StateFile::open(&path).is_err());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn another_namespace_is_no_place_to_undo() {
        let mut state = State::new().unwrap();
        state.note(change("on", "off"));
        assert!(state.check_place().is_ok());
        state.namespace = "net:[1]".to_owned();
        assert!(state.check_place().is_err());
    }

    #[test]
    fn a_namespace_that_has_the_number_of_one_before_is_another_one() {
        let mut state = State::new().unwrap();
        state.note(change("on", "off"));
        let Some(cookie) = state.cookie else { return };
        state.cookie = Some(cookie + 1);
        let error = state.check_place().unwrap_err().to_string();
        assert!(error.contains("a network namespace that is gone"), "{error}");
    }

    #[test]
    fn a_state_of_before_has_no_cookie_and_is_known_by_the_number() {
        let mut state = State::new().unwrap();
        state.note(change("on", "off"));
        let mut before = serde_json::to_value(&state).unwrap();
        before.as_object_mut().unwrap().remove("cookie");
        let before: State = serde_json::from_value(before).unwrap();
        assert!(before.cookie.is_none() && before.check_place().is_ok());
    }

    fn change(before: &str, after: &str) -> Change {
        let setting = Setting::Feature { interface: "eth0".to_owned(), name: "rx-lro".to_owned() };
        Change { setting, number: None, before: before.to_owned(), after: after.to_owned() }
    }

    #[test]
    fn a_setting_has_one_change_however_often_it_is_applied() {
        let mut state = State::new().unwrap();
        (0..3).for_each(|_| state.note(change("1", "2")));
        assert_eq!(state.changes, [change("1", "2")], "somebody set it back in between");
        state.note(change("2", "4"));
        assert_eq!(state.changes, [change("1", "4")], "it goes back to where it began");
        state.note(change("3", "4"));
        assert_eq!(state.changes, [change("3", "4")], "others have set it since: that is what was before");
    }

    #[test]
    fn a_change_that_is_taken_back_leaves_those_before_it() {
        let mut state = State::new().unwrap();
        state.note(change("1", "2"));
        state.note(change("2", "4"));
        state.forget(change("2", "4"));
        assert_eq!(state.changes, [change("1", "2")]);
        state.forget(change("1", "2"));
        assert_eq!(state.changes, []);
    }
}
