//! Randomness of the operating system, and the ids and keys made of it.

use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt::Write as _;
use std::io;

/// Random bits of an API key.
const API_KEY_BYTES: usize = 24;

/// `N` random bytes; up to 256 come in one call.
pub(crate) fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut buffer = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut buffer[filled..], GetRandomFlags::empty())?;
    }
    Ok(buffer)
}

/// 128 random bits.
pub(crate) fn bits() -> io::Result<u128> {
    bytes::<16>().map(u128::from_le_bytes)
}

/// `initial` and 24 characters of `a-z0-9`: the shape that clients accept for team ids.
pub(crate) fn id(initial: char) -> io::Result<String> {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut bits = bits()?;
    let mut text = String::from(initial);
    for _ in 0..24 {
        text.push(char::from(ALPHABET[(bits % 36) as usize]));
        bits /= 36;
    }
    Ok(text)
}

/// A code for people to compare and type: two groups of four characters that are not mistaken for one another.
pub(crate) fn code() -> io::Result<String> {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
    let bits = bits()?;
    let letter = |place: u32| char::from(ALPHABET[(bits >> (5 * place)) as usize & 31]);
    let group = |from: u32| (from..from + 4).map(letter).collect::<String>();
    Ok(format!("{}-{}", group(0), group(4)))
}

/// A new API key.
pub(crate) fn api_key() -> io::Result<String> {
    let mut key = String::from("wrn_");
    for byte in bytes::<API_KEY_BYTES>()? {
        // Writing to a String cannot fail.
        let _ = write!(key, "{byte:02x}");
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    #[test]
    fn shapes() {
        let id = super::id('c').unwrap();
        assert_eq!(id.len(), 25);
        assert!(id.starts_with('c') && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()));
        assert_eq!(super::api_key().unwrap().len(), 4 + 48);
        assert_ne!(super::bits().unwrap(), super::bits().unwrap());
    }
}
