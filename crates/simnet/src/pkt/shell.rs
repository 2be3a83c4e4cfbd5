//! Shell commands in scripts. None is run: those that set what the stack has are understood, those that have no meaning
//! here are left out, and all others are not supported.

use super::python::{Interpreter, Value};

/// What a command means for a simulated stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A setting of the kernel, by its name with dots.
    Sysctl(String, String),
    /// The link's MTU.
    Mtu(u16),
    /// The segment size to which the link clamps what both sides announce.
    MssClamp(u16),
    /// Counters are remembered, as `nstat` does.
    RememberCounters,
    /// This counter must have changed since they were remembered.
    CounterChanged(String),
    /// Whether the link's queue loses all that the stack sends.
    LosesAll(bool),
    /// Nothing; the text says what was left out.
    Ignored(String),
}

/// Commands without meaning where there is no kernel, file system or queueing discipline.
const WITHOUT_EFFECT: &[&str] = &[
    "true", ":", "set", "echo", "ethtool", "modprobe", "rm", "sync", "ss", "cat", "dmesg", "source",
    "export", "dd", "touch",
];

/// Settings that most scripts begin with, by a script of this name that lies beside them.
const DEFAULTS: &[(&str, &str)] = &[
    ("net.ipv4.tcp_rmem", "4096 540000 15728640"),
    ("net.ipv4.tcp_wmem", "4096 262144 4194304"),
    ("net.ipv4.tcp_timestamps", "1"),
    ("net.ipv4.tcp_syn_retries", "5"),
    ("net.ipv4.tcp_synack_retries", "5"),
    ("net.ipv4.tcp_sack", "1"),
    ("net.ipv4.tcp_congestion_control", "cubic"),
    ("net.ipv4.tcp_slow_start_after_idle", "0"),
    ("net.ipv4.tcp_ecn", "0"),
    ("net.ipv4.tcp_fastopen", "3"),
    ("net.ipv4.tcp_syncookies", "1"),
];

/// What the lines of `text` mean. The error names the command that has no meaning here.
pub fn effects(text: &str) -> Result<Vec<Effect>, String> {
    let joined = text.replace("\\\n", " ");
    let mut effects = Vec::new();
    for statement in statements(&joined) {
        let mut pipeline = statement.split(|word| word == "|");
        let command = without_redirection(pipeline.next().unwrap_or_default());
        let filters: Vec<Vec<String>> = pipeline.map(without_redirection).collect();
        let Some(name) = command.first() else { continue };
        effects.extend(command_effects(name, &command, &statement, &filters)?);
    }
    Ok(effects)
}

fn command_effects(
    name: &str,
    command: &[String],
    statement: &[String],
    filters: &[Vec<String>],
) -> Result<Vec<Effect>, String> {
    let base = name.rsplit('/').next().unwrap_or(name);
    let arguments = &command[1..];
    if base == "set_sysctls.py" || base == "sysctl" {
        return Ok(arguments.iter().filter_map(|argument| sysctl(argument)).collect());
    }
    if let ("echo", Some(path)) = (base, redirection_target(statement))
        && let Some(name) = sysctl_name(path)
    {
        return Ok(vec![Effect::Sysctl(name, arguments.join(" "))]);
    }
    match base {
        "nstat" => nstat(filters).map(|effect| vec![effect]),
        "iptables" | "ip6tables" if let Some(size) = mss_clamp(arguments) => Ok(vec![Effect::MssClamp(size)]),
        "ip" if arguments.windows(2).any(|pair| pair == ["route", "add"]) => {
            Ok(route(arguments).into_iter().chain([ignored(statement)]).collect())
        }
        "ip" => link(arguments, statement).map(|effect| vec![effect]),
        "tc" => {
            let loses_all = arguments.windows(2).any(|pair| pair == ["limit", "0"]);
            let rest = (!loses_all).then(|| ignored(statement));
            Ok([Effect::LosesAll(loses_all)].into_iter().chain(rest).collect())
        }
        "defaults.sh" => {
            let sysctl =
                |(name, value): &(&str, &str)| Effect::Sysctl((*name).to_owned(), (*value).to_owned());
            Ok(DEFAULTS.iter().map(sysctl).collect())
        }
        _ if base.starts_with("sysctl_restore") => Ok(vec![ignored(statement)]),
        _ if WITHOUT_EFFECT.contains(&base) => Ok(vec![ignored(statement)]),
        "sh" | "bash" | "python" | "python3" if !arguments.is_empty() && !arguments[0].starts_with('-') => {
            command_effects(&arguments[0], arguments, statement, filters)
        }
        _ => Err(format!("shell command `{}`", statement.join(" "))),
    }
}

fn ignored(statement: &[String]) -> Effect {
    Effect::Ignored(statement.join(" "))
}

