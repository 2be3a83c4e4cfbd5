//! What cannot be accelerated runs on the kernel: the program runs to its own end, and one line says why.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::programs::Network;
use lab::{Child, Directory, SERVER_INTERFACE, Side, sidestep_binary};

use crate::trial::{PATIENCE, Trial, finish};

/// Says whether a library was put in front of its calls, and has a status of its own.
const SOURCE: &str = "#include <stdio.h>\n#include <stdlib.h>\n\
                      int main(void) { puts(getenv(\"LD_PRELOAD\") ? \"preloaded\" : \"alone\"); return 7; }\n";
/// A user and group without any privileges.
const NOBODY: u32 = 65_534;
/// An XDP program that passes everything on.
const OTHERS: &str = "__attribute__((section(\"xdp\"), used)) int others(void *context) { return 2; }\n\
                      char _license[] __attribute__((section(\"license\"), used)) = \"GPL\";\n";

/// A laboratory, and a directory with the program.
struct Scene {
    trial: Trial,
    directory: Directory,
}

impl Scene {
    /// `None` if there can be no laboratory, or if the programs are to run without Sidestep.
    fn new(name: &str) -> Option<Scene> {
        let trial = Trial::of(name)?;
        if trial.network == Network::Kernel {
            return None;
        }
        let directory = Directory::new().unwrap();
        directory.write("program.c", SOURCE).unwrap();
        Some(Scene { trial, directory })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Compiles the program to a file of this name.
    fn compile(&self, name: &str, options: &[&str]) -> PathBuf {
        let (source, program) = (self.path("program.c"), self.path(name));
        finish(Command::new("cc").args(options).arg("-o").args([&program, &source]));
        program
    }

    /// Has the interface run somebody else's XDP program.
    fn occupy(&self, interface: &str, mode: &str) {
        let source = self.directory.write("others.c", OTHERS).unwrap();
        let object = self.path("others.o");
        finish(Command::new("clang").args(["-O2", "-target", "bpf", "-c", "-o"]).args([&object, &source]));
        let object = object.display();
        self.trial
            .lab
            .ip(Side::Server, &format!("link set dev {interface} {mode} obj {object} sec xdp"))
            .unwrap();
    }

    /// Runs the program by `sidestep run` on this interface, and expects that it runs on the kernel for this reason.
    fn assert_runs_on_kernel(&self, interface: &str, program: &Path, reason: &str) {
        let sidestep = sidestep_binary().display().to_string();
        self.assert_left(self.trial.lab.command(Side::Server, &sidestep), interface, program, reason);
    }

    /// The same for a command that is `sidestep` already.
    fn assert_left(&self, command: Command, interface: &str, program: &Path, reason: &str) {
        self.assert_says(command, interface, program, reason, "alone");
    }

    /// Runs the program, and expects one line of ours, and one of its own.
    fn assert_says(
        &self,
        mut command: Command,
        interface: &str,
        program: &Path,
        reason: &str,
        program_says: &str,
    ) {
        command.args(["run", "--device", interface, "--"]).arg(program);
        let mut child = Child::spawn("sidestep run", &mut command).unwrap();
        let status = child.wait(PATIENCE).unwrap();
        let output = child.output();
        assert_eq!(status.code(), Some(7), "{output}");
        let (ours, its): (Vec<&str>, Vec<&str>) =
            output.lines().partition(|line| line.contains(" sidestep: "));
        assert_eq!(its, [program_says], "{output}");
        let [line] = ours[..] else { panic!("not one line: {output}") };
        let name = program.file_name().unwrap().to_str().unwrap();
        let told = line.split_once(&format!(" WARN  sidestep: {name} runs on the kernel: "));
        assert!(told.is_some_and(|(_, told)| told.contains(reason)), "{line}");
    }
}

#[test]
fn a_static_program() {
    let Some(scene) = Scene::new("static program") else { return };
    let program = scene.compile("fixed", &["-static"]);
    scene.assert_runs_on_kernel(SERVER_INTERFACE, &program, "it is statically linked");
}

/// Asks for a ring by an instruction of its own, past all hooks, as liburing does.
#[test]
fn a_program_that_asks_the_kernel_for_a_ring() {
    const RING: &str = "#include <errno.h>\n#include <stdio.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n\
        int main(void) { long answer;\n\
        #if defined(__x86_64__)\n\
        __asm__ volatile(\"syscall\" : \"=a\"(answer) : \"a\"(SYS_io_uring_setup), \"D\"(1), \"S\"(0) : \"rcx\", \"r11\", \"memory\");\n\
        #else\n\
        register long x8 __asm__(\"x8\") = SYS_io_uring_setup, x0 __asm__(\"x0\") = 1, x1 __asm__(\"x1\") = 0;\n\
        __asm__ volatile(\"svc 0\" : \"+r\"(x0) : \"r\"(x8), \"r\"(x1) : \"memory\"); answer = x0;\n\
        #endif\n\
        if (syscall(SYS_io_uring_setup, 1, 0) != -1 || (errno == ENOSYS) != (answer == -ENOSYS)) puts(\"by libc it is another:\");\n\
        puts(answer == -ENOSYS ? \"no ring\" : \"a ring, or a reason\"); return 0; }\n";
    let Some(scene) = Scene::new("a program that wants a ring") else { return };
    scene.directory.write("program.c", RING).unwrap();
    let program = scene.compile("ring", &[]);
    let says = |options: &[&str]| {
        let sidestep = sidestep_binary().display().to_string();
        let mut command = scene.trial.lab.command(Side::Server, &sidestep);
        finish(command.args(["run", "--device", SERVER_INTERFACE]).args(options).arg("--").arg(&program))
    };
    assert_eq!(says(&[]), "no ring");
    assert_eq!(says(&["--io-uring"]), "a ring, or a reason", "the kernel itself answers EFAULT");
}

/// The note by which Go's linker names a build is what a Go program is known by.
#[test]
fn a_go_program() {
    let Some(scene) = Scene::new("Go program") else { return };
    let note = "__attribute__((section(\".note.go.buildid\"), used, aligned(4)))\n\
                static const struct { int name, len, type; char owner[4], id[4]; } note = { 4, 4, 4, \"Go\", \"id\" };\n";
    scene.directory.write("program.c", &format!("{note}{SOURCE}")).unwrap();
    let program = scene.compile("go", &[]);
    let command = scene.trial.lab.command(Side::Server, &sidestep_binary().display().to_string());
    scene.assert_says(command, SERVER_INTERFACE, &program, "it is a Go program", "preloaded");
}

#[test]
fn a_setuid_program() {
    let Some(scene) = Scene::new("setuid program") else { return };
    let program = scene.compile("raised", &[]);
    chown(&program, Some(NOBODY), Some(NOBODY)).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).unwrap();
    scene.assert_runs_on_kernel(SERVER_INTERFACE, &program, "it is setuid");
}

