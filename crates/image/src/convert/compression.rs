use std::io::{self, BufReader, Cursor, Read};

/// Bytes given to a decoder at once.
const BUFFER_LEN: usize = 256 << 10;
/// Largest window of a zstd stream, as a power of two: 128 MiB, zstd's own limit without `--long`.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// A stream after its compression was found out.
pub struct Decompressed<'a> {
    /// The plain bytes.
    pub reader: Box<dyn Read + 'a>,
    /// Whether they differ from the source's.
    pub compressed: bool,
}

/// The bytes of `source` decompressed if it starts like gzip or zstd, else as they are.
pub fn decompressed<'a>(mut source: impl Read + 'a) -> io::Result<Decompressed<'a>> {
    let mut start = Vec::with_capacity(6);
    source.by_ref().take(6).read_to_end(&mut start)?;
    let kind = start.clone();
    let whole = Cursor::new(start).chain(source);
    let mut compressed = true;
    let reader: Box<dyn Read + 'a> = match kind.as_slice() {
        [0x1F, 0x8B, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(BufReader::with_capacity(BUFFER_LEN, whole))),
        [0x28, 0xB5, 0x2F, 0xFD, ..] => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(BufReader::with_capacity(BUFFER_LEN, whole))?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            Box::new(decoder)
        }
        [b'B', b'Z', b'h', ..] => return Err(unsupported("bzip2")),
        [0xFD, b'7', b'z', b'X', b'Z', 0] => return Err(unsupported("xz")),
        _ => {
            compressed = false;
            Box::new(whole)
        }
    };
    Ok(Decompressed { reader, compressed })
}

fn unsupported(what: &str) -> io::Error {
    let advice = format!("compressed with {what}, which images do not use; recompress it with gzip or zstd");
    io::Error::new(io::ErrorKind::InvalidData, advice)
}
