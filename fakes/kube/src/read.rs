//! Reading one object, and lists with selectors and pages.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use vlab_api::http::Response;

use crate::core::{Ask, Core, Stop, With as _};
use crate::failure::{Cause, Failure};
use crate::jsonpath;
use crate::resource::{Resource, Version};
use crate::select::{Fields, Labels};
use crate::store::Stored;
use crate::table;
use crate::view::{self, Form};

/// What a reader selects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub(crate) labels: Labels,
    pub(crate) fields: Fields,
}

impl Selection {
    /// Reads the parameters.
    ///
    /// # Errors
    /// 400 for what cannot be read or is no field by which can be selected.
    pub(crate) fn of(ask: &Ask) -> Result<Self, Failure> {
        let labels = Labels::parse(ask.query.get("labelSelector").unwrap_or_default())?;
        let mut fields = Fields::parse(ask.query.get("fieldSelector").unwrap_or_default())?;
        if let Some(name) = &ask.path.name {
            fields.0.push(("metadata.name".into(), name.clone(), true));
        }
        for (name, _, _) in &fields.0 {
            let known = matches!(name.as_str(), "metadata.name" | "metadata.namespace")
                || ask.version.fields.iter().any(|(field, _)| field == name);
            if !known {
                let text = if ask.resource.custom {
                    format!("field label not supported: {name}")
                } else {
                    format!("{name:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
                };
                return Err(Failure::bad_request(text));
            }
        }
        Ok(Self { labels, fields })
    }

    /// Is everything taken?
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Is this object taken?
    pub(crate) fn takes(&self, version: &Version, stored: &Stored) -> bool {
        if !self.labels.matches(&stored.meta.labels) {
            return false;
        }
        if self.fields.is_empty() {
            return true;
        }
        let mut parsed: Option<Arc<Value>> = None;
        let needs = self.fields.0.iter().any(|(name, ..)| !name.starts_with("metadata."));
        if needs {
            parsed = Some(stored.object());
        }
        self.fields.matches(|name| match name {
            "metadata.name" => Cow::Owned(stored.meta.name.clone()),
            "metadata.namespace" => Cow::Owned(stored.meta.namespace.clone()),
            _ => {
                let path = version.fields.iter().find(|(field, _)| field == name).map_or("", |(_, path)| path);
                let object = parsed.as_deref().unwrap_or(&Value::Null);
                Cow::Owned(jsonpath::first(path, object).map(jsonpath::plain).unwrap_or_default())
            }
        })
    }
}

/// Parameters of lists. Source: ValidateListOptions.
fn options(ask: &Ask) -> Result<(), Failure> {
    let field = "resourceVersionMatch";
    let Some(how) = ask.query.get(field) else { return Ok(()) };
    let mut causes = Vec::new();
    let forbidden = |why: &str| Cause::forbidden(field, why);
    let version = ask.query.get("resourceVersion");
    if version.is_none() {
        causes.push(forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"));
    }
    if ask.query.get("continue").is_some() {
        causes.push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
    }
    if !matches!(how, "Exact" | "NotOlderThan") {
        let allowed = ["Exact", "NotOlderThan", ""].map(str::to_owned);
        causes.push(Cause::unsupported(field, &json!(how), &allowed));
    }
    if how == "Exact" && version == Some("0") {
        causes.push(forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
    }
    if causes.is_empty() { Ok(()) } else { Err(Failure::invalid_options("ListOptions", causes)) }
}

/// Where a list goes on.
struct Page {
    rv: u64,
    start: String,
}

fn page(token: &str) -> Result<Page, Failure> {
    let wrong = || Failure::bad_request("invalid continue token: continue key is not valid: illegal base64 data");
    let bytes = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).map_err(|_| wrong())?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| wrong())?;
    Ok(Page {
        rv: value["rv"].as_u64().ok_or_else(wrong)?,
        start: value["start"].as_str().ok_or_else(wrong)?.to_owned(),
    })
}

fn token(rv: u64, start: &str) -> String {
    URL_SAFE_NO_PAD.encode(json!({ "v": "meta.k8s.io/v1", "rv": rv, "start": format!("{start}\0") }).to_string())
}

/// What a list gives.
struct Listed {
    items: Vec<Stored>,
    rv: u64,
    next: Option<String>,
    remaining: Option<usize>,
}

impl Core {
    pub(crate) fn get(&mut self, ask: &mut Ask) -> Result<Response, Stop> {
        let stored = self.store.get(ask.resource.id, &ask.key());
        let Some(stored) = stored else { return Err(ask.resource.not_found(ask.name()).into()) };
        Ok(view::stored(ask, 200, stored))
    }

