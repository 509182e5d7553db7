//! etcd: its process, and its API as JSON over HTTP (the gateway that every etcd has).

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::RwLock;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use crate::machine::NodeConfig;
use crate::net::http::{self, Credentials, HttpQuestion};

/// Ports of clients and of other members.
const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;
/// Answer within this, or another member is asked.
const PATIENCE: Duration = Duration::from_secs(8);

/// Address with the brackets that URLs need.
fn bracketed(ip: IpAddr) -> String {
    if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() }
}

/// Where clients reach the member with that address.
pub fn client_url(ip: IpAddr) -> String {
    format!("http://{}:{CLIENT_PORT}", bracketed(ip))
}

/// Where other members reach it.
pub fn peer_url(ip: IpAddr) -> String {
    format!("http://{}:{PEER_PORT}", bracketed(ip))
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id, a decimal number.
    pub id: String,
    /// Its name; empty until it has started.
    pub name: String,
    /// Where other members reach it.
    pub peers: Vec<String>,
    /// Where clients reach it; none until it has started.
    pub clients: Vec<String>,
}

impl Member {
    /// Has it started once?
    pub fn started(&self) -> bool {
        !self.name.is_empty() && !self.clients.is_empty()
    }
}

/// A value and its place in etcd's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdEntry {
    /// Key in etcd.
    pub key: String,
    /// What is stored under the key.
    pub value: Vec<u8>,
    /// Revision of its last change.
    pub revision: i64,
}

/// A client of etcd: asks the first member that answers.
#[derive(Debug)]
pub struct Etcd {
    endpoints: RwLock<Vec<String>>,
    kept: http::Kept,
}

impl Etcd {
    /// A client of these members.
    pub fn new(endpoints: Vec<String>) -> Self {
        Self { endpoints: RwLock::new(endpoints), kept: http::Kept::default() }
    }

