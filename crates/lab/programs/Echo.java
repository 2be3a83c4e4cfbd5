import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.DatagramChannel;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;

/** Sends back what comes, over TCP and UDP, on one thread with a selector. */
public class Echo {
    private static final ByteBuffer BUFFER = ByteBuffer.allocateDirect(65536);

    public static void main(String[] arguments) throws IOException {
        InetSocketAddress address = new InetSocketAddress("0.0.0.0", Integer.parseInt(arguments[0]));
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(address, 4096).configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        DatagramChannel datagrams = DatagramChannel.open();
        datagrams.bind(address).configureBlocking(false);
        datagrams.register(selector, SelectionKey.OP_READ);
        System.out.println("ready");
        while (true) {
            selector.select(Echo::serve);
        }
    }

    private static void serve(SelectionKey key) {
        try {
            if (key.channel() instanceof ServerSocketChannel listener) {
                accept(listener, key.selector());
            } else if (key.channel() instanceof DatagramChannel datagrams) {
                echo(datagrams);
            } else {
                echo((SocketChannel) key.channel(), key);
            }
        } catch (IOException error) {
            key.cancel();
            close(key);
        }
    }

    private static void accept(ServerSocketChannel listener, Selector selector) throws IOException {
        for (SocketChannel stream = listener.accept(); stream != null; stream = listener.accept()) {
            stream.configureBlocking(false);
            stream.register(selector, SelectionKey.OP_READ);
        }
    }

    private static void echo(DatagramChannel datagrams) throws IOException {
        BUFFER.clear();
        SocketAddress peer = datagrams.receive(BUFFER);
        if (peer != null) {
            datagrams.send(BUFFER.flip(), peer);
        }
    }

    /** What finds no room is kept with the key, and nothing more is read until it is gone. */
    private static void echo(SocketChannel stream, SelectionKey key) throws IOException {
        ByteBuffer waiting = (ByteBuffer) key.attachment();
        if (waiting == null) {
            BUFFER.clear();
            if (stream.read(BUFFER) < 0) {
                stream.close();
                return;
            }
            waiting = BUFFER.flip();
        }
        stream.write(waiting);
        boolean rest = waiting.hasRemaining();
        if (rest && key.attachment() == null) {
            key.attach(ByteBuffer.allocate(waiting.remaining()).put(waiting).flip());
        } else if (!rest) {
            key.attach(null);
        }
        key.interestOps(rest ? SelectionKey.OP_WRITE : SelectionKey.OP_READ);
    }

    private static void close(SelectionKey key) {
        try {
            key.channel().close();
        } catch (IOException ignored) {
            // It was about to go anyway.
        }
    }
}
