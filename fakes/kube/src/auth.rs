//! Who asks, and whether he may: tokens, roles, and the reviews that clients ask for.

use rand::Rng as _;
use serde_json::{Value, json};
use vlab_api::http::{Request, Response};

use crate::body;
use crate::core::{Ask, Core, Stop};
use crate::failure::{Failure, Subject};
use crate::meta;

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The user's name.
    pub user: String,
    /// The groups that he is in.
    pub groups: Vec<String>,
    /// His uid, if he has one.
    pub uid: String,
}

impl Caller {
    /// Who may do everything.
    pub fn admin() -> Self {
        Self::named("kubernetes-admin", &["system:masters", "system:authenticated"])
    }

    /// Nobody in particular.
    pub fn anonymous() -> Self {
        Self::named("system:anonymous", &["system:unauthenticated"])
    }

    /// Somebody.
    pub fn named(user: &str, groups: &[&str]) -> Self {
        Self { user: user.to_owned(), groups: groups.iter().map(|g| (*g).to_owned()).collect(), uid: String::new() }
    }

    fn info(&self) -> Value {
        let mut info = json!({ "username": self.user, "groups": self.groups });
        if !self.uid.is_empty() {
            info["uid"] = json!(self.uid);
        }
        info
    }
}

/// Who may do what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authorization {
    /// Everybody everything.
    #[default]
    AlwaysAllow,
    /// As the roles in the server say; `system:masters` may do everything.
    Roles,
}

/// What somebody wants to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// `get`, `list`, …
    pub verb: String,
    /// The API group.
    pub group: String,
    /// The plural.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The namespace, or empty.
    pub namespace: String,
    /// The name, or empty.
    pub name: String,
    /// A path that is no resource, or empty.
    pub path: String,
}

impl Access {
    pub(crate) fn of(ask: &Ask, verb: &str) -> Self {
        Self {
            verb: verb.to_owned(),
            group: ask.resource.group.clone(),
            resource: ask.resource.plural.clone(),
            subresource: ask.subresource().to_owned(),
            namespace: ask.namespace().to_owned(),
            name: ask.name().to_owned(),
            path: String::new(),
        }
    }

    pub(crate) fn path(verb: &str, path: &str) -> Self {
        Self { verb: verb.to_owned(), path: path.to_owned(), ..Self::default() }
    }

    fn review(attributes: &Value) -> Self {
        let resource = &attributes["resourceAttributes"];
        let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
        if resource.is_object() {
            return Self {
                verb: text(resource, "verb"),
                group: text(resource, "group"),
                resource: text(resource, "resource"),
                subresource: text(resource, "subresource"),
                namespace: text(resource, "namespace"),
                name: text(resource, "name"),
                path: String::new(),
            };
        }
        let path = &attributes["nonResourceAttributes"];
        Self { verb: text(path, "verb"), path: text(path, "path"), ..Self::default() }
    }
}

fn list<'v>(value: &'v Value, name: &str) -> Vec<&'v str> {
    value[name].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Does a rule of a role allow it?
fn allows(rule: &Value, access: &Access) -> bool {
    let any = |name: &str, wanted: &str| list(rule, name).iter().any(|v| *v == "*" || *v == wanted);
    if !any("verbs", &access.verb) {
        return false;
    }
    if !access.path.is_empty() {
        return list(rule, "nonResourceURLs").iter().any(|u| match u.strip_suffix('*') {
            Some(start) => access.path.starts_with(start),
            None => *u == access.path,
        });
    }
    let resource = if access.subresource.is_empty() {
        access.resource.clone()
    } else {
        format!("{}/{}", access.resource, access.subresource)
    };
    let names = list(rule, "resourceNames");
    any("apiGroups", &access.group)
        && (any("resources", &resource)
            || any("resources", &format!("*/{}", access.subresource)) && !access.subresource.is_empty())
        && (names.is_empty() || names.contains(&access.name.as_str()))
}

impl Core {
    /// Who has that token, or whom the client's certificate names (user, groups). A wrong token is nobody's.
    ///
    /// # Errors
    /// 401.
    pub fn authenticate(
        &self,
        request: &Request,
        certificate: Option<(String, Vec<String>)>,
    ) -> Result<Caller, Failure> {
        let header = request.get_header("authorization");
        if let Some(token) = header.and_then(|h| h.strip_prefix("Bearer ").or_else(|| h.strip_prefix("bearer "))) {
            return self.options.tokens.get(token.trim()).cloned().map(known).ok_or_else(Failure::unauthorized);
        }
        Ok(match certificate {
            Some((user, groups)) => known(Caller { user, groups, uid: String::new() }),
            None => Caller::anonymous(),
        })
    }

