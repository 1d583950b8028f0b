use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use warren_model::SandboxId;

/// Longest token that is looked at, bytes.
const TOKEN_LEN_MAX: usize = 256;

/// The secret with which a node signs the tokens of its data plane.
#[derive(Clone)]
pub struct TokenKey([u8; 32]);

/// What a valid token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenClaims {
    /// The one sandbox that it opens.
    pub sandbox: SandboxId,
    /// Milliseconds since 1970.
    pub expires_at_ms: u64,
}

/// A token is malformed, forged, of another key, or over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("token is not valid")]
pub struct BadToken;

impl TokenKey {
    /// A key from 32 random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    fn mac(&self, signed: &str) -> Hmac<Sha256> {
        // HMAC takes a key of any length, so this cannot fail.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).unwrap_or_else(|_| unreachable!());
        mac.update(signed.as_bytes());
        mac
    }

    /// Signs: `w1.<sandbox>.<expiry ms>.<base64url of HMAC-SHA-256>`.
    pub fn sign(&self, sandbox: &SandboxId, expires_at_ms: u64) -> String {
        let signed = format!("w1.{sandbox}.{expires_at_ms}");
        let tag = URL_SAFE_NO_PAD.encode(self.mac(&signed).finalize().into_bytes());
        format!("{signed}.{tag}")
    }

    /// Checks signature and time.
    pub fn verify(&self, token: &str, now_ms: u64) -> Result<TokenClaims, BadToken> {
        if token.len() > TOKEN_LEN_MAX {
            return Err(BadToken);
        }
        let (signed, tag) = token.rsplit_once('.').ok_or(BadToken)?;
        let tag = URL_SAFE_NO_PAD.decode(tag).map_err(|_| BadToken)?;
        self.mac(signed).verify_slice(&tag).map_err(|_| BadToken)?;
        let mut parts = signed.split('.');
        let (Some("w1"), Some(id), Some(expiry), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(BadToken);
        };
        let sandbox = SandboxId::parse(id).map_err(|_| BadToken)?;
        let expires_at_ms = expiry.parse().map_err(|_| BadToken)?;
        if now_ms >= expires_at_ms { Err(BadToken) } else { Ok(TokenClaims { sandbox, expires_at_ms }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_one_sandbox_until_its_time() {
        let key = TokenKey::new([7; 32]);
        let id = SandboxId::from_bits(42);
        let token = key.sign(&id, 1000);
        assert_eq!(key.verify(&token, 999), Ok(TokenClaims { sandbox: id.clone(), expires_at_ms: 1000 }));
        assert_eq!(key.verify(&token, 1000), Err(BadToken));
        assert_eq!(TokenKey::new([8; 32]).verify(&token, 1), Err(BadToken));
        let forged = token.replacen("1000", "9999", 1);
        assert_eq!(key.verify(&forged, 1), Err(BadToken));
        for bad in ["", ".", "w1...", &"x".repeat(10_000)] {
            assert_eq!(key.verify(bad, 1), Err(BadToken));
        }
    }
}