    pub(crate) fn list(&mut self, ask: &mut Ask) -> Result<Response, Stop> {
        options(ask)?;
        let selection = Selection::of(ask)?;
        let form = view::form(&ask.request)?;
        let listed = self.listed(ask, &selection)?;
        let mut meta = json!({ "resourceVersion": listed.rv.to_string() });
        if ask.resource.custom && form == Form::Whole {
            meta["continue"] = json!("");
        }
        if let Some(next) = &listed.next {
            meta["continue"] = json!(next);
        }
        if let Some(remaining) = listed.remaining {
            meta["remainingItemCount"] = json!(remaining);
        }
        let body = match form {
            Form::Whole => whole_list(ask, &listed.items, &meta),
            Form::Table => {
                let include = view::include(ask);
                let row = |s: &Stored| {
                    table::row(&ask.version, &view::value(&ask.resource, &ask.version, s), ask.clock, include)
                };
                let rows = listed.items.iter().map(row).collect();
                serde_json::to_vec(&table::table(&ask.version, rows, &meta, true)).unwrap_or_default()
            }
            Form::Metadata => {
                let items: Vec<Value> = listed.items.iter().map(|s| view::metadata(&s.value())).collect();
                let list = json!({ "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "items": items });
                serde_json::to_vec(&list).unwrap_or_default()
            }
        };
        Ok(Response {
            status: 200,
            headers: vec![("content-type".into(), "application/json".into())],
            body: body.into(),
        })
    }

    fn listed(&mut self, ask: &Ask, selection: &Selection) -> Result<Listed, Failure> {
        let id = ask.resource.id;
        let limit = ask.query.get("limit").and_then(|l| l.parse::<usize>().ok()).filter(|l| *l > 0);
        let namespace = ask.namespace();
        let (mut rv, mut from) = (self.store.rv(), String::new());
        let mut past = None;
        let wanted = ask.query.get("resourceVersion");
        if let Some(page) = ask.query.get("continue").map(page).transpose()? {
            (rv, from) = (page.rv, page.start);
            past = Some(self.store.at(id, namespace, rv).ok_or_else(|| gone(self.store.rv(), &from))?);
        } else if let Some(wanted) = wanted.filter(|w| *w != "0") {
            let wanted: u64 = wanted.parse().map_err(|_| {
                Failure::bad_request(format!(
                    "invalid resource version: resourceVersion: Invalid value: {wanted:?}: strconv.ParseUint: parsing {wanted:?}: invalid syntax"
                ))
            })?;
            if wanted > rv {
                let mut failure = Failure::new(
                    504,
                    "Timeout",
                    format!("Timeout: Too large resource version: {wanted}, current: {rv}"),
                );
                failure.details = json!({ "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }], "retryAfterSeconds": 1 });
                return Err(failure);
            }
            let exact = ask.query.get("resourceVersionMatch") == Some("Exact");
            if exact || limit.is_some() && ask.query.get("resourceVersionMatch").is_none() {
                rv = wanted;
                past = Some(
                    self.store
                        .at(id, namespace, wanted)
                        .ok_or_else(|| Failure::expired("The resourceVersion for the provided list is too old."))?,
                );
            }
        } else if let Some(age) = self.faults.stale(&ask.resource, ask.name()) {
            rv = self.store.version_at(id, ask.now - age);
            past = self.store.at(id, namespace, rv);
        }
        let all: Box<dyn Iterator<Item = (&Arc<str>, &Stored)>> = match &past {
            Some(past) => Box::new(past.range(Arc::<str>::from(from.as_str())..)),
            None => Box::new(self.store.objects(id, namespace, &from)),
        };
        let mut fitting = all.filter(|(_, stored)| selection.takes(&ask.version, stored));
        let most = limit.unwrap_or(usize::MAX);
        let (mut items, mut last) = (Vec::new(), None);
        for (key, stored) in fitting.by_ref().take(most) {
            items.push(stored.clone());
            last = Some(Arc::clone(key));
        }
        let rest = fitting.count();
        let next = last.filter(|_| rest > 0).map(|last| token(rv, &last));
        let remaining = (next.is_some() && selection.is_everything()).then_some(rest);
        Ok(Listed { items, rv, next, remaining })
    }

    pub(crate) fn pod_log(&mut self, ask: &mut Ask) -> Result<Response, Stop> {
        let Some(stored) = self.store.get(ask.resource.id, &ask.key()) else {
            return Err(ask.resource.not_found(ask.name()).into());
        };
        let pod = stored.value();
        let containers: Vec<&str> =
            pod["spec"]["containers"].as_array().into_iter().flatten().filter_map(|c| c["name"].as_str()).collect();
        let container = match ask.query.get("container") {
            Some(name) if !containers.contains(&name) => {
                return Err(
                    Failure::bad_request(format!("container {name} is not valid for pod {}", ask.name())).into()
                );
            }
            Some(name) => name,
            None if containers.len() > 1 => {
                return Err(Failure::bad_request(format!(
                    "a container name must be specified for pod {}, choose one of: [{}]",
                    ask.name(),
                    containers.join(" ")
                ))
                .into());
            }
            None => containers.first().copied().unwrap_or_default(),
        };
        let key = (ask.namespace().to_owned(), ask.name().to_owned(), container.to_owned());
        let text = self.logs.get(&key).map(String::as_str).unwrap_or_default();
        let lines = text.lines().count();
        let tail = ask.query.get("tailLines").and_then(|n| n.parse::<usize>().ok()).unwrap_or(lines);
        let shown: String = text.lines().skip(lines.saturating_sub(tail)).map(|l| format!("{l}\n")).collect();
        Ok(Response::empty(200).header("content-type", "text/plain").with(&shown))
    }
}

fn gone(now: u64, from: &str) -> Failure {
    let mut failure = Failure::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    failure.details = json!({ "continue": token(now, from.trim_end_matches('\0')) });
    failure
}

/// A list from the bytes of its items. Items of built-in kinds do not repeat their kind, as Go writes them.
fn whole_list(ask: &Ask, items: &[Stored], meta: &Value) -> Vec<u8> {
    let resource: &Resource = &ask.resource;
    let api_version = ask.api_version();
    let head = format!("{{\"kind\":{:?},\"apiVersion\":{api_version:?},", resource.kind);
    let mut body =
        format!("{{\"kind\":{:?},\"apiVersion\":{api_version:?},\"metadata\":{meta},\"items\":[", resource.list_kind)
            .into_bytes();
    for (at, stored) in items.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        let bytes = view::bytes(resource, &ask.version, stored);
        match bytes.strip_prefix(head.as_bytes()) {
            Some(rest) if !resource.custom => {
                body.push(b'{');
                body.extend_from_slice(rest);
            }
            _ => body.extend_from_slice(&bytes),
        }
    }
    body.extend_from_slice(b"]}\n");
    body
}
