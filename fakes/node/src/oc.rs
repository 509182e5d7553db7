//! Stands in for `oc`, for what the product's installer and controller ask of it: how often a node has booted, a must-gather, and
//! applying manifests. It speaks with the API that the kubeconfig names. Everything else is refused with what it can.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::cluster::node::BOOTS;
use crate::net::http::{self, Credentials, HttpAnswer, HttpQuestion};

/// The folder that a must-gather leaves.
const GATHERED: &str = "must-gather.local.vlab";
/// What is in it.
const NOTE: &str = "This is the lab's: there are no containers on its machines in which anything could be gathered.\n\
                    What the machines have to say is in their own logs.\n";
/// How long an answer of the API may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    /// When did that node boot?
    Reboots(String),
    /// Gather.
    MustGather,
    /// Apply that file.
    Apply(String),
}

/// A command line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    kubeconfig: Option<String>,
    asked: Asked,
}

fn refused(words: &[&str]) -> String {
    format!(
        "error: the lab's stand-in for oc does not know: {}. It can `debug node/NAME -- chroot /host last reboot`, \
         `adm must-gather [--image=IMAGE]` and `apply -f FILE`",
        words.join(" ")
    )
}

impl Line {
    fn parse(words: &[String]) -> Result<Self, String> {
        let mut kubeconfig = None;
        let mut rest = Vec::new();
        let mut all = words.iter().map(String::as_str);
        while let Some(word) = all.next() {
            match word.split_once('=') {
                _ if word == "--" => {
                    rest.push(word);
                    rest.extend(all.by_ref());
                }
                Some(("--kubeconfig", file)) => kubeconfig = Some(file.to_owned()),
                None if word == "--kubeconfig" => kubeconfig = all.next().map(str::to_owned),
                _ => rest.push(word),
            }
        }
        let asked = match rest.as_slice() {
            ["debug", node, "--", "chroot", "/host", "last", "reboot"] => {
                let node = node.strip_prefix("node/").ok_or_else(|| refused(&rest))?;
                Asked::Reboots(node.to_owned())
            }
            ["adm", "must-gather", images @ ..] if images.iter().all(|word| word.starts_with("--image=")) => {
                Asked::MustGather
            }
            ["apply", "-f" | "--filename", file] => Asked::Apply((*file).to_owned()),
            ["apply", file] => {
                let file = file.strip_prefix("-f=").or_else(|| file.strip_prefix("--filename="));
                Asked::Apply(file.ok_or_else(|| refused(&rest))?.to_owned())
            }
            _ => return Err(refused(&rest)),
        };
        Ok(Self { kubeconfig, asked })
    }
}

/// Runs it.
///
/// # Errors
/// In the words of the real one where it has some.
pub(crate) fn oc(words: &[String]) -> Result<String, String> {
    let line = Line::parse(words)?;
    if line.asked == Asked::MustGather {
        return must_gather(Path::new("."));
    }
    let file = line.kubeconfig.or_else(|| std::env::var("KUBECONFIG").ok());
    let file = file.ok_or("error: the lab's stand-in for oc needs --kubeconfig, or the variable KUBECONFIG")?;
    let text = fs::read_to_string(&file).map_err(|e| format!("error: {file}: {e}"))?;
    let api = Api::of_kubeconfig(&text, Path::new(&file)).map_err(|why| format!("error: {file}: {why}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    match line.asked {
        Asked::Reboots(node) => runtime.block_on(reboots(&api, &node)),
        Asked::Apply(file) => {
            let text = fs::read_to_string(&file).map_err(|e| format!("error: {file}: {e}"))?;
            runtime.block_on(apply(&api, &text))
        }
        Asked::MustGather => Ok(String::new()),
    }
}

fn must_gather(folder: &Path) -> Result<String, String> {
    let place = folder.join(GATHERED);
    let made = fs::create_dir_all(&place).and_then(|()| fs::write(place.join("README.txt"), NOTE));
    made.map_err(|e| format!("error: {}: {e}", place.display()))?;
    Ok(format!("{GATHERED}: {NOTE}"))
}

/// The API of a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Api {
    server: String,
    credentials: Credentials,
    token: Option<String>,
}

