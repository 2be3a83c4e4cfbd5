//! UDP sockets that ask: connected ones, and ones that were never bound. They are accelerated once they have asked often.

use libc::{MSG_DONTWAIT, POLLIN, SO_ERROR, SO_REUSEADDR, SOL_SOCKET};

use crate::peer::{Peer, Slot};
use crate::scene::{SOON_MS, Scene, port_of};
use crate::sys::{self, Result};
use crate::table::{Done, checks};

checks! {
    "udp_clients":
    BOTH [connected_asks_often, unbound_asks_often, bound_and_connected_asks_often],
    ONCE [
        asks_by_epoll, stranger_is_not_heard, peer_s_port_closes, asks_another_one, dissolved,
        port_that_may_be_shared, closed_and_opened,
    ],
}

/// More questions than make a socket worth it.
const OFTEN: u32 = 100;

/// A client of a peer's socket.
struct Client {
    fd: i32,
    peer: Peer,
    other: Slot,
    from: u16,
}

impl Client {
    fn new(s: &mut Scene) -> Result<Client> {
        // The process waits for its queue with a socket that is accelerated at once.
        s.udp_untouched()?;
        let mut peer = s.peer()?;
        let (other, from) = peer.udp()?;
        Ok(Client { fd: s.udp()?, peer, other, from })
    }

    fn connected(s: &mut Scene) -> Result<Client> {
        let client = Client::new(s)?;
        sys::connect(client.fd, &s.remote(client.from))?;
        Ok(client)
    }

    /// Asks, and returns what the answer is.
    fn ask(&mut self, s: &Scene, to: Option<u16>) -> Result<Vec<u8>> {
        match to {
            Some(port) => sys::sendto(self.fd, b"question", 0, &s.remote(port))?,
            None => sys::send(self.fd, b"question", 0)?,
        };
        let came = self.peer.recvfrom(self.other)?;
        self.peer.sendto(self.other, came.port, &came.octets)?;
        sys::poll_one(self.fd, POLLIN, SOON_MS)?;
        sys::recv(self.fd, 100, MSG_DONTWAIT)
    }

    fn ask_often(&mut self, s: &mut Scene, to: Option<u16>) -> Done {
        let mut answered = 0;
        for _ in 0..OFTEN {
            answered += u32::from(self.ask(s, to)? == b"question");
        }
        s.see("answered", answered);
        self.say_where(s)?;
        Ok(())
    }

    /// Says, in a line that is not compared, whether a datagram of the peer comes to the kernel.
    fn say_where(&mut self, s: &mut Scene) -> Result<()> {
        self.peer.sendto(self.other, port_of(self.fd)?, b"where")?;
        sys::poll_one(self.fd, POLLIN, SOON_MS)?;
        let of_kernel = sys::kernel_has_data(self.fd);
        sys::recv(self.fd, 16, MSG_DONTWAIT)?;
        s.say(if of_kernel { "# datagrams on the kernel" } else { "# datagrams on the stack" });
        Ok(())
    }
}

fn connected_asks_often(s: &mut Scene) -> Done {
    Client::connected(s)?.ask_often(s, None)
}

fn unbound_asks_often(s: &mut Scene) -> Done {
    let mut client = Client::new(s)?;
    let to = Some(client.from);
    client.ask_often(s, to)
}

fn bound_and_connected_asks_often(s: &mut Scene) -> Done {
    let mut client = Client::new(s)?;
    sys::bind(client.fd, &s.any(0))?;
    sys::connect(client.fd, &s.remote(client.from))?;
    client.ask_often(s, None)
}

fn asks_by_epoll(s: &mut Scene) -> Done {
    let mut client = Client::connected(s)?;
    let epoll = sys::epoll_create(0)?;
    sys::epoll_add(epoll, client.fd, libc::EPOLLIN, 7)?;
    let mut answered = 0;
    for _ in 0..OFTEN {
        sys::send(client.fd, b"question", 0)?;
        let came = client.peer.recvfrom(client.other)?;
        client.peer.sendto(client.other, came.port, &came.octets)?;
        let events = sys::epoll_wait(epoll, 4, SOON_MS)?;
        answered += usize::from(events.iter().any(|(_, data)| *data == 7));
        sys::recv(client.fd, 100, MSG_DONTWAIT)?;
    }
    s.see("answered", answered);
    s.see_epoll("no more", sys::epoll_wait(epoll, 4, 0));
    client.say_where(s)?;
    Ok(())
}

fn stranger_is_not_heard(s: &mut Scene) -> Done {
    let mut client = Client::connected(s)?;
    client.ask_often(s, None)?;
    let (stranger, _) = client.peer.udp()?;
    client.peer.sendto(stranger, port_of(client.fd)?, b"from a stranger")?;
    s.see("answer", client.ask(s, None));
    s.see("more", sys::recv(client.fd, 100, MSG_DONTWAIT));
    Ok(())
}

fn peer_s_port_closes(s: &mut Scene) -> Done {
    let mut client = Client::connected(s)?;
    client.ask_often(s, None)?;
    client.peer.close(client.other)?;
    s.see("send", sys::send(client.fd, b"question", 0));
    s.see_poll("events", sys::poll_one(client.fd, POLLIN, SOON_MS));
    s.see("recv", sys::recv(client.fd, 100, MSG_DONTWAIT));
    s.see("send", sys::send(client.fd, b"question", 0));
    sys::poll_one(client.fd, POLLIN, SOON_MS)?;
    s.see("SO_ERROR", sys::getsockopt_int(client.fd, SOL_SOCKET, SO_ERROR));
    s.see("recv", sys::recv(client.fd, 100, MSG_DONTWAIT));
    Ok(())
}

fn asks_another_one(s: &mut Scene) -> Done {
    let mut client = Client::connected(s)?;
    client.ask_often(s, None)?;
    (client.other, client.from) = client.peer.udp()?;
    s.see("connect", sys::connect(client.fd, &s.remote(client.from)));
    client.ask_often(s, None)
}

fn dissolved(s: &mut Scene) -> Done {
    let mut client = Client::connected(s)?;
    client.ask_often(s, None)?;
    s.see("dissolve", sys::connect(client.fd, &[0; 16]));
    s.see("send", sys::send(client.fd, b"x", 0));
    let to = Some(client.from);
    client.ask_often(s, to)
}

fn port_that_may_be_shared(s: &mut Scene) -> Done {
    let mut client = Client::new(s)?;
    sys::setsockopt_int(client.fd, SOL_SOCKET, SO_REUSEADDR, 1)?;
    sys::connect(client.fd, &s.remote(client.from))?;
    client.ask_often(s, None)
}

fn closed_and_opened(s: &mut Scene) -> Done {
    for _ in 0..3 {
        let mut client = Client::connected(s)?;
        client.ask_often(s, None)?;
        s.see("close", sys::close(client.fd));
    }
    Ok(())
}
