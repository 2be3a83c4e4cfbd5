//! Programs that start programs: shells, Python, environments.

use crate::library::{With, mirror};

const PYTHON: &str = "
import multiprocessing, os, signal, socket, subprocess, sys, threading
print(subprocess.run(['sh', '-c', 'echo $0; exit 3'], stdout=subprocess.PIPE))
print(subprocess.run(['cat'], input=b'through pipes', stdout=subprocess.PIPE, close_fds=True))
print(subprocess.run(['sh', '-c', 'kill -9 $$']).returncode)
a, b = socket.socketpair()
print(subprocess.run(['sh', '-c', 'echo passed >&%d' % b.fileno()], pass_fds=[b.fileno()]).returncode, a.recv(64))
pid = os.posix_spawn('/bin/sh', ['sh', '-c', 'exit 7'], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, b.fileno(), 5)])
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(os.system('exit 5') >> 8, os.popen('echo popen').read())
pid = os.fork()
if pid == 0:
    b.send(b'from the child')
    os._exit(9)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), a.recv(64))
def work(queue): queue.put(sum(range(1000)))
queue = multiprocessing.Queue()
process = multiprocessing.Process(target=work, args=(queue,))
process.start(); print(queue.get()); process.join()
threads = [threading.Thread(target=subprocess.run, args=(['true'],)) for _ in range(8)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
try: subprocess.run(['/nowhere'])
except FileNotFoundError as error: print(error)
signal.signal(signal.SIGUSR1, lambda *_: print('handled'))
os.kill(os.getpid(), signal.SIGUSR1)
print(signal.getsignal(signal.SIGUSR1) is not None)
";

const SHELL: &str = "
echo one | cat | tr o 0
printf 'x\\n%.0s' 1 2 3 | while read -r line; do echo \"$line\"; done
trap 'echo trapped' USR1; kill -USR1 $$
(exit 4); echo $?
sleep 5 & kill $!; wait $! 2>/dev/null; echo $?
exec 5<>/dev/null 6>&5; echo gone >&6; exec 5>&- 6>&-
timeout 0.1 sleep 3; echo $?
echo \"$(echo inner)\"
exec sh -c 'echo last'
";

#[test]
fn python_starts_children_as_ever() {
    assert_same("python3", &["-c", PYTHON]);
}

#[test]
fn a_shell_is_a_shell() {
    assert_same("bash", &["-c", SHELL]);
}

#[test]
fn a_program_with_an_environment_of_its_own_is_still_of_the_family() {
    let output = With::Mirror.output("env", &["-i", "ONLY=this", "/usr/bin/env"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let preload = format!("LD_PRELOAD={}", mirror().display());
    let found: Vec<&str> = text.lines().collect();
    assert_eq!(found, ["SIDESTEP_BROKER=nobody", &preload, "ONLY=this"]);
}

#[test]
fn a_program_is_left_out_that_gets_the_broker_without_the_library() {
    let output = With::Mirror.output("env", &["-u", "LD_PRELOAD", "/usr/bin/env"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("SIDESTEP_BROKER=nobody") && !text.contains("LD_PRELOAD"), "{text}");
}

fn assert_same(program: &str, arguments: &[&str]) {
    let expected = With::Nothing.output(program, arguments);
    assert!(expected.status.success() && expected.stdout.len() > 30, "{expected:?}");
    for with in [With::Library, With::LostBroker, With::Mirror] {
        assert_eq!(with.output(program, arguments), expected, "{with:?}");
    }
}