/// `net.ipv4.tcp_sack=1` or `/proc/sys/net/ipv4/tcp_sack=1`; `None` for an option.
fn sysctl(argument: &str) -> Option<Effect> {
    let (name, value) = argument.split_once('=')?;
    let name = sysctl_name(name).unwrap_or_else(|| name.replace('/', "."));
    Some(Effect::Sysctl(name, value.trim().to_owned()))
}

fn sysctl_name(path: &str) -> Option<String> {
    path.strip_prefix("/proc/sys/").map(|name| name.replace('/', "."))
}

/// `nstat > /dev/null` remembers, `nstat | grep NAME` asks.
fn nstat(filters: &[Vec<String>]) -> Result<Effect, String> {
    match filters {
        [] => Ok(Effect::RememberCounters),
        [grep] if grep.first().is_some_and(|name| name == "grep") => {
            let name = grep[1..].iter().find(|word| !word.starts_with('-')).cloned().unwrap_or_default();
            Ok(Effect::CounterChanged(name))
        }
        _ => Err("nstat with more than one grep".to_owned()),
    }
}

/// `ip link set dev tun0 mtu 1400`; flushing of caches, of which there are none at the start.
fn link(arguments: &[String], statement: &[String]) -> Result<Effect, String> {
    let mtu = arguments.windows(2).find(|pair| pair[0] == "mtu").and_then(|pair| pair[1].parse().ok());
    match arguments.first().map(String::as_str) {
        Some("link") if mtu.is_some() => Ok(Effect::Mtu(mtu.unwrap_or_default())),
        Some("tcp_metrics" | "tcpmetrics") => Ok(ignored(statement)),
        _ if arguments.iter().any(|word| word == "flush") => Ok(ignored(statement)),
        _ => Err(format!("shell command `{}`", statement.join(" "))),
    }
}

/// `ip route add ... advmss 600 mtu lock 640`: as there is one peer, its route is the link.
fn route(arguments: &[String]) -> Vec<Effect> {
    let number_of = |name: &str| {
        let mut behind = arguments.iter().skip_while(|word| *word != name).skip(1);
        behind.find(|word| *word != "lock")?.parse().ok()
    };
    let (mtu, size) = (number_of("mtu").map(Effect::Mtu), number_of("advmss").map(Effect::MssClamp));
    mtu.into_iter().chain(size).collect()
}

/// `iptables -t mangle -A POSTROUTING -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1200`.
fn mss_clamp(arguments: &[String]) -> Option<u16> {
    arguments.windows(2).find(|pair| pair[0] == "--set-mss")?[1].parse().ok()
}

fn redirection_target(statement: &[String]) -> Option<&str> {
    let at = statement.iter().position(|word| word == ">")?;
    statement.get(at + 1).map(String::as_str)
}

/// The words in front of a redirection.
fn without_redirection(words: &[String]) -> Vec<String> {
    let is_redirection =
        |word: &String| matches!(word.as_str(), ">" | "2>" | "&>" | "<") || word.contains(">&");
    words.iter().take_while(|word| !is_redirection(word)).cloned().collect()
}

/// The statements of a text as words: quotes taken away, `$((...))` computed, assignments to variables left out.
fn statements(text: &str) -> Vec<Vec<String>> {
    let mut words = Words { statements: vec![Vec::new()], word: None };
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let len = match c {
            '"' | '\'' => words.quoted(rest, c),
            '$' if rest.starts_with("$((") => words.computed(rest),
            '#' if words.word.is_none() => rest.find('\n').unwrap_or(rest.len()),
            '\n' | ';' => words.end_statement(1),
            '&' if rest.starts_with("&&") => words.end_statement(2),
            '|' if rest.starts_with("||") => words.end_statement(2),
            '|' => words.symbol("|"),
            '>' if words.word.is_none() => words.symbol(">"),
            _ if c.is_whitespace() => words.end_word(c.len_utf8()),
            _ => words.push(&rest[..c.len_utf8()]),
        };
        rest = &rest[len..];
    }
    words.end_word(0);
    words.statements.retain(|statement| !statement.is_empty());
    words.statements
}

struct Words {
    statements: Vec<Vec<String>>,
    word: Option<String>,
}

/// Each method returns how much of the text it took.
impl Words {
    fn push(&mut self, text: &str) -> usize {
        self.word.get_or_insert_default().push_str(text);
        text.len()
    }

    fn end_word(&mut self, len: usize) -> usize {
        if let (Some(word), Some(statement)) = (self.word.take(), self.statements.last_mut()) {
            statement.push(word);
        }
        len
    }

    fn end_statement(&mut self, len: usize) -> usize {
        self.end_word(0);
        self.statements.push(Vec::new());
        len
    }

    fn symbol(&mut self, symbol: &str) -> usize {
        self.end_word(0);
        self.push(symbol);
        self.end_word(symbol.len())
    }

    fn quoted(&mut self, rest: &str, quote: char) -> usize {
        let inner = &rest[1..];
        let len = inner.find(quote).unwrap_or(inner.len());
        let text = if quote == '"' { with_arithmetic(&inner[..len]) } else { inner[..len].to_owned() };
        self.word.get_or_insert_default().push_str(&text);
        (len + 2).min(rest.len())
    }

