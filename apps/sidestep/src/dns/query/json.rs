//! Answers as JSON, in the words of RFC 8427.

use dns_message::Record;
use dns_zone::text::rdata_text;
use serde_json::{Map, Value, json};

use super::answer::{Answer, hex};

/// The message, and who sent it.
pub(super) fn message(answer: &Answer) -> Value {
    let bit = |bit: u16| u8::from(answer.flags & bit != 0);
    let mut object = json!({
        "ID": answer.id,
        "QR": bit(0x8000), "Opcode": answer.flags >> 11 & 0xf, "AA": bit(0x0400), "TC": bit(0x0200), "RD": bit(0x0100),
        "RA": bit(0x0080), "AD": bit(0x0020), "CD": bit(0x0010),
        "RCODE": answer.rcode, "RCODEname": answer.rcode(),
        "QDCOUNT": u8::from(answer.question.is_some()),
        "ANCOUNT": answer.sections[0].len(), "NSCOUNT": answer.sections[1].len(), "ARCOUNT": answer.sections[2].len() + usize::from(answer.edns.is_some()),
        "answerRRs": records(&answer.sections[0]),
        "authorityRRs": records(&answer.sections[1]),
        "additionalRRs": records(&answer.sections[2]),
        "server": answer.source.address.to_string(),
        "transport": answer.source.transport.name(),
        "milliseconds": answer.source.took.as_secs_f64() * 1e3,
        "messageLength": answer.len,
    });
    if let Some(question) = &answer.question {
        object["QNAME"] = json!(question.name.to_string());
        object["QTYPE"] = json!(question.qtype.0);
        object["QTYPEname"] = json!(question.qtype.to_string());
        object["QCLASS"] = json!(question.qclass.0);
    }
    if let Some(edns) = &answer.edns {
        let options = edns.options.iter().map(|(code, data)| json!({ "code": code, "data": hex(data) }));
        object["EDNS"] = json!({
            "version": edns.version, "DO": u8::from(edns.dnssec), "payload": edns.payload,
            "options": options.collect::<Vec<_>>(),
        });
    }
    object
}

fn records(records: &[Record]) -> Vec<Value> {
    records.iter().map(record).collect()
}

/// RFC 8427, 2.2 and 2.3: what the data says is under `rdata` and the type's mnemonic.
fn record(record: &Record) -> Value {
    let mut object = Map::new();
    object.insert("NAME".to_owned(), json!(record.owner.to_string()));
    object.insert("TYPE".to_owned(), json!(record.rtype.0));
    object.insert("TYPEname".to_owned(), json!(record.rtype.to_string()));
    object.insert("CLASS".to_owned(), json!(record.class.0));
    object.insert("TTL".to_owned(), json!(record.ttl));
    object.insert(format!("rdata{}", record.rtype), json!(rdata_text(record.rtype, &record.rdata)));
    object.insert("RDATAHEX".to_owned(), json!(hex(&record.rdata)));
    Value::Object(object)
}
