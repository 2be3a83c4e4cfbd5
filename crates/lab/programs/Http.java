import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

/** A line to everybody who asks, by the HTTP server of the JDK with four threads; POST is answered with what was posted. */
public class Http {
    public static void main(String[] arguments) throws IOException {
        int port = Integer.parseInt(arguments[0]);
        HttpServer server = HttpServer.create(new InetSocketAddress("0.0.0.0", port), 4096);
        server.createContext("/", Http::answer);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.start();
        System.out.println("ready");
    }

    private static void answer(HttpExchange exchange) throws IOException {
        byte[] body = exchange.getRequestBody().readAllBytes();
        if (exchange.getRequestMethod().equals("GET")) {
            body = "Hello, world!\n".getBytes();
        }
        exchange.sendResponseHeaders(200, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }
}
