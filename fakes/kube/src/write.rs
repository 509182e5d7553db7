//! Creating, updating and patching.

use std::sync::Arc;

use serde_json::{Value, json};
use vlab_api::http::Response;

use crate::admission::Operation;
use crate::apply::{Manager, after_apply, after_update};
use crate::body;
use crate::core::{Ask, Core, Stop};
use crate::failure::{Cause, Failure, Subject};
use crate::meta;
use crate::object;
use crate::patch;
use crate::schema::{self, At};
use crate::store::{Stored, key, shared};
use crate::view;

/// What is said of rules where the schema alone has found something.
const RULES_NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to \
                                 complete validation";

/// How an object is written over another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Put,
    Patch,
    Apply { force: bool },
}

/// What somebody sends to be written, which decides the words in which unknown members are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// The whole object.
    Whole,
    /// A JSON patch or merge patch.
    Patch,
    /// A strategic merge patch.
    Strategic,
}

impl Core {
    pub(crate) fn create(&mut self, ask: &mut Ask) -> Result<Response, Stop> {
        let object = body::object(ask)?;
        options(ask)?;
        // Under the name of a custom resource one is made, too: it is the body's that counts.
        if ask.path.name.is_some() && !ask.resource.custom {
            return Err(Failure::method_not_allowed().into());
        }
        let stored = self.create_object(ask, object, None)?;
        Ok(self.answer(ask, 201, &stored))
    }

