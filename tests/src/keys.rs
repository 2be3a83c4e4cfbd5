//! Keys of signed zones whose months pass in moments.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Makes all times in the files of keys in `directory` that many seconds older. Whoever reads a file meanwhile finds it whole.
pub fn make_keys_older(directory: &Path, seconds: u64) {
    for entry in fs::read_dir(directory).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_none_or(|ending| ending != "private") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let older = |line: &str| match line.split_once(": ") {
            Some((word, time)) if time.len() == 14 && time.bytes().all(|octet| octet.is_ascii_digit()) => {
                format!("{word}: {}\n", earlier(time, seconds))
            }
            _ => format!("{line}\n"),
        };
        let new = file.with_extension("older");
        fs::write(&new, text.lines().map(older).collect::<String>()).unwrap();
        fs::rename(&new, &file).unwrap();
    }
}

/// A time written YYYYMMDDHHMMSS so many seconds earlier.
fn earlier(time: &str, seconds: u64) -> String {
    let [date, clock] = [&time[..8], &time[8..]];
    let text = format!("{date} {}:{}:{} UTC {seconds} seconds ago", &clock[..2], &clock[2..4], &clock[4..]);
    let output = Command::new("date").args(["-u", "-d", &text, "+%Y%m%d%H%M%S"]).output().unwrap();
    assert!(output.status.success(), "{text}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
