//! Logging in: tokens are fetched once for a repository and kept while the registry takes them.

use super::challenge::{Challenge, parse};
use super::config::RegistryConfig;
use super::endpoint::Endpoint;
use super::errand::Errand;
use super::error::PullError;
use super::http::{Http, retry_after, send};
use crate::store::lock;
use reqwest::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use reqwest::{RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::Mutex;
use warren_model::Login;

/// Largest answer of a token server, bytes.
const TOKEN_ANSWER_MAX: u64 = 1 << 20;
/// Tokens that are kept.
const TOKENS_MAX: usize = 1024;

/// What the last request about a repository was allowed with.
#[derive(Clone)]
enum Grant {
    Basic(Login),
    Bearer(String),
}

/// A grant, and the login that it was got with: another login must get its own.
#[derive(Clone)]
struct Granted {
    login: Option<Login>,
    grant: Grant,
}

/// Owner of the login if it is a saved one, base URL, repository.
type GrantKey = (Option<String>, String, String);

/// Logins and tokens.
pub(super) struct Auth {
    config: RegistryConfig,
    grants: Mutex<HashMap<GrantKey, Granted>>,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth").finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

impl Auth {
    pub(super) fn new(config: RegistryConfig) -> Self {
        Self { config, grants: Mutex::default() }
    }

    /// Sends a request about `repository`; logs in if the registry asks for it, once.
    pub(super) async fn send(
        &self,
        http: &Http,
        errand: &Errand,
        endpoint: &Endpoint,
        repository: &str,
        request: impl Fn() -> RequestBuilder,
    ) -> Result<Response, PullError> {
        let granted = self.granted(errand, endpoint, repository);
        let grant = granted.as_ref().map(|granted| &granted.grant);
        let response = send(errand, endpoint, with_grant(request(), grant)).await?;
        // Where a registry redirects to has no say in who gets its logins.
        if response.status() != StatusCode::UNAUTHORIZED || !endpoint.is_origin_of(response.url()) {
            return Ok(response);
        }
        let Some(grant) = self.log_in(http, errand, endpoint, repository, &response).await? else {
            return Ok(response);
        };
        let login = self.login(errand, endpoint).cloned();
        self.keep(key(errand, endpoint, repository), Granted { login, grant: grant.clone() });
        send(errand, endpoint, with_grant(request(), Some(&grant))).await
    }

    fn granted(&self, errand: &Errand, endpoint: &Endpoint, repository: &str) -> Option<Granted> {
        let granted = lock(&self.grants).get(&key(errand, endpoint, repository)).cloned()?;
        (granted.login.as_ref() == self.login(errand, endpoint)).then_some(granted)
    }

    fn keep(&self, key: GrantKey, granted: Granted) {
        let mut grants = lock(&self.grants);
        if grants.len() >= TOKENS_MAX {
            grants.clear();
        }
        grants.insert(key, granted);
    }

    /// The login for an endpoint: the saved one of whoever asks, else what the node is configured with.
    fn login<'a>(&'a self, errand: &'a Errand, endpoint: &Endpoint) -> Option<&'a Login> {
        errand.saved_login(endpoint).or_else(|| self.config.credentials.get(&endpoint.host))
    }

    /// What a refusal is about.
    pub(super) fn denied(&self, errand: &Errand, endpoint: &Endpoint, repository: &str) -> PullError {
        let hint = match (errand.saved_login(endpoint), self.config.credentials.contains_key(&endpoint.host)) {
            (Some(_), _) => "; the saved one was not accepted",
            (None, true) => "; the configured one was not accepted",
            (None, false) => "; none is saved or configured",
        };
        PullError::Denied { host: endpoint.host.clone(), what: repository.to_owned(), hint }
    }

    /// `None` if the registry asks for a login that is not there.
    async fn log_in(
        &self,
        http: &Http,
        errand: &Errand,
        endpoint: &Endpoint,
        repository: &str,
        refusal: &Response,
    ) -> Result<Option<Grant>, PullError> {
        let login = self.login(errand, endpoint);
        let headers = refusal.headers().get_all(WWW_AUTHENTICATE);
        let challenges: Vec<Challenge> = headers.iter().filter_map(|h| parse(h.to_str().ok()?)).collect();
        for challenge in challenges {
            match (challenge, login) {
                (Challenge::Basic, Some(login)) => return Ok(Some(Grant::Basic(login.clone()))),
                (Challenge::Basic, None) => {}
                (Challenge::Bearer { realm, service, scope }, _) => {
                    let scope = scope.unwrap_or_else(|| format!("repository:{repository}:pull"));
                    let url = token_url(endpoint, &realm, service.as_deref(), &scope)?;
                    return self.token(http, errand, endpoint, repository, url).await.map(Some);
                }
            }
        }
        Ok(None)
    }

    async fn token(
        &self,
        http: &Http,
        errand: &Errand,
        endpoint: &Endpoint,
        repository: &str,
        url: Url,
    ) -> Result<Grant, PullError> {
        let grant = self.login(errand, endpoint).map(|login| Grant::Basic(login.clone()));
        let request = with_grant(http.client(endpoint).get(url), grant.as_ref());
        let response = send(errand, endpoint, request).await?;
        let broken = |problem: &str| PullError::Protocol { host: endpoint.host.clone(), problem: problem.to_owned() };
        match response.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return Err(self.denied(errand, endpoint, repository));
            }
            StatusCode::TOO_MANY_REQUESTS => return Err(limited(endpoint, &response)),
            status => {
                return Err(PullError::Broken { host: endpoint.host.clone(), status: status.as_u16() });
            }
        }
        let bytes = super::client::read(endpoint, response, "a token", TOKEN_ANSWER_MAX).await?;
        let answer: TokenAnswer = serde_json::from_slice(&bytes).map_err(|_| broken("a token that is not JSON"))?;
        let token = answer.token.or(answer.access_token).ok_or_else(|| broken("without a token"))?;
        Ok(Grant::Bearer(token))
    }
}

