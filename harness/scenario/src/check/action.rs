//! What the user does, and when.

use serde_json::Value;
use vlab_api::requests::About;
use vlab_api::types::HostRole;

use super::subject::Who;
use super::{Checker, Known, Place};
use crate::file::ActionFile;
use crate::resources::ResourceOf;
use crate::spanned::At;
use crate::time::Span;
use crate::types::{Action, ActionTime, Subject};
use crate::words::{ActionKind, ResourceKind};

/// Is it done to hosts, and not to a cluster?
fn is_on_hosts(kind: ActionKind, item: &ActionFile) -> bool {
    if kind == ActionKind::Request {
        return Checker::operation(item).is_some_and(|operation| operation.about == About::Host);
    }
    if matches!(kind, ActionKind::PatchResource | ActionKind::DeleteResource | ActionKind::Annotate) {
        return item.host.is_some() || item.hosts.is_some();
    }
    matches!(
        kind,
        ActionKind::PatchHost
            | ActionKind::DeleteHost
            | ActionKind::Bind
            | ActionKind::Unbind
            | ActionKind::InstallHost
            | ActionKind::BootDiscovery
            | ActionKind::Approve
    )
}

impl Checker<'_> {
    /// One thing that the user does; several, where a file with several objects is applied.
    pub(super) fn action(&mut self, item: &At<ActionFile>, known: &Known<'_>) -> Vec<Action> {
        let kind = self.read(&item.act);
        let when = self.action_time(item, known);
        let Some(action) = kind.and_then(|kind| self.action_of_kind(item, (kind, when), known)) else {
            return Vec::new();
        };
        if action.kind != ActionKind::ApplyResource {
            return vec![action];
        }
        let objects = self.applied(item).into_iter();
        objects.map(|(kind, object)| Action { resource: Some(kind), object: Some(object), ..action.clone() }).collect()
    }

    fn action_of_kind(
        &mut self,
        item: &At<ActionFile>,
        (kind, when): (ActionKind, Option<ActionTime>),
        known: &Known<'_>,
    ) -> Option<Action> {
        if kind == ActionKind::BootDiscovery
            && let Some(refused) = &item.refused
        {
            self.refuse(
                &refused.span,
                "`boot-discovery` is not a request, so nothing refuses it",
                "never happens",
                "remove it",
            );
        }
        let hosts = self.action_hosts(item, kind, known)?;
        let cluster = self.action_cluster(item, kind, known)?;
        self.action_vips(item, kind);
        let (api_vips, ingress_vips) = (self.read_all(&item.api_vips), self.read_all(&item.ingress_vips));
        let role = self.patch(item, kind, hosts.len());
        let (resource, object) = self.action_resource(item, kind, known)?;
        let request = self.api_request(item, kind, known);
        let refused = item.refused.as_ref().and_then(|n| self.number(n, "the HTTP status of a refusal", 400, 599));
        Some(Action {
            kind,
            when: when?,
            cluster,
            hosts,
            api_vips,
            ingress_vips,
            role,
            hostname: item.hostname.as_ref().map(|t| t.text.clone()),
            resource,
            object,
            request,
            refused: refused.and_then(|n| u16::try_from(n).ok()),
            line: self.line(&item.span),
        })
    }

    fn action_time(&mut self, item: &At<ActionFile>, known: &Known<'_>) -> Option<ActionTime> {
        let at = self.read_option(&item.at);
        let after = item.after.as_ref().map(|a| self.observation(a, known));
        let then = self.read_option(&item.then);
        match (&item.at, &item.after) {
            (Some(a), Some(b)) => {
                self.refuse(
                    &b.span,
                    "`at` and `after` cannot be used together",
                    "the second one",
                    "keep `at` for a time, or `after` for something that is seen",
                );
                self.also(&a.span, "the first one");
                None
            }
            (None, None) => {
                self.refuse(
                    &item.act.span,
                    "this action has no time",
                    "when?",
                    "add `at: 30s`, or `after:` and something that is seen",
                );
                None
            }
            (Some(a), None) => {
                if item.then.is_some() {
                    self.refuse(
                        &a.span,
                        "`then` only goes with `after`",
                        "there is no `after`",
                        "add the two times up in `at`",
                    );
                }
                at.map(ActionTime::At)
            }
            (None, Some(_)) => {
                after.flatten().map(|moment| ActionTime::After { moment, then: then.unwrap_or(Span::ZERO) })
            }
        }
    }

    /// The hosts that it is done to; none where it is done to a cluster.
    fn action_hosts(&mut self, item: &At<ActionFile>, kind: ActionKind, known: &Known<'_>) -> Option<Vec<String>> {
        if is_on_hosts(kind, item) {
            let who = Who { host: &item.host, hosts: &item.hosts, role: &None, cluster: &None };
            if let Some(Subject::Hosts(names)) = self.subject(who, known)? {
                return Some(names);
            }
            self.refuse(&item.act.span, format!("`{kind}` needs hosts"), "which hosts?", "add `host` or `hosts`");
        } else if let Some(text) = item.host.as_ref().or(item.hosts.as_ref())
            // Of an operation that there is not nobody knows what it is about.
            && (kind != ActionKind::Request || Self::operation(item).is_some())
        {
            self.refuse(&text.span, format!("`{kind}` is for a cluster, not for hosts"), "not used here", "remove it");
        }
        Some(vec![])
    }

    /// The inner `None`: it is not done to a cluster.
    fn action_cluster(&mut self, item: &At<ActionFile>, kind: ActionKind, known: &Known<'_>) -> Option<Option<String>> {
        let about = Self::operation(item).map(|operation| operation.about);
        let of_pool = about == Some(About::InfraEnv) && known.clusters.is_empty();
        if kind == ActionKind::Request && item.cluster.is_none() && (of_pool || about == Some(About::Service)) {
            return Some(None);
        }
        if !is_on_hosts(kind, item) || kind == ActionKind::Bind {
            let cluster = self.the_cluster(item.cluster.as_ref(), &item.act.span, known)?;
            return Some(Some(cluster.name.clone()));
        }
        if let Some(text) = &item.cluster {
            self.refuse(&text.span, format!("`{kind}` is for hosts, not for a cluster"), "not used here", "remove it");
        }
        Some(None)
    }

    fn action_vips(&mut self, item: &At<ActionFile>, kind: ActionKind) {
        let first = item.api_vips.first().or(item.ingress_vips.first());
        match (kind, first) {
            (ActionKind::SetVips, None) => self.refuse(
                &item.act.span,
                "`set-vips` has no addresses",
                "which ones?",
                "add `api_vips` and `ingress_vips`",
            ),
            (ActionKind::SetVips, Some(_)) | (_, None) => {}
            (_, Some(text)) => self.refuse(
                &text.span,
                format!("`{kind}` takes no VIPs"),
                "not used here",
                "remove them, or write `do: set-vips`",
            ),
        }
    }

    /// What is done to a resource: its kind, and the patch or the object.
    fn action_resource(
        &mut self,
        item: &At<ActionFile>,
        kind: ActionKind,
        known: &Known<'_>,
    ) -> Option<(Option<ResourceKind>, Option<Value>)> {
        let names_one = matches!(kind, ActionKind::PatchResource | ActionKind::DeleteResource | ActionKind::Annotate);
        let of_others = [
            item.resource.as_ref().filter(|_| !names_one).map(|t| &t.span),
            item.patch.as_ref().filter(|_| kind != ActionKind::PatchResource).map(|t| &t.span),
            item.annotations.as_ref().filter(|_| kind != ActionKind::Annotate).map(|t| &t.span),
            item.object.as_ref().filter(|_| kind != ActionKind::ApplyResource).map(|t| &t.span),
            item.file.as_ref().filter(|_| kind != ActionKind::ApplyResource).map(|t| &t.span),
        ];
        for place in of_others.into_iter().flatten() {
            self.refuse(place, format!("`{kind}` does not take this"), "not used here", "remove it");
        }
        if !kind.needs_hub() {
            return Some((None, None));
        }
        if !known.kube {
            self.refuse(
                &item.act.span,
                format!("`{kind}` is about a resource, and the service is asked over REST here"),
                "no hub",
                "add `api: kube` to the scenario",
            );
            return None;
        }
        if kind == ActionKind::ApplyResource {
            return Some((None, None));
        }
        let of = if is_on_hosts(kind, item) { ResourceOf::Host } else { ResourceOf::Cluster };
        let resource = self.resource_of(of, item.resource.as_ref())?;
        if kind == ActionKind::Annotate {
            return Some((Some(resource), Some(self.annotations(item)?)));
        }
        let patch = match (&item.patch, kind) {
            (Some(patch), _) if patch.is_object() => Some(patch.value.clone()),
            (Some(patch), _) => {
                let help = "write what is to be merged, for example `{spec: {holdInstallation: true}}`";
                self.refuse(&patch.span, "a patch is a mapping", "not a mapping", help);
                None
            }
            (None, ActionKind::PatchResource) => {
                let help = "add `patch: {spec: {..}}`";
                self.refuse(&item.act.span, "`patch-resource` changes nothing", "what?", help);
                None
            }
            (None, _) => None,
        };
        Some((Some(resource), patch))
    }

    /// The patch that sets annotations.
    fn annotations(&mut self, item: &At<ActionFile>) -> Option<Value> {
        let help = "add `annotations: {some.domain/name: \"text\"}`; `null` takes one away";
        let Some(given) = &item.annotations else {
            self.refuse(&item.act.span, "`annotate` changes nothing", "what?", help);
            return None;
        };
        let fits = |map: &serde_json::Map<String, Value>| {
            !map.is_empty() && map.values().all(|value| value.is_string() || value.is_null())
        };
        if !given.as_object().is_some_and(fits) {
            self.refuse(&given.span, "annotations are names with texts", "no such mapping", help);
            return None;
        }
        Some(serde_json::json!({ "metadata": { "annotations": given.value } }))
    }

    /// The objects of `apply-resource`, with their kinds.
    fn applied(&mut self, item: &At<ActionFile>) -> Vec<(ResourceKind, Value)> {
        let (place, objects) = match (&item.object, &item.file) {
            (Some(object), None) => (&object.span, vec![object.value.clone()]),
            (None, Some(file)) => match self.objects(&file.text) {
                Ok(objects) => (&file.span, objects),
                Err(why) => {
                    let message = format!("the file `{}` cannot be applied: {why}", file.text);
                    let help = "name a file with resources, with a path relative to the scenario's file";
                    self.refuse(&file.span, message, "from here", help);
                    return Vec::new();
                }
            },
            (Some(_), Some(file)) => {
                let help = "keep one of `object` and `file`";
                self.refuse(&file.span, "`apply-resource` has an object and a file", "which of them?", help);
                return Vec::new();
            }
            (None, None) => {
                let help = "add `object:` with `kind`, `metadata` and `spec`, or `file:` with the path of a file with such objects";
                self.refuse(&item.act.span, "`apply-resource` has nothing to apply", "what?", help);
                return Vec::new();
            }
        };
        objects.into_iter().filter_map(|object| Some((self.kind_of(place, &object)?, object))).collect()
    }

    /// The objects in a file beside the scenario's.
    fn objects(&mut self, path: &str) -> Result<Vec<Value>, String> {
        let text = match self.source.resources.get(path) {
            Some(text) => text.clone(),
            None => self.catalogue.beside(&self.source.name, path).map_err(|e| e.to_string())?,
        };
        let read: Vec<Value> =
            serde_saphyr::from_multiple(&text).map_err(|e| e.to_string().lines().next().unwrap_or("").to_owned())?;
        if read.is_empty() {
            return Err("it has no object".to_owned());
        }
        self.resources.insert(path.to_owned(), text);
        Ok(read)
    }

    fn kind_of(&mut self, place: &Place, object: &Value) -> Option<ResourceKind> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let word = text(&object["kind"]);
        let Some(kind) = ResourceKind::from_word(&word) else {
            self.unknown(place, "kind of resource", &word, ResourceKind::NAMES.iter().copied());
            return None;
        };
        if text(&object["metadata"]["name"]).is_empty() {
            let help = "add `metadata: {name: ..}`";
            self.refuse(place, format!("the {kind} has no name"), "`metadata.name` is missing", help);
            return None;
        }
        Some(kind)
    }

    /// What `patch-host` changes, and nothing else does: the role, read here, and the name.
    fn patch(&mut self, item: &At<ActionFile>, kind: ActionKind, hosts: usize) -> Option<HostRole> {
        let role = self.read_option(&item.role).map(|r| r.0);
        if kind == ActionKind::PatchHost {
            if item.role.is_none() && item.hostname.is_none() {
                self.refuse(&item.act.span, "`patch-host` changes nothing", "what?", "add `role` or `hostname`");
            }
            if let Some(hostname) = item.hostname.as_ref().filter(|_| hosts > 1) {
                self.refuse(
                    &hostname.span,
                    "one name cannot be given to several hosts",
                    "for more than one host",
                    "name one `host`",
                );
            }
            return role;
        }
        for place in item.role.iter().map(|t| &t.span).chain(item.hostname.iter().map(|t| &t.span)) {
            self.refuse(
                place,
                format!("`{kind}` takes neither a role nor a name"),
                "not used here",
                "remove it, or write `do: patch-host`",
            );
        }
        role
    }
}
