//! The `scale` subresource: one number of an object, seen as an object of its own.

use serde_json::{Value, json};
use vlab_api::http::{Method, Request, Response};

use crate::body;
use crate::core::{Ask, Core, Reply, Stop};
use crate::failure::Failure;
use crate::jsonpath;
use crate::meta;
use crate::patch;

impl Core {
    pub(crate) fn scale(&mut self, ask: &mut Ask, verb: &str) -> Result<Response, Stop> {
        let Some(stored) = self.store.get(ask.resource.id, &ask.key()) else {
            return Err(ask.resource.not_found(ask.name()).into());
        };
        let Some(scale) = ask.version.scale.clone() else { return Err(Failure::no_such_path().into()) };
        let object = stored.value();
        let shown = |object: &Value| {
            let number = |path: &str| jsonpath::first(path, object).and_then(Value::as_i64).unwrap_or(0);
            let selector = jsonpath::first(&scale.selector, object).map(jsonpath::plain).unwrap_or_default();
            let mut status = json!({ "replicas": number(&scale.found) });
            if !scale.selector.is_empty() {
                status["selector"] = json!(selector);
            }
            let text = |name: &str| meta::text(object, name);
            json!({
                "kind": "Scale", "apiVersion": "autoscaling/v1",
                "metadata": { "name": text("name"), "namespace": text("namespace"), "uid": text("uid"),
                    "resourceVersion": text("resourceVersion"), "creationTimestamp": text("creationTimestamp") },
                "spec": { "replicas": number(&scale.wanted) }, "status": status,
            })
        };
        if verb == "get" {
            return Ok(Response::json(200, &shown(&object)));
        }
        let mut new = shown(&object);
        let sent = body::yaml(&ask.request.body)?;
        match (verb, body::media_type(&ask.request)) {
            ("update", _) => new = sent,
            (_, "application/json-patch+json") => patch::json(&mut new, &sent)?,
            _ => patch::merge(&mut new, &sent),
        }
        let Some(replicas) = new["spec"]["replicas"].as_i64().filter(|n| *n >= 0) else {
            return Err(Failure::bad_request("spec.replicas must be a number of at least 0").into());
        };
        // The rest is a patch of the object: one way to write.
        let mut whole = json!(replicas);
        for name in scale.wanted.split('.').rev().filter(|n| !n.is_empty()) {
            whole = json!({ name: whole });
        }
        if let Some(rv) = new["metadata"]["resourceVersion"].as_str() {
            whole["metadata"] = json!({ "resourceVersion": rv });
        }
        let path = ask.request.path.replacen("/scale", "", 1);
        let request = Request::new(Method::Patch, path).json(&whole);
        let mut request = request;
        request.headers.retain(|(name, _)| name != "content-type");
        let request = request.header("content-type", "application/merge-patch+json");
        match self.handle(ask.now, &ask.caller.clone(), &request) {
            Reply::Done(answer) if answer.is_success() => {
                let written: Value = answer.decode().unwrap_or_default();
                Ok(Response::json(200, &shown(&written)))
            }
            Reply::Done(answer) => Ok(answer),
            _ => Err(Failure::internal("scale through a webhook is not built").into()),
        }
    }
}
