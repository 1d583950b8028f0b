//! The half-MD4 hash of directory names, with bytes taken as unsigned.

/// Hash of a name: the part that orders the index, lowest bit clear.
pub(super) fn half_md4(name: &[u8], seed: [u32; 4]) -> u32 {
    let mut state = seed;
    let mut rest = name;
    while !rest.is_empty() {
        let words = pack(rest);
        transform(&mut state, &words);
        rest = &rest[rest.len().min(32)..];
    }
    // The largest value means "end of directory" to readers.
    match state[1] & !1 {
        0xFFFF_FFFE => 0xFFFF_FFFC,
        hash => hash,
    }
}

/// Up to 32 bytes of `name` as 8 words, padded with its length.
fn pack(name: &[u8]) -> [u32; 8] {
    let len = name.len() as u32;
    let pad = len | len << 8;
    let pad = pad | pad << 16;
    let mut words = [pad; 8];
    for (word, chunk) in words.iter_mut().zip(name.chunks(4)) {
        *word = chunk.iter().fold(pad, |value, byte| (value << 8).wrapping_add(u32::from(*byte)));
    }
    words
}

fn transform(state: &mut [u32; 4], input: &[u32; 8]) {
    const K2: u32 = 0x5A82_7999;
    const K3: u32 = 0x6ED9_EBA1;
    type Mix = fn(u32, u32, u32) -> u32;
    const ROUNDS: [(Mix, u32, [usize; 8], [u32; 4]); 3] = [
        (|x, y, z| z ^ (x & (y ^ z)), 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (|x, y, z| (x & y).wrapping_add((x ^ y) & z), K2, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13]),
        (|x, y, z| x ^ y ^ z, K3, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]),
    ];
    let mut regs = *state;
    for (mix, constant, order, shifts) in ROUNDS {
        for (step, index) in order.into_iter().enumerate() {
            // Step 0 changes a, step 1 d, step 2 c, step 3 b, and so on.
            let a = (4 - step % 4) % 4;
            let (b, c, d) = (regs[(a + 1) % 4], regs[(a + 2) % 4], regs[(a + 3) % 4]);
            let sum = regs[a].wrapping_add(mix(b, c, d)).wrapping_add(input[index]).wrapping_add(constant);
            regs[a] = sum.rotate_left(shifts[step % 4]);
        }
    }
    for (word, reg) in state.iter_mut().zip(regs) {
        *word = word.wrapping_add(reg);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: [u32; 4] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];

    #[test]
    fn as_debugfs_prints_it() {
        // debugfs -R 'dx_hash -h half_md4 NAME'
        for (name, hash) in HASHES {
            assert_eq!(half_md4(name.as_bytes(), SEED), hash, "{name}");
        }
    }

    const HASHES: [(&str, u32); 4] = [
        ("a", 0xd5fa_7d7a),
        ("hello", 0x1746_da32),
        ("a-name-of-more-than-thirty-two-bytes.txt", 0xe45d_53cc),
        ("lost+found", 0x591d_e422),
    ];
}
