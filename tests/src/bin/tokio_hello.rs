//! A line to everybody who asks over HTTP/1.1, and what was posted to who posts, on tokio with two threads.
//!
//! Usage: `tokio_hello PORT`

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// What a request's head says that matters here.
#[derive(Default)]
struct Head {
    is_post: bool,
    is_last: bool,
    expects_continue: bool,
    content_length: usize,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).and_then(|word| word.parse::<u16>().ok()).unwrap_or(3000);
    let listener = TcpListener::bind(("0.0.0.0", port)).await?;
    println!("ready");
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let _ = serve(stream).await; // A client that goes away is no concern of the others.
        });
    }
}

async fn serve(stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(head) = read_head(&mut stream).await? {
        if head.expects_continue {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let mut body = vec![0; head.content_length];
        stream.read_exact(&mut body).await?;
        if !head.is_post {
            body = b"Hello, world!\n".to_vec();
        }
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        answer.extend_from_slice(&body);
        stream.write_all(&answer).await?;
        if head.is_last {
            break;
        }
    }
    stream.shutdown().await
}

/// The next request's head; `None` at the end of the stream.
async fn read_head(stream: &mut BufReader<TcpStream>) -> std::io::Result<Option<Head>> {
    let (mut head, mut line) = (Head::default(), String::new());
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    head.is_post = line.starts_with("POST ");
    loop {
        line.clear();
        stream.read_line(&mut line).await?;
        let lower = line.trim().to_ascii_lowercase();
        match lower.split_once(": ") {
            Some(("content-length", length)) => head.content_length = length.parse().unwrap_or(0),
            Some(("connection", "close")) => head.is_last = true,
            Some(("expect", "100-continue")) => head.expects_continue = true,
            None if lower.is_empty() => return Ok(Some(head)),
            _ => {}
        }
    }
}
