//! A small HTTP server with scripted replies.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request as received.
#[derive(Clone, Debug)]
pub struct Request {
    /// The number of earlier requests.
    pub number: usize,
    pub path: String,
    /// The start of the requested range, if there is one.
    pub start: Option<usize>,
}

/// A response, valid or not.
pub struct Reply {
    head: String,
    body: Vec<u8>,
    /// The value of the Content-Length header.
    length: usize,
    /// Whether the connection then stays open without data for longer than any timeout.
    stalls: bool,
}

impl Reply {
    pub fn whole(body: &[u8]) -> Self {
        Self { head: "200 OK".into(), body: body.into(), length: body.len(), stalls: false }
    }

    /// The requested range, as a server with range support returns it.
    pub fn ranged(body: &[u8], request: &Request) -> Self {
        match request.start {
            None => Self::whole(body),
            Some(start) if start >= body.len() => Self::status(416),
            Some(start) => {
                let (last, all) = (body.len() - 1, body.len());
                let head =
                    format!("206 Partial Content\r\nContent-Range: bytes {start}-{last}/{all}");
                Self { head, ..Self::whole(&body[start..]) }
            }
        }
    }

    pub fn status(status: u16) -> Self {
        Self { head: format!("{status} As It Is"), ..Self::whole(b"sorry") }
    }

    pub fn redirect(to: &str) -> Self {
        Self { head: format!("302 Found\r\nLocation: {to}"), ..Self::whole(b"") }
    }

    /// No response.
    pub fn mute() -> Self {
        Self { head: String::new(), stalls: true, ..Self::whole(b"") }
    }

    /// Closes the connection after this many bytes of the body.
    pub fn cut(mut self, bytes: usize) -> Self {
        self.body.truncate(bytes);
        self.length += usize::from(self.length == bytes);
        self
    }

    /// Stalls after this many bytes of the body.
    pub fn stall(self, bytes: usize) -> Self {
        Self { stalls: true, ..self.cut(bytes) }
    }

    /// Sends another Content-Length.
    pub fn length(self, length: usize) -> Self {
        Self { length, ..self }
    }

    fn send(&self, mut stream: TcpStream) -> std::io::Result<()> {
        if !self.head.is_empty() {
            let Self { head, length, .. } = self;
            write!(
                stream,
                "HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
            )?;
            stream.write_all(&self.body)?;
        }
        if self.stalls {
            std::thread::sleep(Duration::from_secs(20));
        }
        Ok(())
    }
}

/// A server on a free port, for as long as the tests run.
pub struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (answer, log) = (Arc::new(answer), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                std::thread::spawn(move || {
                    let request = {
                        let mut log = log.lock().expect("the log");
                        let request = read(&stream, log.len());
                        log.push(request.clone());
                        request
                    };
                    let _ = answer(&request).send(stream);
                });
            }
        });
        Self { address, requests }
    }

    pub fn base(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("the log").clone()
    }
}

fn read(stream: &TcpStream, number: usize) -> Request {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut start = None;
    for line in lines.take_while(|line| !line.is_empty()) {
        let line = line.to_ascii_lowercase();
        if let Some(range) = line.strip_prefix("range: bytes=") {
            start = range.trim_end_matches('-').parse().ok();
        }
    }
    Request { number, path, start }
}