    /// Whom somebody is for this request: `Impersonate-User` and `Impersonate-Group` name somebody else.
    ///
    /// # Errors
    /// 403: he may not be somebody else. 400: a group or an uid without a user.
    pub fn impersonated(&self, request: &Request, caller: &Caller) -> Result<Caller, Failure> {
        let all = |name: &str| {
            let named = request.headers.iter().filter(|(header, _)| header.eq_ignore_ascii_case(name));
            named.map(|(_, value)| value.clone()).collect::<Vec<_>>()
        };
        let (user, mut groups) = (all("impersonate-user").into_iter().next(), all("impersonate-group"));
        let uid = all("impersonate-uid").into_iter().next().unwrap_or_default();
        let Some(user) = user else {
            return match groups.is_empty() && uid.is_empty() {
                true => Ok(caller.clone()),
                false => Err(Failure::bad_request("requested to impersonate without impersonating a user")),
            };
        };
        let wanted = |resource: &str, name: &str| Access {
            verb: "impersonate".to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..Access::default()
        };
        self.authorize(caller, &wanted("users", &user))?;
        for group in &groups {
            self.authorize(caller, &wanted("groups", group))?;
        }
        if user != "system:anonymous" && !groups.iter().any(|group| group == "system:authenticated") {
            groups.push("system:authenticated".to_owned());
        }
        Ok(Caller { user, groups, uid })
    }

    /// Somebody is to be known by that token.
    pub fn add_token(&mut self, token: impl Into<String>, caller: Caller) {
        self.options.tokens.insert(token.into(), caller);
    }

