//! Files with names and addresses of root servers, as IANA publishes them (`named.root`).

use std::net::IpAddr;

use dns_resolver::Hints;
use dns_wire::NameBuf;

/// Reads NS records of the root and the addresses of their names; other lines are comments. The error names the line.
pub(super) fn parse(text: &str) -> Result<Hints, String> {
    let (mut names, mut addresses) = (Vec::new(), Vec::new());
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split(';').next().unwrap_or_default().split_whitespace().collect();
        let wrong = || format!("line {}: {line:?} is no NS, A or AAAA record", number + 1);
        let [owner, .., rtype, data] = words[..] else {
            if words.is_empty() {
                continue;
            }
            return Err(wrong());
        };
        match rtype.to_ascii_uppercase().as_str() {
            "NS" if owner == "." => names.push(name(data).ok_or_else(wrong)?),
            "A" | "AAAA" => {
                let address: IpAddr = data.parse().map_err(|_| wrong())?;
                addresses.push((name(owner).ok_or_else(wrong)?, address));
            }
            _ => return Err(wrong()),
        }
    }
    let of = |name: &NameBuf| {
        let own = addresses.iter().filter(|(owner, _)| owner == name);
        own.map(|(_, address)| *address).collect::<Vec<_>>()
    };
    let servers: Vec<_> = names.iter().map(|name| (name.clone(), of(name))).collect();
    if servers.iter().all(|(_, addresses)| addresses.is_empty()) {
        return Err("there is no root server with an address".to_owned());
    }
    Ok(Hints::new(servers))
}

fn name(text: &str) -> Option<NameBuf> {
    let root = NameBuf::root();
    NameBuf::from_text(text.as_bytes(), Some(root.as_name())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_of_iana_is_read() {
        let text = "; comment\n.  3600000  NS  A.ROOT-SERVERS.NET.\nA.ROOT-SERVERS.NET. 3600000 A 198.41.0.4\n\
                    a.root-servers.net. 3600000 IN AAAA 2001:503:ba3e::2:30\n";
        let addresses = ["198.41.0.4", "2001:503:ba3e::2:30"].map(|text| text.parse().unwrap());
        let wanted = Hints::new([(name("a.root-servers.net.").unwrap(), addresses.to_vec())]);
        assert_eq!(parse(text), Ok(wanted));
    }

    #[test]
    fn what_is_no_hint_is_named_by_its_line() {
        assert!(parse("\n. NS\n").unwrap_err().starts_with("line 2"));
        assert!(parse(". 1 NS a.\na. 1 A 1.2.3\n").unwrap_err().starts_with("line 2"));
        assert!(parse(". 1 NS a.\n").unwrap_err().contains("no root server"));
    }
}