    /// Makes an object; with a configuration that was applied, its fields belong to who applied it.
    fn create_object(
        &mut self,
        ask: &mut Ask,
        mut object: Value,
        config: Option<(&Value, bool)>,
    ) -> Result<Outcome, Stop> {
        namespace(ask, &mut object)?;
        self.understood(ask, &mut object, Sent::Whole)?;
        domainless(ask, None, &object);
        let operation = Operation::Create;
        let time = meta::stamp(ask.clock);
        let mut dice = ask.dice.clone();
        {
            let meta = meta::of(&mut object);
            for name in ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
                if name == "resourceVersion"
                    && meta.get(name).and_then(Value::as_str).is_some_and(|v| !v.is_empty() && v != "0")
                {
                    let why = "resourceVersion should not be set on objects to be created";
                    return Err(Failure::unexpected(why).into());
                }
                meta.shift_remove(name);
            }
            let prefix = meta.get("generateName").and_then(Value::as_str).unwrap_or_default().to_owned();
            if meta.get("name").and_then(Value::as_str).is_none_or(str::is_empty) && !prefix.is_empty() {
                meta.insert("name".into(), json!(format!("{prefix}{}", meta::suffix(&mut dice))));
            }
            meta.insert("uid".into(), json!(meta::uid(&mut dice)));
            meta.insert("creationTimestamp".into(), json!(time));
            if ask.resource.custom || counts_generations(ask) {
                meta.insert("generation".into(), json!(1));
            } else {
                meta.shift_remove("generation");
            }
        }
        if ask.version.status
            && ask.resource.plural != "nodes"
            && let Some(map) = object.as_object_mut()
        {
            map.shift_remove("status");
        }
        object::prepare_new(ask, &mut object);
        self.mutate(ask, operation, &mut object, None)?;
        self.normalise(ask, &mut object);
        let name = meta::text(&object, "name").to_owned();
        self.own(ask, None, &mut object, config)?;
        object::begin(ask, &mut object);
        self.check(ask, &object, None, &name)?;
        self.admit(ask, operation, Some(&object), None)?;
        self.namespace_takes(ask, &name)?;
        if ask.resource.plural == "customresourcedefinitions" {
            crate::crd::establish(&mut object, &time);
        }
        let key = key(meta::text(&object, "namespace"), &name);
        if self.store.get(ask.resource.id, &key).is_some() {
            return Err(Failure::already_exists(ask.resource.named(&name)).into());
        }
        if let Some(failure) = self.faults.write(&ask.resource, "create", "", &name) {
            return Err(failure.into());
        }
        if dry_run(ask) {
            return Ok(Outcome::Dry(object));
        }
        let resource = ask.resource.clone();
        Ok(Outcome::Stored(self.put(ask.now, &resource, stored_form(ask, object))))
    }

    pub(crate) fn update(&mut self, ask: &mut Ask) -> Result<Response, Stop> {
        let mut object = body::object(ask)?;
        options(ask)?;
        namespace(ask, &mut object)?;
        let given = meta::text(&object, "name");
        if given != ask.name() && !given.is_empty() {
            return Err(Failure::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({})",
                ask.name()
            ))
            .into());
        }
        meta::of(&mut object).insert("name".into(), json!(ask.name()));
        self.understood(ask, &mut object, Sent::Whole)?;
        let Some(live) = self.store.get(ask.resource.id, &ask.key()).cloned() else {
            return Err(ask.resource.not_found(ask.name()).into());
        };
        let outcome = self.write_over(ask, &live, object, How::Put, None)?;
        Ok(self.answer(ask, 200, &outcome))
    }

    pub(crate) fn patch(&mut self, ask: &mut Ask) -> Result<Response, Stop> {
        options(ask)?;
        let media = body::media_type(&ask.request).to_owned();
        let live = self.store.get(ask.resource.id, &ask.key()).cloned();
        if media == "application/apply-patch+yaml" || media == "application/apply-patch+cbor" {
            return self.apply(ask, live);
        }
        let patch = body::read_patch(&ask.request)?;
        let strategic = media == "application/strategic-merge-patch+json";
        if strategic && ask.resource.custom {
            let accepted = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
            return Err(Failure::unsupported_media(accepted).into());
        }
        let Some(live) = live else { return Err(ask.resource.not_found(ask.name()).into()) };
        let mut object = Arc::unwrap_or_clone(self.in_version(ask, &live));
        match media.as_str() {
            "application/json-patch+json" => patch::json(&mut object, &patch)?,
            "application/merge-patch+json" => patch::merge(&mut object, &patch),
            _ if strategic => patch::strategic(Some(&ask.version.schema), &mut object, &patch)?,
            _ => {
                return Err(Failure::unsupported_patch().into());
            }
        }
        body::identify(ask, &mut object)?;
        self.understood(ask, &mut object, if strategic { Sent::Strategic } else { Sent::Patch })?;
        let outcome = self.write_over(ask, &live, object, How::Patch, None)?;
        Ok(self.answer(ask, 200, &outcome))
    }

    fn apply(&mut self, ask: &mut Ask, live: Option<Stored>) -> Result<Response, Stop> {
        let mut config = body::yaml(&ask.request.body)?;
        body::identify(ask, &mut config)?;
        if ask.query.get("fieldManager").is_none() {
            let missing = Cause::required("fieldManager", "is required for apply patch");
            return Err(Failure::invalid_options("PatchOptions", vec![missing]).into());
        }
        if !config["metadata"]["managedFields"].is_null() {
            return Err(Failure::bad_request("metadata.managedFields must be nil").into());
        }
        let given = meta::text(&config, "name");
        if !given.is_empty() && given != ask.name() {
            return Err(Failure::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({})",
                ask.name()
            ))
            .into());
        }
        let rv = meta::text(&config, "resourceVersion").to_owned();
        meta::of(&mut config).insert("name".into(), json!(ask.name()));
        namespace(ask, &mut config)?;
        self.declared(ask, &mut config)?;
        let force = ask.query.is_set("force");
        let Some(live) = live else {
            if !rv.is_empty() || ask.path.subresource.is_some() {
                let failure = if rv.is_empty() {
                    ask.resource.not_found(ask.name())
                } else {
                    Failure::modified(ask.resource.named(ask.name()))
                };
                return Err(failure.into());
            }
            let outcome = self.create_object(ask, config.clone(), Some((&config, force)))?;
            return Ok(self.answer(ask, 201, &outcome));
        };
        let manager = ask.query.get("fieldManager").unwrap_or_default().to_owned();
        let (version, time) = (ask.api_version(), meta::stamp(ask.clock));
        let manager = Manager {
            name: &manager,
            api_version: &version,
            subresource: ask.subresource(),
            time: &time,
            typed: !ask.resource.custom,
        };
        let part = stated_part(ask, &config);
        let old = self.in_version(ask, &live);
        let applied = after_apply(&ask.version.schema, Some(&old), &part, manager, force)?;
        if !applied.changed && rv.is_empty() {
            return Ok(self.answer(ask, 200, &Outcome::Stored(live)));
        }
        let mut object = applied.object;
        if !rv.is_empty() {
            object["metadata"]["resourceVersion"] = json!(rv);
        }
        self.understood_as_sent(ask, &mut object, Sent::Whole)?;
        schema::fill_defaults(&ask.version.schema, &mut object);
        let fields = object["metadata"]["managedFields"].clone();
        let outcome = self.write_over(ask, &live, object, How::Apply { force }, Some(fields))?;
        Ok(self.answer(ask, 200, &outcome))
    }

    /// The object as it is stored, in the version of the request.
    fn in_version(&self, ask: &Ask, live: &Stored) -> Arc<Value> {
        if ask.version.name == ask.resource.storage {
            return live.object();
        }
        let mut object = live.value();
        object["apiVersion"] = json!(ask.api_version());
        object.into()
    }

    fn write_over(
        &mut self,
        ask: &mut Ask,
        live: &Stored,
        mut new: Value,
        how: How,
        fields: Option<Value>,
    ) -> Result<Outcome, Stop> {
        let old = self.in_version(ask, live);
        domainless(ask, Some(&old), &new);
        self.precede(ask, live, &new, how)?;
        restore(ask, &old, &mut new);
        object::keep_back(&ask.resource, ask.subresource(), &old, &mut new);
        object::prepare(&ask.resource, &mut new);
        let name = live.meta.name.clone();
        self.mutate(ask, Operation::Update, &mut new, Some(&old))?;
        self.normalise(ask, &mut new);
        count_generation(ask, &old, &mut new);
        if let Some(fields) = fields {
            new["metadata"]["managedFields"] = fields;
        } else if !matches!(how, How::Apply { .. }) {
            self.own(ask, Some(&old), &mut new, None)?;
        }
        self.check(ask, &new, Some(&old), &name)?;
        self.admit(ask, Operation::Update, Some(&new), Some(&old))?;
        let verb = if how == How::Put { "update" } else { "patch" };
        if let Some(failure) = self.faults.write(&ask.resource, verb, ask.subresource(), &name) {
            return Err(failure.into());
        }
        if new == *old {
            return Ok(Outcome::Stored(live.clone()));
        }
        if dry_run(ask) {
            return Ok(Outcome::Dry(new));
        }
        let resource = ask.resource.clone();
        let last = live.meta.deleting && finalizers(&new).is_empty() && !self.keeps_itself(&resource, &new);
        if ask.resource.plural == "customresourcedefinitions" && ask.path.subresource.is_none() {
            crate::crd::establish(&mut new, &meta::stamp(ask.clock));
        }
        let new = stored_form(ask, new);
        if last {
            self.remove(ask.now, &resource, &ask.key());
            return Ok(Outcome::Dry(new));
        }
        Ok(Outcome::Stored(self.put(ask.now, &resource, new)))
    }

    /// Does the writer write over what he has read?
    fn precede(&self, ask: &Ask, live: &Stored, new: &Value, how: How) -> Result<(), Failure> {
        let subject = || ask.resource.named(ask.name());
        let uid = meta::text(new, "uid");
        if !uid.is_empty() && uid != live.meta.uid && how == How::Patch {
            let cause = Cause::invalid("metadata.uid", &json!(uid), "field is immutable");
            // The real server tells it twice.
            return Err(ask.resource.invalid(ask.name(), vec![cause.clone(), cause]));
        }
        if !uid.is_empty() && uid != live.meta.uid {
            let group = if ask.resource.custom { format!("{}/", ask.resource.group) } else { String::new() };
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: /registry/{group}{}/{}, ResourceVersion: 0, AdditionalErrorMsg: \
                 Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                ask.resource.plural,
                ask.key(),
                live.meta.uid
            );
            return Err(Failure::conflict(subject(), &why));
        }
        let rv = meta::text(new, "resourceVersion");
        if rv.is_empty() || rv == "0" {
            let must =
                ask.resource.custom || matches!(ask.resource.plural.as_str(), "leases" | "customresourcedefinitions");
            if how == How::Put && must {
                let causes =
                    vec![Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update")];
                return Err(Failure::invalid(subject(), causes));
            }
            return Ok(());
        }
        if rv.parse::<u64>().is_err() {
            return Err(Failure::unexpected(format!("strconv.ParseUint: parsing {rv:?}: invalid syntax")));
        }
        if rv.parse() == Ok(live.rv) { Ok(()) } else { Err(Failure::modified(subject())) }
    }

    /// Who owns the fields of the new object.
    fn own(
        &self,
        ask: &Ask,
        old: Option<&Value>,
        new: &mut Value,
        config: Option<(&Value, bool)>,
    ) -> Result<(), Failure> {
        if !self.options.owners_of_fields {
            meta::of(new).shift_remove("managedFields");
            return Ok(());
        }
        let agent = ask.request.get_header("user-agent").unwrap_or("unknown");
        let agent = agent.split('/').next().unwrap_or("unknown");
        let name = ask.query.get("fieldManager").unwrap_or(if agent.is_empty() { "unknown" } else { agent });
        let (api_version, time) = (ask.api_version(), meta::stamp(ask.clock));
        let manager = Manager {
            name,
            api_version: &api_version,
            subresource: ask.subresource(),
            time: &time,
            typed: !ask.resource.custom,
        };
        if let Some((config, force)) = config {
            let part = stated_part(ask, config);
            let applied = after_apply(&ask.version.schema, None, &part, manager, force)?;
            new["metadata"]["managedFields"] = applied.object["metadata"]["managedFields"].clone();
            return Ok(());
        }
        after_update(&ask.version.schema, old, new, manager);
        Ok(())
    }

    /// Drops what the schema does not know, says so if that was asked for, and fills in defaults.
    fn understood(&self, ask: &mut Ask, object: &mut Value, sent: Sent) -> Result<(), Failure> {
        self.understood_as_sent(ask, object, sent)?;
        schema::fill_defaults(&ask.version.schema, object);
        Ok(())
    }

    /// Members of a configuration that the schema does not know: apply never takes them, whatever the client wants to hear of them.
    fn declared(&self, ask: &mut Ask, config: &mut Value) -> Result<(), Failure> {
        let mut unknown = self.pruned(ask, config);
        if unknown.is_empty() {
            return self.understood_as_sent(ask, config, Sent::Whole);
        }
        unknown.sort_unstable();
        let at = match ask.namespace() {
            "" => ask.name().to_owned(),
            namespace => format!("{namespace}/{}", ask.name()),
        };
        let version = ask.api_version();
        let said = unknown.iter().map(|field| format!(".{field}: field not declared in schema"));
        let said = match unknown.len() {
            1 => said.collect(),
            _ => said.fold("errors:".to_owned(), |text, field| format!("{text}\n  {field}")),
        };
        let what = format!("({at}; {version}, Kind={})", ask.resource.kind);
        Err(Failure::unexpected(format!("failed to create typed patch object {what}: {said}")))
    }

    /// Drops what the schema does not know, and tells where that was.
    fn pruned(&self, ask: &Ask, object: &mut Value) -> Vec<String> {
        let mut unknown = Vec::new();
        if let Some(metadata) = ask.version.schema.part("metadata") {
            schema::prune(metadata, &mut object["metadata"], At::Root("metadata"), &mut unknown);
        }
        schema::prune(&ask.version.schema, object, At::Root(""), &mut unknown);
        unknown
    }

    fn understood_as_sent(&self, ask: &mut Ask, object: &mut Value, sent: Sent) -> Result<(), Failure> {
        let validation = ask.query.get("fieldValidation").unwrap_or("Warn").to_owned();
        // It is shown as it was sent.
        let shown = match sent {
            Sent::Whole => String::new(),
            _ if validation != "Strict" => String::new(),
            Sent::Patch => {
                let mut whole = object.clone();
                whole.sort_all_objects();
                whole.to_string()
            }
            Sent::Strategic => patch::as_go(&body::read_patch(&ask.request)?),
        };
        let unknown = self.pruned(ask, object);
        let mut said = body::strict(&ask.request);
        said.extend(unknown.iter().map(|field| format!("unknown field {field:?}")));
        match validation.as_str() {
            "Strict" if !said.is_empty() => {
                let said = format!("strict decoding error: {}", said.join(", "));
                if sent != Sent::Whole {
                    let subject = Subject { group: "", resource: "", name: "" };
                    return Err(Failure::invalid(subject, vec![Cause::invalid("patch", &json!(shown), &said)]));
                }
                let (kind, version) = (&ask.resource.kind, &ask.version.name);
                return Err(Failure::bad_request(format!(
                    "{kind} in version {version:?} cannot be handled as a {kind}: {said}"
                )));
            }
            "Ignore" => {}
            _ => ask.warnings.extend(said),
        }
        if !ask.resource.custom
            && let Some(text) = object::undecodable(&ask.resource, object)
        {
            return Err(Failure::bad_request(text));
        }
        Ok(())
    }

    /// Once more after a webhook may have changed it.
    fn normalise(&self, ask: &Ask, object: &mut Value) {
        schema::prune(&ask.version.schema, object, At::Root(""), &mut Vec::new());
        schema::fill_defaults(&ask.version.schema, object);
        sort(object);
        if !ask.resource.custom
            && let Some(map) = object.as_object_mut()
        {
            // As Go writes the members of its types.
            for name in ["metadata", "apiVersion", "kind"] {
                if let Some(value) = map.shift_remove(name) {
                    map.shift_insert(0, name.to_owned(), value);
                }
            }
        }
    }

    fn check(&self, ask: &Ask, new: &Value, old: Option<&Value>, name: &str) -> Result<(), Failure> {
        let mut causes = Vec::new();
        let resource = &ask.resource;
        if ask.subresource() != "status" {
            meta::check(resource, new, &mut causes);
            if let Some(old) = old {
                immutable(old, new, &mut causes);
            }
        }
        let mut found = Vec::new();
        schema::check(&ask.version.schema, new, At::Root(""), &mut found);
        if resource.custom {
            if ask.subresource() == "status" {
                found.retain(|c| c.field.starts_with("status"));
                for cause in &mut found {
                    // Here the real server names the member without what it is in.
                    if cause.message.contains(" in body ") {
                        cause.message = cause.message.replacen("status.", "", 1);
                    }
                }
            }
            // Items that are there twice are found later than rules are.
            if found.iter().all(|cause| cause.reason == "FieldValueDuplicate") {
                crate::rules::check(&ask.version.schema, new, old, At::Root(""), &mut found);
            } else if ask.version.schema.ruled {
                found.push(Cause {
                    reason: "FieldValueInvalid",
                    field: "<nil>".to_owned(),
                    message: format!("Invalid value: null: {RULES_NOT_CHECKED}"),
                });
            }
        } else {
            // Go's types: the wrong one cannot be read at all, and what is required is written out below.
            found.retain(|c| c.reason == "FieldValueTypeInvalid");
            if let Some(first) = found.first() {
                let kind = &resource.kind;
                let found = first.message.split('"').nth(1).unwrap_or_default();
                let found = if found == "integer" { "number" } else { found };
                let wanted = if first.message.contains("of type string") { " of type string" } else { "" };
                // Go names the map, not what is in it.
                let field = ["data", "binaryData", "stringData", "metadata.labels", "metadata.annotations"]
                    .into_iter()
                    .find(|map| first.field.strip_prefix(map).is_some_and(|rest| rest.starts_with('.')))
                    .unwrap_or(&first.field);
                return Err(Failure::bad_request(format!(
                    "{kind} in version {:?} cannot be handled as a {kind}: json: cannot unmarshal {found} into Go struct field {kind}.{field}{wanted}",
                    ask.version.name,
                )));
            }
            causes.extend(object::check(resource, old, new));
        }
        causes.extend(found);
        if causes.is_empty() { Ok(()) } else { Err(resource.invalid(name, causes)) }
    }

    /// Objects are made in namespaces that exist and stay.
    fn namespace_takes(&self, ask: &Ask, name: &str) -> Result<(), Failure> {
        if !ask.resource.namespaced {
            return Ok(());
        }
        let (Some(namespaces), namespace) = (self.registry.find("", "namespaces"), ask.namespace()) else {
            return Ok(());
        };
        match self.store.get(namespaces.id, namespace) {
            None if self.options.any_namespace => Ok(()),
            None => Err(namespaces.not_found(namespace)),
            Some(stored) if stored.meta.deleting => {
                let why =
                    format!("unable to create new content in namespace {namespace} because it is being terminated");
                let mut failure = Failure::forbidden(ask.resource.named(name), &why);
                failure.details["causes"] = json!([{
                    "reason": "NamespaceTerminating", "message": format!("namespace {namespace} is being terminated"), "field": "metadata.namespace",
                }]);
                Err(failure)
            }
            Some(_) => Ok(()),
        }
    }

    fn answer(&self, ask: &Ask, status: u16, outcome: &Outcome) -> Response {
        match outcome {
            Outcome::Stored(stored) => view::stored(ask, status, stored),
            Outcome::Dry(object) => {
                let mut object = object.clone();
                object["apiVersion"] = json!(ask.api_version());
                view::object(ask, status, shared(object.into()))
            }
        }
    }
}