    fn computed(&mut self, rest: &str) -> usize {
        let len = rest.find("))").map_or(rest.len(), |end| end + 2);
        self.word.get_or_insert_default().push_str(&with_arithmetic(&rest[..len]));
        len
    }
}

/// `text` with each `$((...))` replaced by what it gives.
fn with_arithmetic(text: &str) -> String {
    let Some((before, behind)) = text.split_once("$((") else { return text.to_owned() };
    let Some((expression, after)) = behind.split_once("))") else { return text.to_owned() };
    let value = arithmetic(expression).unwrap_or_else(|| format!("$(({expression}))"));
    format!("{before}{value}{}", with_arithmetic(after))
}

fn arithmetic(expression: &str) -> Option<String> {
    let mut interpreter = Interpreter::default();
    // The shell divides whole numbers.
    interpreter.run(&format!("result = {}", expression.replace('/', "//"))).ok()?;
    match interpreter.get("result") {
        Some(Value::Int(value)) => Some(value.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sysctl(name: &str, value: &str) -> Effect {
        Effect::Sysctl(name.to_owned(), value.to_owned())
    }

    #[test]
    fn settings_of_the_kernel_are_understood_in_every_way_scripts_write_them() {
        let set = vec![sysctl("net.ipv4.tcp_sack", "0"), sysctl("net.ipv4.tcp_ecn", "2")];
        assert_eq!(effects("sysctl -q net.ipv4.tcp_sack=0\nsysctl -qw net.ipv4.tcp_ecn=2"), Ok(set.clone()));
        assert_eq!(
            effects("sysctl -q net.ipv4.tcp_sack=0 net.ipv4.tcp_ecn=2 > /dev/null 2>&1"),
            Ok(set.clone())
        );
        let paths =
            "../common/set_sysctls.py /proc/sys/net/ipv4/tcp_sack=0 \\\n /proc/sys/net/ipv4/tcp_ecn=2";
        assert_eq!(effects(paths), Ok(set));
        let echo = "echo 3 > /proc/sys/net/ipv4/tcp_reordering";
        assert_eq!(effects(echo), Ok(vec![sysctl("net.ipv4.tcp_reordering", "3")]));
    }

    #[test]
    fn arithmetic_of_the_shell_is_computed() {
        let text = "sysctl -q net.ipv4.tcp_rmem=\"4096 540000 $((15*1024*1024))\"";
        assert_eq!(effects(text), Ok(vec![sysctl("net.ipv4.tcp_rmem", "4096 540000 15728640")]));
    }

    #[test]
    fn commands_for_a_kernel_are_left_out() {
        let text = "ethtool -K tun0 tso off && tc qdisc add dev tun0 root pfifo";
        let has_effect = |effect: &Effect| !matches!(effect, Effect::Ignored(_) | Effect::LosesAll(false));
        assert!(!effects(text).unwrap().iter().any(has_effect));
        assert_eq!(effects("/tmp/sysctl_restore_${PPID}.sh").unwrap().len(), 1);
    }

    #[test]
    fn the_usual_defaults_are_known_without_their_script() {
        assert!(effects("../../common/defaults.sh").unwrap().contains(&sysctl("net.ipv4.tcp_ecn", "0")));
    }

    #[test]
    fn counters_are_remembered_and_asked_for() {
        assert_eq!(effects("nstat > /dev/null"), Ok(vec![Effect::RememberCounters]));
        let changed = Effect::CounterChanged("TcpExtOutOfWindowIcmps".to_owned());
        assert_eq!(effects("nstat | grep TcpExtOutOfWindowIcmps > /dev/null"), Ok(vec![changed]));
    }

    #[test]
    fn the_mtu_and_the_clamp_of_the_link_can_change() {
        assert_eq!(effects("ip link set dev tun0 mtu 1400"), Ok(vec![Effect::Mtu(1400)]));
        let clamp =
            "iptables -t mangle -A POSTROUTING -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 1200";
        assert_eq!(effects(clamp), Ok(vec![Effect::MssClamp(1200)]));
    }

    #[test]
    fn a_queue_without_room_loses_all() {
        let lost = effects("tc qdisc replace dev tun0 root pfifo limit 0");
        assert_eq!(lost, Ok(vec![Effect::LosesAll(true)]));
    }

    #[test]
    fn a_route_says_the_size_of_packets_and_segments() {
        let told =
            effects("ip route add 192.0.2.1 via 192.168.0.2 dev tun0 advmss 600 mtu lock 640").unwrap();
        assert_eq!(told[..2], [Effect::Mtu(640), Effect::MssClamp(600)]);
    }

    #[test]
    fn other_commands_are_named() {
        assert_eq!(effects("iptables -A INPUT"), Err("shell command `iptables -A INPUT`".to_owned()));
    }
}