    /// The members that are asked.
    pub fn endpoints(&self) -> Vec<String> {
        self.endpoints.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Asks others from now on.
    pub fn set_endpoints(&self, endpoints: Vec<String>) {
        *self.endpoints.write().unwrap_or_else(std::sync::PoisonError::into_inner) = endpoints;
    }

    async fn ask(&self, path: &str, body: &Value) -> io::Result<Value> {
        let mut problem = io::Error::other("no member of etcd is known");
        for endpoint in self.endpoints() {
            let headers = [("content-type", "application/json")];
            let url = format!("{endpoint}{path}");
            let body = body.to_string().into_bytes();
            match self
                .kept
                .send(
                    HttpQuestion { method: "POST", url: &url, headers: &headers, body },
                    &Credentials::default(),
                    PATIENCE,
                )
                .await
            {
                Ok(answer) if answer.is_success() => {
                    return serde_json::from_slice(&answer.body).map_err(io::Error::other);
                }
                Ok(answer) => problem = io::Error::other(format!("{url}: {}: {}", answer.status, answer.text().trim())),
                Err(e) => problem = e,
            }
        }
        Err(problem)
    }

    /// Entries whose keys begin with `prefix`, in order of keys.
    ///
    /// # Errors
    /// When no member answers.
    pub async fn list(&self, prefix: &str) -> io::Result<Vec<EtcdEntry>> {
        let body = json!({ "key": BASE64.encode(prefix), "range_end": BASE64.encode(end_of(prefix)) });
        Ok(entries(&self.ask("/v3/kv/range", &body).await?))
    }

    /// The entry with that key.
    ///
    /// # Errors
    /// When no member answers.
    pub async fn get(&self, key: &str) -> io::Result<Option<EtcdEntry>> {
        let found = self.ask("/v3/kv/range", &json!({ "key": BASE64.encode(key) })).await?;
        Ok(entries(&found).into_iter().next())
    }

    /// The entry with that key, and those with the prefix that changed after a revision, as they are at one moment.
    ///
    /// # Errors
    /// When no member answers.
    pub async fn look(&self, key: &str, prefix: &str, after: i64) -> io::Result<(Option<EtcdEntry>, Vec<EtcdEntry>)> {
        let body = json!({ "success": [
            { "requestRange": { "key": BASE64.encode(key) } },
            { "requestRange": { "key": BASE64.encode(prefix), "range_end": BASE64.encode(end_of(prefix)),
                "min_mod_revision": (after + 1).to_string() } },
        ] });
        let answer = self.ask("/v3/kv/txn", &body).await?;
        let part =
            |at: usize| answer.pointer(&format!("/responses/{at}/response_range")).map(entries).unwrap_or_default();
        Ok((part(0).into_iter().next(), part(1)))
    }

    /// Writes entries (`None`: removes them), all or none: if the entry with that key has still that revision (0: there is none). The
    /// new revision, or `None` when somebody else was faster.
    ///
    /// # Errors
    /// When no member answers.
    pub async fn commit(
        &self,
        (key, revision): (&str, i64),
        writes: &[(String, Option<Vec<u8>>)],
    ) -> io::Result<Option<i64>> {
        let compare = json!({ "key": BASE64.encode(key), "target": "MOD", "result": "EQUAL", "modRevision": revision.to_string() });
        let then: Vec<Value> = writes
            .iter()
            .map(|(key, value)| match value {
                Some(value) => json!({ "requestPut": { "key": BASE64.encode(key), "value": BASE64.encode(value) } }),
                None => json!({ "requestDeleteRange": { "key": BASE64.encode(key) } }),
            })
            .collect();
        let answer = self.ask("/v3/kv/txn", &json!({ "compare": [compare], "success": then })).await?;
        let revision = answer.pointer("/header/revision").map_or(0, number);
        Ok((answer.get("succeeded") == Some(&Value::Bool(true))).then_some(revision))
    }

    /// All members.
    ///
    /// # Errors
    /// When no member answers.
    pub async fn members(&self) -> io::Result<Vec<Member>> {
        Ok(members(&self.ask("/v3/cluster/member/list", &json!({})).await?))
    }

    /// Announces a member that will start; all members, with the new one.
    ///
    /// # Errors
    /// When the cluster refuses: for example while another new member has not started yet.
    pub async fn add_member(&self, peer_url: &str) -> io::Result<Vec<Member>> {
        Ok(members(&self.ask("/v3/cluster/member/add", &json!({ "peerURLs": [peer_url] })).await?))
    }

    /// Removes a member.
    ///
    /// # Errors
    /// When the cluster refuses.
    pub async fn remove_member(&self, id: &str) -> io::Result<()> {
        self.ask("/v3/cluster/member/remove", &json!({ "ID": id })).await.map(drop)
    }

    /// Waits until a member answers with a leader behind it.
    ///
    /// # Errors
    /// The last problem when `budget` is over.
    pub async fn wait(&self, budget: Duration) -> io::Result<()> {
        let until = Instant::now() + budget;
        loop {
            // A read through the leader: an answer means that there is one.
            match self.get("vlab/alive").await {
                Ok(_) => return Ok(()),
                Err(e) if Instant::now() >= until => {
                    return Err(io::Error::new(e.kind(), format!("etcd is not up within {budget:?}: {e}")));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }
}

/// The first key behind those with a prefix.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// A number, which the gateway writes as text.
fn number(value: &Value) -> i64 {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}

fn entries(answer: &Value) -> Vec<EtcdEntry> {
    let decode =
        |value: Option<&Value>| BASE64.decode(value.and_then(Value::as_str).unwrap_or_default()).unwrap_or_default();
    let all = answer.get("kvs").and_then(Value::as_array).into_iter().flatten();
    all.map(|kv| EtcdEntry {
        key: String::from_utf8_lossy(&decode(kv.get("key"))).into_owned(),
        value: decode(kv.get("value")),
        revision: kv.get("mod_revision").map_or(0, number),
    })
    .collect()
}

/// Members of an answer.
fn members(answer: &Value) -> Vec<Member> {
    let texts = |v: &Value, name: &str| -> Vec<String> {
        let list = v.get(name).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(|t| t.as_str().map(str::to_owned)).collect()
    };
    let text = |v: &Value, name: &str| v.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let all = answer.get("members").and_then(Value::as_array).into_iter().flatten();
    all.map(|m| Member {
        id: text(m, "ID"),
        name: text(m, "name"),
        peers: texts(m, "peerURLs"),
        clients: texts(m, "clientURLs"),
    })
    .collect()
}

/// How a member begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// A cluster of its own.
    New,
    /// It joins: names and peer URLs of all members, itself included.
    Join(Vec<(String, String)>),
    /// It has data already.
    Again,
}

/// Arguments of etcd for a member; `alone`: no other one will ever join it.
pub fn arguments(name: &str, ip: IpAddr, data: &Path, begin: &Begin, alone: bool) -> Vec<String> {
    let cluster = match begin {
        Begin::New | Begin::Again => format!("{name}={}", peer_url(ip)),
        Begin::Join(all) => all.iter().map(|(n, u)| format!("{n}={u}")).collect::<Vec<_>>().join(","),
    };
    let mut args: Vec<String> = Vec::new();
    let mut add = |option: &str, value: String| args.push(format!("--{option}={value}"));
    add("name", name.to_owned());
    add("data-dir", data.display().to_string());
    add("listen-client-urls", client_url(ip));
    add("advertise-client-urls", client_url(ip));
    add("listen-peer-urls", peer_url(ip));
    add("initial-advertise-peer-urls", peer_url(ip));
    add("initial-cluster", cluster);
    add("initial-cluster-state", if matches!(begin, Begin::Join(_)) { "existing" } else { "new" }.to_owned());
    // Emulated machines are slow: a leader must not be given up for that. Who is alone only waits so long for its own vote.
    if !alone {
        add("heartbeat-interval", "500".to_owned());
        add("election-timeout", "5000".to_owned());
    }
    // With its other logger etcd 3.4 dies of a nil pointer where it has something to say about a slow member.
    add("logger", "zap".to_owned());
    args
}

/// Starts a member; its output goes to `log`.
///
/// # Errors
/// When the program cannot be started.
pub fn start(config: &NodeConfig, args: &[String], log: &Path) -> io::Result<Child> {
    let program = config.program("etcd");
    let out = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
    Command::new(&program)
        .args(args)
        // One emulated processor: more threads only wait for each other.
        .env("GOMAXPROCS", "1")
        .env("ETCDCTL_API", "3")
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .spawn()
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", program.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_gateway() {
        let answer =
            json!({ "header": { "revision": "7" }, "kvs": [{ "key": "L2E=", "mod_revision": "5", "value": "e30=" }] });
        assert_eq!(entries(&answer), [EtcdEntry { key: "/a".into(), value: b"{}".to_vec(), revision: 5 }]);
        let answer = json!({ "members": [{ "ID": "10276657743932975437", "name": "a", "peerURLs": ["http://p"], "clientURLs": ["http://c"] },
            { "ID": "2", "peerURLs": ["http://q"] }] });
        let members = members(&answer);
        assert_eq!(members[0].id, "10276657743932975437", "larger than a signed number");
        assert_eq!(members.iter().map(Member::started).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn a_joining_member_names_all() {
        let begin = Begin::Join(vec![("a".into(), "http://1:2380".into()), ("b".into(), "http://2:2380".into())]);
        let args = arguments("b", "192.0.2.2".parse().unwrap(), Path::new("/d"), &begin, false).join(" ");
        assert!(
            args.contains("--initial-cluster=a=http://1:2380,b=http://2:2380 --initial-cluster-state=existing"),
            "{args}"
        );
        let args = arguments("b", "fd00::2".parse().unwrap(), Path::new("/d"), &Begin::New, true).join(" ");
        assert!(!args.contains("election-timeout"), "{args}");
        assert!(args.contains("--initial-cluster=b=http://[fd00::2]:2380 --initial-cluster-state=new"), "{args}");
    }
}