/// What a write left.
enum Outcome {
    Stored(Stored),
    /// Not stored: a dry run, or the last finalizer is gone.
    Dry(Value),
}

/// Is it only tried?
pub(crate) fn dry_run(ask: &Ask) -> bool {
    ask.query.get("dryRun") == Some("All")
}

/// Sorts the members of all objects. Most of them are sorted already, because their client has read them here.
fn sort(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if !map.keys().is_sorted() {
                map.sort_keys();
            }
            map.values_mut().for_each(sort);
        }
        Value::Array(items) => items.iter_mut().for_each(sort),
        _ => {}
    }
}

/// Parameters of writes.
fn options(ask: &Ask) -> Result<(), Failure> {
    let kind = match ask.request.method {
        vlab_api::http::Method::Post => "CreateOptions",
        vlab_api::http::Method::Put => "UpdateOptions",
        _ => "PatchOptions",
    };
    let mut causes = Vec::new();
    if let Some(value) = ask.query.get("dryRun").filter(|v| *v != "All") {
        causes.push(Cause::unsupported("dryRun", &json!([value]), &["All".to_owned()]));
    }
    if let Some(value) = ask.query.get("fieldValidation").filter(|v| !matches!(*v, "Strict" | "Warn" | "Ignore")) {
        let allowed = ["", "Ignore", "Strict", "Warn"].map(str::to_owned);
        causes.push(Cause::unsupported("fieldValidation", &json!(value), &allowed));
    }
    let apply = body::media_type(&ask.request).starts_with("application/apply-patch");
    if kind == "PatchOptions" && ask.query.get("force").is_some() && !apply {
        causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
    }
    if causes.is_empty() { Ok(()) } else { Err(Failure::invalid_options(kind, causes)) }
}

