//! Downloading one file over HTTP, with resumption of partial downloads.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use ureq::http::{Response, StatusCode, header};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body, Error};

use super::error::{Damage, FetchError};

/// The maximum number of attempts after connections break. Every attempt must receive some bytes.
const ATTEMPTS: usize = 5;

/// Network timeouts.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// The timeout for name resolution and for a connection.
    pub connect: Duration,
    /// The timeout for the next byte.
    pub stall: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(30), stall: Duration::from_secs(30) }
    }
}

pub(super) fn agent(timeouts: Timeouts) -> Agent {
    // The system's certificate store, so that certificates of corporate proxies are accepted.
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        .user_agent(concat!("lsoftmax/", env!("CARGO_PKG_VERSION")))
        .timeout_resolve(Some(timeouts.connect))
        .timeout_connect(Some(timeouts.connect))
        .timeout_per_read(Some(timeouts.stall))
        .build()
        .new_agent()
}

/// A download, possibly of a file that was partially downloaded before.
pub(super) struct Download<'a> {
    pub agent: &'a Agent,
    pub url: &'a str,
    /// The file to write; bytes that it already has are not requested again.
    pub part: &'a Path,
    /// The largest accepted size.
    pub limit: u64,
}

impl Download<'_> {
    /// Downloads the file. Returns whether an earlier partial download was resumed.
    pub fn run(&self, progress: &mut dyn FnMut(u64, Option<u64>)) -> Result<bool, FetchError> {
        let write = FetchError::write(self.part);
        let mut options = File::options();
        options.write(true).create(true).truncate(false);
        let mut file = options.open(self.part).map_err(&write)?;
        let mut received = file.seek(SeekFrom::End(0)).map_err(&write)?;
        let mut resumed = received > 0;
        for attempt in 1.. {
            let before = received;
            match self.attempt(&mut file, &mut received, &mut resumed, progress) {
                Ok(()) => return Ok(resumed),
                Err(FetchError::Network { .. }) if attempt < ATTEMPTS && received > before => {}
                Err(error) => return Err(error),
            }
        }
        unreachable!("the last attempt ends in a result")
    }

    fn attempt(
        &self,
        file: &mut File,
        received: &mut u64,
        resumed: &mut bool,
        progress: &mut dyn FnMut(u64, Option<u64>),
    ) -> Result<(), FetchError> {
        let write = FetchError::write(self.part);
        let mut response = self.request(*received)?;
        if *received > 0 && !continues(&response, *received) {
            // The server does not support ranges, or its file has changed: start over.
            *received = 0;
            *resumed = false;
            file.set_len(0).and_then(|()| file.rewind()).map_err(&write)?;
            if response.status() != StatusCode::OK {
                response = self.request(0)?;
            }
        }
        if !response.status().is_success() {
            let status = response.status().as_u16();
            return Err(FetchError::Status { url: self.url.to_owned(), status });
        }
        let announced = length(&response).map(|length| *received + length);
        let mut body = response.body_mut().as_reader();
        let mut buffer = vec![0; 1 << 16];
        loop {
            progress(*received, announced);
            let count = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) => return Err(self.network(&Error::from(error), *received)),
            };
            if *received + count as u64 > self.limit {
                return Err(self.damaged(Damage::TooLong(self.limit)));
            }
            file.write_all(&buffer[..count]).map_err(&write)?;
            *received += count as u64;
        }
        if announced.is_some_and(|announced| announced != *received) {
            return Err(self.broken("the connection was closed early".into(), *received));
        }
        Ok(())
    }

    fn request(&self, start: u64) -> Result<Response<Body>, FetchError> {
        let mut request = self.agent.get(self.url);
        if start > 0 {
            request = request.header(header::RANGE, format!("bytes={start}-"));
        }
        request.call().map_err(|error| self.network(&error, start))
    }

    fn network(&self, error: &Error, received: u64) -> FetchError {
        let reason = match error {
            Error::HostNotFound => "the host was not found".into(),
            Error::Timeout(_) => "the server does not answer".into(),
            Error::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                "the connection was closed early".into()
            }
            error => format!("the connection failed ({error})"),
        };
        self.broken(reason, received)
    }

    fn broken(&self, reason: String, received: u64) -> FetchError {
        FetchError::Network { url: self.url.to_owned(), reason, received }
    }

    fn damaged(&self, damage: Damage) -> FetchError {
        FetchError::Damaged { origin: self.url.to_owned(), damage, local: false }
    }
}

/// Whether a response continues at byte `start`.
fn continues(response: &Response<Body>, start: u64) -> bool {
    let range = text(response, header::CONTENT_RANGE);
    let range = range.and_then(|range| range.strip_prefix("bytes ")?.split('-').next());
    response.status() == StatusCode::PARTIAL_CONTENT
        && range.and_then(|first| first.trim().parse().ok()) == Some(start)
}

fn length(response: &Response<Body>) -> Option<u64> {
    text(response, header::CONTENT_LENGTH)?.trim().parse().ok()
}

fn text(response: &Response<Body>, name: header::HeaderName) -> Option<&str> {
    response.headers().get(name)?.to_str().ok()
}