impl Api {
    /// Reads what a kubeconfig says about its current context. Files that it names are looked for beside it.
    fn of_kubeconfig(text: &str, place: &Path) -> Result<Self, String> {
        let config: Value = serde_yaml::from_str(text).map_err(|e| e.to_string())?;
        let named = |list: &str, name: &Value| {
            let all = config[list].as_array().into_iter().flatten();
            all.filter(|item| item["name"] == *name).map(|item| item[&list[..list.len() - 1]].clone()).next()
        };
        let context = named("contexts", &config["current-context"]).ok_or("it has no current context")?;
        let cluster = named("clusters", &context["cluster"]).ok_or("its context has no cluster")?;
        let user = named("users", &context["user"]).unwrap_or_default();
        let pem = |of: &Value, name: &str| -> Result<Option<String>, String> {
            if let Some(data) = of[format!("{name}-data")].as_str() {
                let bytes = BASE64.decode(data.trim()).map_err(|e| format!("{name}-data: {e}"))?;
                return String::from_utf8(bytes).map(Some).map_err(|e| format!("{name}-data: {e}"));
            }
            let Some(file) = of[name].as_str() else { return Ok(None) };
            let file = place.parent().unwrap_or(Path::new("/")).join(file);
            fs::read_to_string(&file).map(Some).map_err(|e| format!("{}: {e}", file.display()))
        };
        let insecure = cluster["insecure-skip-tls-verify"].as_bool() == Some(true);
        let ca = if insecure { None } else { pem(&cluster, "certificate-authority")? };
        let own = pem(&user, "client-certificate")?.zip(pem(&user, "client-key")?);
        Ok(Self {
            server: cluster["server"].as_str().ok_or("its cluster has no server")?.trim_end_matches('/').to_owned(),
            credentials: Credentials { ca, own },
            token: user["token"].as_str().map(str::to_owned),
        })
    }

    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<HttpAnswer, String> {
        let bearer = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let mut headers = vec![("accept", "application/json"), ("content-type", "application/json")];
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        let url = format!("{}{path}", self.server);
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let question = HttpQuestion { method, url: &url, headers: &headers, body };
        let answer = http::send(question, &self.credentials, PATIENCE).await;
        answer.map_err(|e| format!("Unable to connect to the server: {url}: {e}"))
    }

    async fn get(&self, path: &str) -> Result<Option<Value>, String> {
        let answer = self.send("GET", path, None).await?;
        match answer.status {
            404 => Ok(None),
            _ if answer.is_success() => serde_json::from_slice(&answer.body).map(Some).map_err(|e| e.to_string()),
            _ => Err(problem(&answer)),
        }
    }
}

/// What the API says that is wrong, in its own words.
fn problem(answer: &HttpAnswer) -> String {
    let status: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let reason = status["reason"].as_str().map_or_else(|| answer.status.to_string(), str::to_owned);
    let message = status["message"].as_str().map_or_else(|| answer.text(), str::to_owned);
    format!("Error from server ({reason}): {message}")
}

/// What `last reboot` shows on a node: a line for each boot.
async fn reboots(api: &Api, node: &str) -> Result<String, String> {
    let object = api.get(&format!("/api/v1/nodes/{node}")).await?;
    let object = object.ok_or_else(|| format!("Error from server (NotFound): nodes \"{node}\" not found"))?;
    let boots = object["metadata"]["annotations"][BOOTS].as_str().and_then(|n| n.parse().ok()).unwrap_or(1);
    let kernel = object["status"]["nodeInfo"]["kernelVersion"].as_str().unwrap_or("unknown").to_owned();
    let lines = (0..boots).map(|_| format!("reboot   system boot  {kernel}   (counted by the lab)\n"));
    Ok(lines.chain(["\nwtmp begins with the lab's count\n".to_owned()]).collect())
}

/// Creates the objects of a file, or puts them in the place of those that are there.
async fn apply(api: &Api, text: &str) -> Result<String, String> {
    let mut said = String::new();
    let mut known = BTreeMap::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let object = Value::deserialize(document).map_err(|e| format!("error: error parsing: {e}"))?;
        if object.is_null() {
            continue;
        }
        let objects = match object["kind"].as_str() {
            Some("List") => object["items"].as_array().cloned().unwrap_or_default(),
            _ => vec![object],
        };
        for object in objects {
            said.push_str(&apply_one(api, object, &mut known).await?);
        }
    }
    if said.is_empty() { Err("error: no objects passed to apply".to_owned()) } else { Ok(said) }
}