    pub(crate) fn authorize(&self, caller: &Caller, access: &Access) -> Result<(), Failure> {
        if self.may(caller, access) {
            return Ok(());
        }
        let user = &caller.user;
        if !access.path.is_empty() {
            return Err(Failure {
                details: json!({}),
                ..Failure::new(
                    403,
                    "Forbidden",
                    format!("forbidden: User {user:?} cannot {} path {:?}", access.verb, access.path),
                )
            });
        }
        let resource = if access.subresource.is_empty() {
            access.resource.clone()
        } else {
            format!("{}/{}", access.resource, access.subresource)
        };
        let place = if access.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {:?}", access.namespace)
        };
        let why = format!(
            "User {user:?} cannot {} resource {resource:?} in API group {:?} {place}",
            access.verb, access.group
        );
        Err(Failure::forbidden(Subject { group: &access.group, resource: &access.resource, name: &access.name }, &why))
    }

    fn may(&self, caller: &Caller, access: &Access) -> bool {
        if self.options.authorization == Authorization::AlwaysAllow
            || caller.groups.iter().any(|g| g == "system:masters")
        {
            return true;
        }
        let open = matches!(access.path.as_str(), "/healthz" | "/livez" | "/readyz" | "/version")
            || access.path.starts_with("/openapi")
            || access.group.ends_with("authorization.k8s.io") && access.resource.starts_with("selfsubject")
            || access.resource == "selfsubjectreviews";
        if open {
            return true;
        }
        self.rules(caller, &access.namespace).iter().any(|rule| allows(rule, access))
    }

    /// Every rule that holds for somebody in a namespace.
    fn rules(&self, caller: &Caller, namespace: &str) -> Vec<Value> {
        const GROUP: &str = "rbac.authorization.k8s.io";
        let meant = |binding: &Value| {
            binding["subjects"].as_array().into_iter().flatten().any(|s| {
                let name = s["name"].as_str().unwrap_or_default();
                match s["kind"].as_str() {
                    Some("User") => name == caller.user,
                    Some("Group") => caller.groups.iter().any(|g| g == name),
                    Some("ServiceAccount") => {
                        let namespace = s["namespace"].as_str().or(binding["metadata"]["namespace"].as_str());
                        caller.user == format!("system:serviceaccount:{}:{name}", namespace.unwrap_or_default())
                    }
                    _ => false,
                }
            })
        };
        let mut rules = Vec::new();
        let bindings = self
            .objects(GROUP, "clusterrolebindings")
            .into_iter()
            .chain(self.objects(GROUP, "rolebindings").into_iter().filter(|b| b["metadata"]["namespace"] == namespace));
        for binding in bindings.filter(|binding| meant(binding)) {
            let name = binding["roleRef"]["name"].as_str().unwrap_or_default();
            let role = if binding["roleRef"]["kind"] == "Role" {
                self.object(GROUP, "roles", binding["metadata"]["namespace"].as_str().unwrap_or_default(), name)
            } else {
                self.object(GROUP, "clusterroles", "", name)
            };
            rules.extend(role.iter().flat_map(|r| r["rules"].as_array().into_iter().flatten().cloned()));
        }
        rules
    }

    /// Answers a review.
    pub(crate) fn review(&mut self, ask: &mut Ask) -> Result<Response, Stop> {
        let mut object = body::object(ask)?;
        let spec = object["spec"].clone();
        let caller = ask.caller.clone();
        let text = |name: &str| spec[name].as_str().unwrap_or_default().to_owned();
        let someone = || Caller {
            user: text("user"),
            groups: list(&spec, "groups").into_iter().map(str::to_owned).collect(),
            uid: text("uid"),
        };
        object["status"] = match ask.resource.plural.as_str() {
            "selfsubjectreviews" => {
                object["metadata"]["creationTimestamp"] = json!(meta::stamp(ask.clock));
                json!({ "userInfo": caller.info() })
            }
            "tokenreviews" => match self.options.tokens.get(&text("token")) {
                Some(found) => json!({ "authenticated": true, "user": known(found.clone()).info() }),
                None => json!({ "user": {}, "error": "invalid bearer token" }),
            },
            "selfsubjectrulesreviews" => self.self_rules(&caller, &text("namespace")),
            "selfsubjectaccessreviews" => self.decision(&caller, &Access::review(&spec)),
            _ => self.decision(&someone(), &Access::review(&spec)),
        };
        Ok(Response::json(201, &object))
    }

    fn decision(&self, caller: &Caller, access: &Access) -> Value {
        if self.may(caller, access) { json!({ "allowed": true }) } else { json!({ "allowed": false }) }
    }

    fn self_rules(&self, caller: &Caller, namespace: &str) -> Value {
        let everything = json!([{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }]);
        let paths = json!([{ "verbs": ["*"], "nonResourceURLs": ["*"] }]);
        let all = self.options.authorization == Authorization::AlwaysAllow
            || caller.groups.iter().any(|g| g == "system:masters");
        if all {
            return json!({ "resourceRules": everything, "nonResourceRules": paths, "incomplete": false });
        }
        let (resources, paths): (Vec<Value>, Vec<Value>) =
            self.rules(caller, namespace).into_iter().partition(|r| r["resources"].is_array());
        json!({ "resourceRules": resources, "nonResourceRules": paths, "incomplete": false })
    }

    /// A token for a service account.
    pub(crate) fn token(&mut self, ask: &mut Ask) -> Result<Response, Stop> {
        let Some(account) = self.store.get(ask.resource.id, &ask.key()) else {
            return Err(ask.resource.not_found(ask.name()).into());
        };
        let uid = account.meta.uid.clone();
        let mut request = body::read(&ask.request)?;
        if !request.is_object() {
            request = json!({ "spec": {} });
        }
        let seconds = request["spec"]["expirationSeconds"].as_u64().unwrap_or(3600);
        if seconds < 600 {
            return Err(Failure::new(
                422,
                "Invalid",
                format!("TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: {seconds}: may not specify a duration less than 10 minutes"),
            )
            .into());
        }
        let (namespace, name) = (ask.namespace().to_owned(), ask.name().to_owned());
        let user = format!("system:serviceaccount:{namespace}:{name}");
        let mut bytes = [0; 24];
        ask.dice.fill_bytes(&mut bytes);
        let token: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        self.add_token(token.clone(), Caller { user, groups: groups.to_vec(), uid });
        let expires = meta::stamp(ask.clock + std::time::Duration::from_secs(seconds));
        let answer = json!({
            "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
            "metadata": { "name": name, "namespace": namespace, "creationTimestamp": meta::stamp(ask.clock) },
            "spec": { "audiences": request["spec"]["audiences"].as_array().cloned().unwrap_or_else(|| vec![json!("https://kubernetes.default.svc")]),
                "expirationSeconds": seconds, "boundObjectRef": request["spec"]["boundObjectRef"] },
            "status": { "token": token, "expirationTimestamp": expires },
        });
        Ok(Response::json(201, &answer))
    }
}

fn known(mut caller: Caller) -> Caller {
    let group = "system:authenticated";
    if !caller.groups.iter().any(|g| g == group) {
        caller.groups.push(group.to_owned());
    }
    caller
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("get", "", "secrets", "", "x", true)]
    #[case("get", "", "secrets", "", "y", false)]
    #[case("list", "", "secrets", "", "x", false)]
    #[case("get", "apps", "secrets", "", "x", false)]
    fn rules(
        #[case] verb: &str,
        #[case] group: &str,
        #[case] resource: &str,
        #[case] sub: &str,
        #[case] name: &str,
        #[case] allowed: bool,
    ) {
        let rule = json!({ "verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["x"] });
        let access = Access {
            verb: verb.into(),
            group: group.into(),
            resource: resource.into(),
            subresource: sub.into(),
            name: name.into(),
            ..Access::default()
        };
        assert_eq!(allows(&rule, &access), allowed);
    }
}