#[test]
fn a_user_without_privileges() {
    let Some(scene) = Scene::new("no privileges") else { return };
    let program = scene.compile("program", &[]);
    // Where it was built, others may not be allowed to look.
    let built = sidestep_binary().parent().unwrap();
    for file in ["sidestep", "libsidestep_preload.so"] {
        std::fs::copy(built.join(file), scene.path(file)).unwrap();
    }
    let mut command = scene.trial.lab.command(Side::Server, "setpriv");
    let nobody = NOBODY.to_string();
    command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"]).arg(scene.path("sidestep"));
    scene.assert_left(command, SERVER_INTERFACE, &program, "not permitted: run as root");
}

#[test]
fn an_interface_that_is_not_there_or_runs_anothers_xdp_program() {
    let Some(scene) = Scene::new("another's interface") else { return };
    let program = scene.compile("program", &[]);
    scene.assert_runs_on_kernel("no-such-if", &program, "there is no interface no-such-if");
    scene.occupy(SERVER_INTERFACE, "xdp");
    let reason = format!("{SERVER_INTERFACE} already runs the XDP program \"others\"");
    scene.assert_runs_on_kernel(SERVER_INTERFACE, &program, &reason);
}

/// The kernel refuses XDP programs at interfaces below one that has one.
#[test]
fn an_interface_that_takes_no_xdp_program() {
    let Some(scene) = Scene::new("no XDP") else { return };
    let program = scene.compile("program", &[]);
    let ip = |words: &str| scene.trial.lab.ip(Side::Server, words);
    if ip("link add bridge type bridge").is_err() {
        return lab::skip("needs a kernel with bridges");
    }
    ip(&format!("link set {SERVER_INTERFACE} master bridge")).unwrap();
    scene.occupy("bridge", "xdpgeneric");
    let reason = format!("{SERVER_INTERFACE} takes no XDP program");
    scene.assert_runs_on_kernel(SERVER_INTERFACE, &program, &reason);
}
