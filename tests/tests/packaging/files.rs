//! What is installed where, and that it works from there.

use std::fs;
use std::path::Path;
use std::process::Command;

use lab::{Directory, workspace_root};

use crate::{binaries, install_into, is_root, package, text};

/// Files of the package, of those that matter to others.
const FILES: [&str; 13] = [
    "/usr/bin/sidestep",
    "/usr/lib/sidestep/libsidestep_preload.so",
    "/usr/lib/systemd/system/sidestep-dns.service",
    "/usr/lib/systemd/system/sidestep-broker.service",
    "/usr/lib/systemd/system/sidestep-run@.service",
    "/usr/lib/sysusers.d/sidestep.conf",
    "/usr/share/man/man1/sidestep.1.gz",
    "/usr/share/man/man1/sidestep-dns-serve.1.gz",
    "/usr/share/bash-completion/completions/sidestep",
    "/usr/share/fish/vendor_completions.d/sidestep.fish",
    "/usr/share/zsh/vendor-completions/_sidestep",
    "/usr/share/doc/sidestep/copyright",
    "/etc/sidestep/dns.toml",
];

#[test]
fn a_relative_destination_is_below_the_current_directory() {
    let directory = Directory::new().unwrap();
    let mut install = Command::new(workspace_root().join("packaging/install.sh"));
    install.current_dir(directory.path()).env("DESTDIR", "stage").env("PREFIX", "/usr").arg(binaries());
    text(install.output().unwrap());
    assert!(directory.path().join("stage/usr/bin/sidestep").exists());
}

/// `make install` with these variables.
fn make_install(variables: &[String]) {
    let mut command = Command::new("make");
    command.current_dir(workspace_root()).args(["--silent", "install"]).args(variables);
    text(command.arg(format!("BINARIES={}", binaries().display())).output().unwrap());
}

#[test]
fn the_package_has_all_files_and_names_its_configuration() {
    if !is_root() {
        return;
    }
    let list = |option: &str| text(Command::new("dpkg-deb").arg(option).arg(package()).output().unwrap());
    let contents = list("--contents");
    let names: Vec<&str> = contents.lines().filter_map(|line| line.rsplit(" .").next()).collect();
    FILES.iter().for_each(|file| assert!(names.contains(file), "{file} is missing: {contents}"));
    let owners = contents.lines().filter_map(|line| line.split_whitespace().nth(1));
    owners.for_each(|owner| assert_eq!(owner, "root/root"));

    let mut conffiles = Command::new("dpkg-deb");
    let conffiles = text(conffiles.arg("--info").arg(package()).arg("conffiles").output().unwrap());
    let expected =
        ["/etc/sidestep/dns.toml", "/etc/sidestep/run/nginx.env", "/etc/sidestep/zones/localhost.zone"];
    assert_eq!(conffiles.lines().collect::<Vec<_>>(), expected);
    let fields = list("--field");
    assert!(fields.contains("Package: sidestep\n") && fields.contains("Depends: libc6 (>= 2."), "{fields}");
}

#[test]
fn an_empty_root_gets_a_user_and_a_command_that_works() {
    if !is_root() {
        return;
    }
    let root = Directory::new().unwrap();
    install_into(root.path());
    let users = fs::read_to_string(root.path().join("etc/passwd")).unwrap();
    assert!(users.lines().any(|line| line.starts_with("sidestep:")), "{users}");

    let sidestep = root.path().join("usr/bin/sidestep");
    let version = text(Command::new(&sidestep).arg("--version").output().unwrap());
    assert_eq!(version, format!("sidestep {}\n", env!("CARGO_PKG_VERSION")));
    // This host need not have the user.
    let configuration = root.path().join("etc/sidestep/dns.toml");
    let named = fs::read_to_string(&configuration).unwrap();
    assert!(named.contains("\nuser = \"sidestep\"\n"), "{named}");
    fs::write(&configuration, named.replace("\nuser = \"sidestep\"\n", "\nuser = \"root\"\n")).unwrap();
    let mut check = Command::new(&sidestep);
    let checked = text(check.args(["dns", "check", "--config"]).arg(configuration).output().unwrap());
    assert!(checked.contains("zone localhost. serial 1"), "{checked}");
    // The library is found from there: nothing else is in the way of a program that is left to the kernel.
    let mut run = Command::new(&sidestep);
    run.args(["run", "--device", "lo", "--", "true"]);
    let output = run.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && !said.contains("libsidestep_preload"), "{said}");
}

#[test]
fn man_pages_and_completions_come_from_the_command_line() {
    if !is_root() {
        return;
    }
    let root = Directory::new().unwrap();
    install_into(root.path());
    let mut page = Command::new("zcat");
    let page =
        text(page.arg(root.path().join("usr/share/man/man1/sidestep-dns-serve.1.gz")).output().unwrap());
    assert!(
        page.starts_with(".ie \\n(.g") && page.contains(".SH OPTIONS") && page.contains("\\-\\-spin\\-us"),
        "{page}"
    );
    let completions = root.path().join("usr/share/bash-completion/completions/sidestep");
    let script = format!(
        "source {}; COMP_WORDS=(sidestep dns serve --sp) COMP_CWORD=3; _sidestep sidestep --sp serve; echo ${{COMPREPLY[@]}}",
        completions.display()
    );
    assert_eq!(text(Command::new("bash").args(["-c", &script]).output().unwrap()), "--spin-us\n");
}

#[test]
fn make_install_obeys_its_variables_and_keeps_configuration() {
    if !is_root() {
        return;
    }
    let destination = Directory::new().unwrap();
    let variables = ["PREFIX=/opt/sidestep".to_owned(), format!("DESTDIR={}", destination.path().display())];
    make_install(&variables);
    let read = |path: &str| fs::read_to_string(destination.path().join(Path::new(path))).unwrap();
    let unit = read("opt/sidestep/lib/systemd/system/sidestep-dns.service");
    assert!(
        unit.contains("\nExecStart=/opt/sidestep/bin/sidestep dns serve --config /etc/sidestep/dns.toml\n"),
        "{unit}"
    );

    let configuration = destination.path().join("etc/sidestep/dns.toml");
    fs::write(&configuration, "# mine\n").unwrap();
    make_install(&variables);
    assert_eq!(read("etc/sidestep/dns.toml"), "# mine\n");
}
