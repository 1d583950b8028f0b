//! A small registry on loopback that counts what it is asked, and misbehaves on request.

use super::image::{TestImage, digest};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What the registry does besides its job.
#[derive(Default)]
pub struct Behaviour {
    /// Wants this token, got for this login, base 64 of `user:password`.
    pub login: Option<String>,
    /// Wants the login itself with each request.
    pub basic: bool,
    /// Answers 429 to so many requests first.
    pub busy: AtomicUsize,
    /// Ends each blob's first transfer in the middle.
    pub breaks: AtomicBool,
    /// Answers no range requests.
    pub no_ranges: bool,
    /// Requests by method and path.
    pub asked: Mutex<BTreeMap<String, usize>>,
}

pub struct Registry {
    pub address: String,
    pub behaviour: Arc<Behaviour>,
    content: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Registry {
    pub fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let behaviour = Arc::new(behaviour);
        let content = Arc::new(Mutex::new(BTreeMap::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (behaviour, content, stop) = (behaviour.clone(), content.clone(), stop.clone());
            let address = address.clone();
            move || {
                for stream in listener.incoming() {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let (behaviour, content, address) = (behaviour.clone(), content.clone(), address.clone());
                    let stop = stop.clone();
                    std::thread::spawn(move || serve(stream.unwrap(), &stop, &behaviour, &content, &address));
                }
            }
        });
        Self { address, behaviour, content, stop, thread: Some(thread) }
    }

    /// Puts an image under a tag.
    pub fn push(&self, repository: &str, tag: &str, image: &TestImage) {
        self.put(repository, &format!("manifests/{tag}"), image.manifest.clone());
        let mut content = self.content.lock().unwrap();
        for (digest, bytes) in &image.blobs {
            content.insert(format!("/v2/{repository}/blobs/{digest}"), bytes.clone());
            content.insert(format!("/v2/{repository}/manifests/{digest}"), bytes.clone());
        }
    }

    /// Puts anything; a manifest can be asked for by its digest too.
    pub fn put(&self, repository: &str, what: &str, bytes: Vec<u8>) {
        if what.starts_with("manifests/") {
            let by_digest = format!("/v2/{repository}/manifests/{}", digest(&bytes));
            self.content.lock().unwrap().insert(by_digest, bytes.clone());
        }
        self.content.lock().unwrap().insert(format!("/v2/{repository}/{what}"), bytes);
    }

    /// Has nothing of a repository any more.
    pub fn forget(&self, repository: &str) {
        self.content.lock().unwrap().retain(|path, _| !path.starts_with(&format!("/v2/{repository}/")));
    }

    pub fn times(&self, request: &str) -> usize {
        self.behaviour.asked.lock().unwrap().get(request).copied().unwrap_or(0)
    }

    /// All requests so far.
    pub fn asked(&self) -> usize {
        self.behaviour.asked.lock().unwrap().values().sum()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(&self.address);
        let _ = self.thread.take().unwrap().join();
    }
}

struct Request {
    method: String,
    path: String,
    authorization: String,
    range: Option<usize>,
}

fn read_request(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut request = Request { method, path, authorization: String::new(), range: None };
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((key, value)) = header.trim().split_once(": ") else { return Some(request) };
        match key.to_ascii_lowercase().as_str() {
            "authorization" => request.authorization = value.to_owned(),
            "range" => request.range = value.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok(),
            _ => {}
        }
    }
}

type Content = Mutex<BTreeMap<String, Vec<u8>>>;

fn serve(stream: TcpStream, stop: &AtomicBool, behaviour: &Behaviour, content: &Content, address: &str) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut out = stream;
    while let Some(request) = read_request(&mut reader) {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let key = format!("{} {}", request.method, request.path);
        *behaviour.asked.lock().unwrap().entry(key).or_default() += 1;
        let (head, body, cut) = answer(&request, behaviour, content, address);
        let length =
            if head.contains("content-length") { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        let sent = if cut { &body[..body.len() / 2] } else { &body[..] };
        let sent = if request.method == "HEAD" { &[] } else { sent };
        if out.write_all(format!("HTTP/1.1 {head}{length}\r\n").as_bytes()).is_err()
            || out.write_all(sent).is_err()
            || cut
        {
            return;
        }
    }
}

/// Status line with headers, body, and whether to break off in the middle of it.
fn answer(request: &Request, behaviour: &Behaviour, content: &Content, address: &str) -> (String, Vec<u8>, bool) {
    let plain = |head: &str| (format!("{head}\r\n"), Vec::new(), false);
    if behaviour.busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
        return plain("429 Too Many Requests\r\nretry-after: 0");
    }
    if let Some(login) = &behaviour.login {
        if request.path.starts_with("/token") {
            let granted = request.authorization == format!("Basic {login}");
            let body = br#"{"token":"let-me-in"}"#.to_vec();
            return if granted { ("200 OK\r\n".to_owned(), body, false) } else { plain("401 Unauthorized") };
        }
        if behaviour.basic && request.authorization != format!("Basic {login}") {
            return plain("401 Unauthorized\r\nwww-authenticate: Basic realm=\"x\"");
        }
        if !behaviour.basic && request.authorization != "Bearer let-me-in" {
            return plain(&format!(
                "401 Unauthorized\r\nwww-authenticate: Bearer realm=\"http://{address}/token\",service=\"s\""
            ));
        }
    }
    let Some(bytes) = content.lock().unwrap().get(&request.path).cloned() else { return plain("404 Not Found") };
    let head = format!("200 OK\r\ndocker-content-digest: {}\r\n", digest(&bytes));
    if !request.path.contains("/blobs/") {
        return (head, bytes, false);
    }
    if let Some(from) = request.range.filter(|_| !behaviour.no_ranges) {
        return ("206 Partial Content\r\n".to_owned(), bytes[from..].to_vec(), false);
    }
    let first = *behaviour.asked.lock().unwrap().get(&format!("GET {}", request.path)).unwrap() == 1;
    let cut = behaviour.breaks.load(Ordering::Relaxed) && first && bytes.len() > 10_000;
    let head = format!("200 OK\r\ncontent-length: {}\r\n", bytes.len());
    (head, bytes, cut)
}