/// The namespace of the path fills an empty one; another one is a mistake.
fn namespace(ask: &Ask, object: &mut Value) -> Result<(), Failure> {
    let wanted = ask.namespace().to_owned();
    let meta = meta::of(object);
    if !ask.resource.namespaced {
        meta.shift_remove("namespace");
        return Ok(());
    }
    let given = meta.get("namespace").and_then(Value::as_str).unwrap_or_default();
    if wanted.is_empty() {
        return Err(Failure::bad_request("an empty namespace may not be set during creation"));
    }
    if !given.is_empty() && given != wanted {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    meta.insert("namespace".into(), json!(wanted));
    Ok(())
}

/// Built-in kinds that have a generation.
fn counts_generations(ask: &Ask) -> bool {
    ask.resource.group == "apps"
        || ask.resource.plural.ends_with("webhookconfigurations")
        || matches!(ask.resource.plural.as_str(), "customresourcedefinitions" | "poddisruptionbudgets" | "jobs")
}

/// Which part of a configuration the door takes.
fn stated_part(ask: &Ask, config: &Value) -> Value {
    let mut part = config.clone();
    let Some(map) = part.as_object_mut() else { return part };
    if ask.subresource() == "status" {
        let kept = ["apiVersion", "kind", "metadata", "status"];
        map.retain(|name, _| kept.contains(&name.as_str()));
        if let Some(meta) = map.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.retain(|name, _| matches!(name.as_str(), "name" | "namespace"));
        }
    } else if ask.version.status {
        map.shift_remove("status");
    }
    part
}