/// A refusal for too many requests.
pub(super) fn limited(endpoint: &Endpoint, response: &Response) -> PullError {
    let asked = retry_after(response).filter(|asked| !asked.is_zero());
    let hint = asked.map(|asked| format!(" and asks to be left alone for {} s", asked.as_secs())).unwrap_or_default();
    PullError::RateLimited { host: endpoint.host.clone(), hint }
}

fn key(errand: &Errand, endpoint: &Endpoint, repository: &str) -> GrantKey {
    let owner = errand.scope(endpoint).map(str::to_owned);
    (owner, endpoint.base.clone(), repository.to_owned())
}

/// URL of the token server. A registry behind TLS must not send a login into the clear.
fn token_url(endpoint: &Endpoint, realm: &str, service: Option<&str>, scope: &str) -> Result<Url, PullError> {
    let bad = || PullError::Protocol { host: endpoint.host.clone(), problem: format!("a bad token server {realm:?}") };
    let mut url = Url::parse(realm).map_err(|_| bad())?;
    let fits = url.scheme() == "https" || (url.scheme() == "http" && !endpoint.is_tls());
    if !fits {
        return Err(bad());
    }
    let mut query = url.query_pairs_mut();
    if let Some(service) = service {
        query.append_pair("service", service);
    }
    query.append_pair("scope", scope);
    drop(query);
    Ok(url)
}

fn with_grant(request: RequestBuilder, grant: Option<&Grant>) -> RequestBuilder {
    match grant {
        Some(Grant::Basic(login)) => request.basic_auth(&login.user, Some(&login.password)),
        Some(Grant::Bearer(token)) => request.header(AUTHORIZATION, format!("Bearer {token}")),
        None => request,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_not_sent_in_clear_by_a_registry_behind_tls() {
        let endpoint = |base: &str| Endpoint { base: base.to_owned(), host: "h".to_owned(), is_mirror: false };
        let far = endpoint("https://registry.example");
        assert!(token_url(&far, "http://auth.example/token", None, "s").is_err());
        assert!(token_url(&far, "file:///etc/passwd", None, "s").is_err());
        let url = token_url(&far, "https://auth.example/token?a=b", Some("r x"), "repository:a:pull").unwrap();
        assert_eq!(url.as_str(), "https://auth.example/token?a=b&service=r+x&scope=repository%3Aa%3Apull");
        assert!(token_url(&endpoint("http://127.0.0.1:1"), "http://127.0.0.1:2/t", None, "s").is_ok());
    }
}