async fn apply_one(api: &Api, mut object: Value, known: &mut BTreeMap<String, Value>) -> Result<String, String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    if name.is_empty() {
        return Err(format!("error: a {kind} without a name cannot be applied"));
    }
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    if !known.contains_key(&root) {
        known.insert(root.clone(), api.get(&root).await?.unwrap_or_default());
    }
    let resources = known.get(&root).map(|list| list["resources"].as_array().cloned().unwrap_or_default());
    let of_kind = |r: &&Value| r["kind"] == json!(kind) && r["name"].as_str().is_some_and(|name| !name.contains('/'));
    let resource = resources.iter().flatten().find(of_kind).cloned();
    let resource = resource.ok_or_else(|| {
        format!("error: resource mapping not found for name: \"{name}\": no matches for kind \"{kind}\" in version \"{version}\"")
    })?;
    let plural = resource["name"].as_str().unwrap_or_default();
    let namespace = match text("/metadata/namespace") {
        namespace if namespace.is_empty() => "default".to_owned(),
        namespace => namespace,
    };
    let collection = match resource["namespaced"].as_bool() {
        Some(true) => format!("{root}/namespaces/{namespace}/{plural}"),
        _ => format!("{root}/{plural}"),
    };
    let one = format!("{collection}/{name}");
    let (answer, done) = match api.get(&one).await? {
        None => (api.send("POST", &collection, Some(&object)).await?, "created"),
        Some(there) => {
            object["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"].clone();
            (api.send("PUT", &one, Some(&object)).await?, "configured")
        }
    };
    if !answer.is_success() {
        return Err(problem(&answer));
    }
    Ok(format!("{}/{name} {done}\n", kind.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::mpsc;

    use rstest::rstest;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[rstest]
    #[case("--kubeconfig /k debug node/n-1 -- chroot /host last reboot", Asked::Reboots("n-1".into()))]
    #[case("--kubeconfig=/k adm must-gather --image=a --image=b", Asked::MustGather)]
    #[case("adm must-gather --kubeconfig /k", Asked::MustGather)]
    #[case("--kubeconfig=/k apply -f /m.yaml", Asked::Apply("/m.yaml".into()))]
    #[case("--kubeconfig=/k apply --filename=/m.yaml", Asked::Apply("/m.yaml".into()))]
    fn what_the_product_asks_is_understood(#[case] line: &str, #[case] asked: Asked) {
        assert_eq!(Line::parse(&words(line)), Ok(Line { kubeconfig: Some("/k".into()), asked }));
    }

    #[rstest]
    #[case("get nodes")]
    #[case("debug node/n -- chroot /host last")]
    #[case("debug pod/n -- chroot /host last reboot")]
    #[case("debug node/n -- chroot /host last reboot --kubeconfig=/k")]
    #[case("adm must-gather --dest-dir=/x")]
    #[case("apply -k /x")]
    fn everything_else_is_refused_with_what_it_can(#[case] line: &str) {
        let error = Line::parse(&words(line)).unwrap_err();
        assert!(error.contains(line) && error.contains("It can `debug node/NAME"), "{error}");
    }

    #[test]
    fn a_must_gather_leaves_a_folder_that_says_whose_it_is() {
        let folder = tempfile::tempdir().unwrap();
        must_gather(folder.path()).unwrap();
        let note = fs::read_to_string(folder.path().join("must-gather.local.vlab/README.txt")).unwrap();
        assert!(note.contains("the lab's"), "{note}");
        assert!(must_gather(Path::new("/dev/null")).is_err());
    }

    fn kubeconfig(server: &str, user: &str) -> String {
        format!(
            "current-context: admin\ncontexts:\n- {{name: other, context: {{cluster: o, user: o}}}}\n\
             - {{name: admin, context: {{cluster: c, user: u}}}}\n\
             clusters:\n- {{name: c, cluster: {{server: \"{server}\", certificate-authority-data: Q0E=}}}}\n\
             users:\n- {{name: u, user: {user}}}\n"
        )
    }

    #[test]
    fn a_kubeconfig_is_read() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("key.pem"), "KEY").unwrap();
        let place = folder.path().join("kubeconfig");
        let user = "{client-certificate-data: Q0VSVA==, client-key: key.pem}";
        let api = Api::of_kubeconfig(&kubeconfig("https://api.x.test:6443/", user), &place).unwrap();
        assert_eq!(api.server, "https://api.x.test:6443");
        assert_eq!(api.credentials.ca.as_deref(), Some("CA"));
        assert_eq!(api.credentials.own, Some(("CERT".into(), "KEY".into())));
        let api = Api::of_kubeconfig(&kubeconfig("https://x", "{token: t}"), &place).unwrap();
        assert_eq!((api.token.as_deref(), api.credentials.own), (Some("t"), None));
        for (text, why) in [("{}", "no current context"), ("current-context: a", "no current context"), ("a: [", "")] {
            let error = Api::of_kubeconfig(text, &place).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    /// An API that gives these answers, one after the other, and tells what it was asked.
    fn api(answers: Vec<(u16, Value)>) -> (Api, mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let (asked, was_asked) = mpsc::channel();
        std::thread::spawn(move || {
            for (status, body) in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let (mut text, mut buffer) = (String::new(), [0; 4096]);
                let whole = |text: &str| {
                    let (head, body) = text.split_once("\r\n\r\n")?;
                    let length = head
                        .to_lowercase()
                        .split_once("content-length: ")
                        .map_or(0, |(_, rest)| rest.split("\r\n").next().unwrap_or_default().parse().unwrap_or(0));
                    (body.len() >= length).then_some(())
                };
                while whole(&text).is_none() {
                    let length = stream.read(&mut buffer).unwrap();
                    text.push_str(&String::from_utf8_lossy(&buffer[..length]));
                }
                // Told before it is answered: whoever has the answer finds the question here.
                let (head, sent) = text.split_once("\r\n\r\n").unwrap();
                let line = head.split(" HTTP").next().unwrap_or_default();
                let _ = asked.send(format!("{line} {sent}").trim().to_owned());
                let body = body.to_string();
                let head =
                    format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                stream.write_all((head + &body).as_bytes()).unwrap();
            }
        });
        (Api { server, credentials: Credentials::default(), token: None }, was_asked)
    }

    #[rstest]
    #[case(json!({ "metadata": { "annotations": { BOOTS: "3" } } }), 3)]
    #[case(json!({ "metadata": { "annotations": { BOOTS: "often" } } }), 1)]
    #[case(json!({ "metadata": {} }), 1)]
    #[tokio::test]
    async fn a_node_s_boots_are_lines(#[case] node: Value, #[case] expected: usize) {
        let (api, asked) = api(vec![(200, node)]);
        let said = reboots(&api, "n-1").await.unwrap();
        assert_eq!(said.lines().filter(|line| line.starts_with("reboot ")).count(), expected, "{said}");
        assert_eq!(asked.recv().unwrap(), "GET /api/v1/nodes/n-1");
    }

    #[tokio::test]
    async fn a_node_that_is_not_there_is_an_error() {
        let (api, _asked) = api(vec![(404, json!({}))]);
        let error = reboots(&api, "n-1").await.unwrap_err();
        assert_eq!(error, "Error from server (NotFound): nodes \"n-1\" not found");
    }

    #[tokio::test]
    async fn manifests_are_created_or_put_in_place() {
        let discovery = json!({ "resources": [
            { "name": "configmaps", "kind": "ConfigMap", "namespaced": true },
            { "name": "namespaces/status", "kind": "Namespace", "namespaced": false },
            { "name": "namespaces", "kind": "Namespace", "namespaced": false } ] });
        let there = json!({ "metadata": { "resourceVersion": "7" } });
        let (api, asked) =
            api(vec![(200, discovery), (404, json!({})), (201, json!({})), (200, there), (200, json!({}))]);
        let text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n---\napiVersion: v1\nkind: ConfigMap\n\
                    metadata: {name: b, namespace: a}\n";
        assert_eq!(apply(&api, text).await.unwrap(), "namespace/a created\nconfigmap/b configured\n");
        let asked: Vec<String> = asked.try_iter().collect();
        assert_eq!(
            asked,
            [
                "GET /api/v1",
                "GET /api/v1/namespaces/a",
                r#"POST /api/v1/namespaces {"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}"#,
                "GET /api/v1/namespaces/a/configmaps/b",
                r#"PUT /api/v1/namespaces/a/configmaps/b {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","namespace":"a","resourceVersion":"7"}}"#,
            ]
        );
    }

    #[tokio::test]
    async fn what_cannot_be_applied_is_told_in_the_api_s_words() {
        let discovery = json!({ "resources": [{ "name": "namespaces", "kind": "Namespace", "namespaced": false }] });
        let status = json!({ "kind": "Status", "reason": "Invalid", "message": "no such name" });
        let (refusing, _asked) = api(vec![(200, discovery), (404, json!({})), (422, status)]);
        let text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: A}\n";
        assert_eq!(apply(&refusing, text).await.unwrap_err(), "Error from server (Invalid): no such name");
        let (empty, _asked) = api(vec![(404, json!({}))]);
        let error = apply(&empty, text).await.unwrap_err();
        assert!(error.contains("no matches for kind \"Namespace\" in version \"v1\""), "{error}");
        assert_eq!(apply(&empty, "# nothing\n").await.unwrap_err(), "error: no objects passed to apply");
    }
}