/// Puts back what this door does not change.
fn restore(ask: &Ask, old: &Value, new: &mut Value) {
    let (status_only, has_status) = (matches!(ask.subresource(), "status" | "approval"), ask.version.status);
    if status_only {
        let status = new["status"].take();
        let fields = new["metadata"]["managedFields"].take();
        let rest = old.as_object().into_iter().flatten().filter(|(name, _)| *name != "status");
        *new = Value::Object(rest.map(|(name, value)| (name.clone(), value.clone())).collect());
        if !status.is_null() {
            new["status"] = status;
        }
        if !fields.is_null() {
            new["metadata"]["managedFields"] = fields;
        }
    } else if has_status && let Some(map) = new.as_object_mut() {
        match &old["status"] {
            Value::Null => {
                map.shift_remove("status");
            }
            // Who changes the rest sends it as it is.
            status if map.get("status") == Some(status) => {}
            status => {
                map.insert("status".into(), status.clone());
            }
        }
    }
    let meta = meta::of(new);
    for name in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
        "name",
        "namespace",
        "generateName",
        "selfLink",
    ] {
        match &old["metadata"][name] {
            Value::Null => {
                meta.shift_remove(name);
            }
            value => {
                meta.insert(name.to_owned(), value.clone());
            }
        }
    }
    // Lists and maps without anything in them are as good as none.
    for name in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let empty = |v: &Value| {
            v.is_null()
                || v.as_array().is_some_and(Vec::is_empty)
                || !ask.resource.custom && v.as_object().is_some_and(serde_json::Map::is_empty)
        };
        if meta.get(name).is_some_and(empty) {
            meta.shift_remove(name);
        }
    }
}

