//! Generic netlink: one question, one answer (linux/genetlink.h).

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_sys::{SocketAddr, protocols::NETLINK_GENERIC};

use crate::NicError;
use crate::attributes::{self, Attributes};

/// GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// NLMSGERR_ATTR_MSG: the kernel's explanation of an error.
const EXPLANATION: u16 = 1;
/// EOPNOTSUPP: the driver has no function for it.
const NOT_SUPPORTED: i32 = 95;
/// `struct nlmsghdr` of the question, which an error repeats.
const QUESTION: usize = 16;

/// A family of messages, by the number that the running kernel gave it.
#[derive(Clone, Copy)]
pub(crate) struct Family(u16);

pub(crate) struct Socket {
    socket: netlink_sys::Socket,
    sequence: u32,
}

impl Socket {
    pub(crate) fn open() -> io::Result<Socket> {
        let mut socket = netlink_sys::Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        // Without these two errors are less clear, and nothing else.
        let _ = socket.set_cap_ack(true);
        let _ = socket.set_ext_ack(true);
        Ok(Socket { socket, sequence: 0 })
    }

    pub(crate) fn family(&mut self, name: &'static str) -> Result<Family, NicError> {
        let request = Attributes::default().with_text(FAMILY_NAME, name);
        let answer = self.ask(Family(CONTROLLER), GET_FAMILY, request).map_err(|error| match error {
            NicError::Refused { .. } => NicError::NoFamily(name),
            error => error,
        })?;
        let number = attributes::find(&answer, FAMILY_ID).and_then(attributes::number);
        number.and_then(|number| u16::try_from(number).ok()).map(Family).ok_or(NicError::NoFamily(name))
    }

    /// The attributes of the one answer.
    pub(crate) fn ask(
        &mut self,
        family: Family,
        command: u8,
        request: Attributes,
    ) -> Result<Vec<u8>, NicError> {
        self.send(family, command, request, NLM_F_REQUEST)?;
        self.answer()?.ok_or(NicError::Absent)
    }

    /// Has the kernel do something. It may answer before it acknowledges.
    pub(crate) fn order(&mut self, family: Family, command: u8, request: Attributes) -> Result<(), NicError> {
        self.send(family, command, request, NLM_F_REQUEST | NLM_F_ACK)?;
        while self.answer()?.is_some() {}
        Ok(())
    }

    fn send(&mut self, family: Family, command: u8, request: Attributes, flags: u16) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let message = Message { family: family.0, command, attributes: request.into_octets() };
        let mut message =
            NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::InnerMessage(message));
        (message.header.sequence_number, message.header.flags) = (self.sequence, flags);
        message.finalize();
        let mut octets = vec![0; message.buffer_len()];
        message.serialize(&mut octets);
        self.socket.send_to(&octets, &SocketAddr::new(0, 0), 0).map(drop)
    }

    /// The attributes of the next answer to the latest question; `None` for the acknowledgement.
    fn answer(&mut self) -> Result<Option<Vec<u8>>, NicError> {
        loop {
            let (octets, _) = self.socket.recv_from_full()?;
            let message = NetlinkMessage::<Message>::deserialize(&octets).map_err(io::Error::other)?;
            if message.header.sequence_number != self.sequence {
                continue; // The rest of an exchange that failed half-way.
            }
            return match message.payload {
                NetlinkPayload::InnerMessage(message) => Ok(Some(message.attributes)),
                NetlinkPayload::Error(error) if error.code.is_none() => Ok(None),
                NetlinkPayload::Error(error) if error.raw_code() == -NOT_SUPPORTED => Err(NicError::Absent),
                NetlinkPayload::Error(error) => {
                    let explanation = error.header.get(QUESTION..).unwrap_or_default();
                    let reason = attributes::find(explanation, EXPLANATION).map(attributes::text);
                    Err(NicError::Refused { error: error.to_io(), reason })
                }
                _ => Ok(None),
            };
        }
    }
}

/// The payload: `struct genlmsghdr`, then attributes.
#[derive(Clone, Debug)]
struct Message {
    family: u16,
    command: u8,
    attributes: Vec<u8>,
}

const GENERIC_HEADER: usize = 4;
const VERSION: u8 = 1;

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        GENERIC_HEADER + self.attributes.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..GENERIC_HEADER].copy_from_slice(&[self.command, VERSION, 0, 0]);
        buffer[GENERIC_HEADER..].copy_from_slice(&self.attributes);
    }
}

impl NetlinkDeserializable for Message {
    type Error = io::Error;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Message, io::Error> {
        let (Some(&command), Some(attributes)) = (payload.first(), payload.get(GENERIC_HEADER..)) else {
            return Err(io::Error::other("a generic netlink message without its header"));
        };
        Ok(Message { family: header.message_type, command, attributes: attributes.to_vec() })
    }
}
