// A line to everybody who asks, by Node's own HTTP server. Usage: http.js PORT [WORKERS]
// With workers, a cluster: the primary process accepts and passes connections on, or with NODE_CLUSTER_SCHED_POLICY=none the
// workers share its socket. POST is answered with what was posted.

const cluster = require("cluster");
const http = require("http");

const [port, workers] = process.argv.slice(2).map(Number);

function answer(request, response) {
  response.setHeader("Content-Type", "text/plain");
  if (request.method === "POST") {
    request.pipe(response);
    return;
  }
  response.end(request.url === "/pid" ? `${process.pid}\n` : "Hello, world!\n");
}

function serve() {
  const server = http.createServer({ keepAliveTimeout: 60000 }, answer);
  server.listen(port, "0.0.0.0", 4096, () => console.log("ready"));
  process.on("SIGTERM", () => process.exit(0));
}

if (workers && cluster.isPrimary) {
  for (let worker = 0; worker < workers; worker++) cluster.fork();
  process.on("SIGTERM", () => {
    for (const worker of Object.values(cluster.workers)) worker.kill("SIGTERM");
    setTimeout(() => process.exit(0), 100);
  });
} else {
  serve();
}