/// One more generation when anything but metadata and status changed.
fn count_generation(ask: &Ask, old: &Value, new: &mut Value) {
    let Some(generation) = old["metadata"]["generation"].as_i64() else { return };
    if matches!(ask.subresource(), "status" | "approval") {
        return;
    }
    let counts = |name: &str| name != "metadata" && !(name == "status" && ask.version.status);
    let rest = |object: &Value| object.as_object().map_or(0, |map| map.keys().filter(|name| counts(name)).count());
    let mut members = old.as_object().into_iter().flatten().filter(|(name, _)| counts(name));
    if rest(old) != rest(new) || members.any(|(name, value)| new.get(name) != Some(value)) {
        new["metadata"]["generation"] = json!(generation + 1);
    }
}

fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Finalizers of custom resources without a domain are taken with a warning.
fn domainless(ask: &mut Ask, old: Option<&Value>, new: &Value) {
    if !ask.resource.custom {
        return;
    }
    let before = old.map(finalizers).unwrap_or_default();
    let named = finalizers(new).into_iter().filter(|f| !f.contains('/') && !before.contains(f));
    let plain = named.filter(|f| !matches!(*f, "orphan" | "foregroundDeletion"));
    ask.warnings.extend(plain.map(|f| {
        format!(
            "metadata.finalizers: {f:?}: prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer \
             writers"
        )
    }));
}

/// What never changes, and what does not once an object is being deleted.
fn immutable(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if old["metadata"]["deletionTimestamp"].is_string() {
        let (before, after) = (finalizers(old), finalizers(new));
        let more: Vec<String> = after.iter().filter(|f| !before.contains(f)).map(|f| format!("{f:?}")).collect();
        if !more.is_empty() {
            causes.push(Cause::forbidden(
                "metadata.finalizers",
                &format!("no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}", more.join(", ")),
            ));
        }
    }
}

/// The object in the version in which it is stored.
fn stored_form(ask: &Ask, mut object: Value) -> Value {
    object["apiVersion"] = json!(ask.resource.api_version(&ask.resource.storage));
    object
}
