//! UDP services on kernel sockets: SO_REUSEPORT, recvmmsg and sendmmsg as a Device.
