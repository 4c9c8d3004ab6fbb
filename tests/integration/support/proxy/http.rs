//! As much of HTTP as telling one call from the next takes.

use std::path::Path;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// The head with another length of the body, if it told one.
pub(super) fn with_length(head: &str, length: usize) -> String {
    let lines = head.split("\r\n").map(|line| match line.split_once(':') {
        Some((name, _)) if name.eq_ignore_ascii_case("content-length") => {
            format!("{name}: {length}")
        }
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\r\n")
}

/// The head of a request, and what was read after it; `None` if the client went away.
pub(super) async fn read_head(
    client: &mut UnixStream,
) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = find_end(&bytes) {
            let rest = bytes.split_off(end);
            return Ok(Some((String::from_utf8(bytes).unwrap(), rest)));
        }
        if client.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
}

pub(super) fn find_end(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some(end + 4)
}

/// The head with the wish that the connection be closed after the answer.
pub(super) fn closing(head: &str) -> String {
    if head.to_ascii_lowercase().contains("\r\nupgrade:") {
        return head.to_owned();
    }
    head.replacen("\r\n", "\r\nConnection: close\r\n", 1)
}

/// The request with its whole body.
pub(super) async fn whole(
    client: &mut UnixStream,
    head: String,
    mut body: Vec<u8>,
) -> std::io::Result<(String, Vec<u8>)> {
    let length = head
        .lines()
        .find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse::<usize>().unwrap())
        })
        .unwrap_or_default();
    while body.len() < length {
        client.read_buf(&mut body).await?;
    }
    Ok((head, body))
}

/// Asks the engine in HTTP/1.0, whose answers have one plain body; gives status and body.
pub(super) async fn ask(
    engine: &Path,
    head: &str,
    body: &[u8],
) -> std::io::Result<(String, Vec<u8>)> {
    let mut engine = UnixStream::connect(engine).await?;
    let head = head.replacen(" HTTP/1.1\r\n", " HTTP/1.0\r\n", 1);
    engine.write_all(head.as_bytes()).await?;
    engine.write_all(body).await?;
    let mut answer = Vec::new();
    engine.read_to_end(&mut answer).await?;
    let body = answer.split_off(find_end(&answer).unwrap());
    let line = String::from_utf8_lossy(&answer);
    let status = line.lines().next().unwrap().split_once(' ').unwrap().1;
    Ok((status.to_owned(), body))
}

pub(super) fn answer_head(status: &str, length: usize) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n"
    )
}

pub(super) async fn answer(
    mut client: UnixStream,
    status: &str,
    body: &[u8],
) -> std::io::Result<()> {
    let head = answer_head(status, body.len());
    client.write_all(head.as_bytes()).await?;
    client.write_all(body).await?;
    client.shutdown().await
}
