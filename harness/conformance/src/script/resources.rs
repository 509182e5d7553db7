//! Steps over Kubernetes, and the world of a check there.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use vlab_service::kube::{Kind, NodeRequest, kubeconfig};

use super::*;
use crate::table::ResourceStep;
use crate::table::resources::{Apply, IsSo, NodeStep, Patch, RequestStep, SPOKE, SPOKE_KINDS, condition};

/// The least time after which controllers have done what they do.
const CONTROLLERS: Duration = Duration::from_secs(3);
/// Who applies, for the API server.
const APPLIES: &str = "fieldManager=vlab&force=true";

/// Where a registry's images are, too.
const REGISTRIES: &str = "[[registry]]\nlocation = \"quay.io/openshift-release-dev\"\n\n\
                          [[registry.mirror]]\nlocation = \"mirror.example.com/release\"\n";

/// The certificate of that one.
const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBkTCCATegAwIBAgIUGTqt2jankEDaOAZZclK0aL1q37QwCgYIKoZIzj0EAwIw\n\
HTEbMBkGA1UEAwwSbWlycm9yLmV4YW1wbGUuY29tMCAXDTI2MTEyODEyNTEyMFoY\n\
DzIxMjYxMTA0MTI1MTIwWjAdMRswGQYDVQQDDBJtaXJyb3IuZXhhbXBsZS5jb20w\n\
WTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATkVj4WAIyjjaLlsQgpFeTsfKY++Buz\n\
Rat3l94RzSdda5gybE+OSam11F0sLnRSmPfgVEr76DE6ufxUXFqmswuao1MwUTAd\n\
BgNVHQ4EFgQU/XrqzFbgrT0yMzd4k/Ccnb/gM78wHwYDVR0jBBgwFoAU/XrqzFbg\n\
rT0yMzd4k/Ccnb/gM78wDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBF\n\
AiBxdTYnr7qpwNWkRLHOc5t/ol6Rcb3iQ5D/ZUNdqsmMYQIhAPXBlIMY2keA21Ly\n\
AYzAd/9s9oi4xu1PbUJ2bd04dd9f\n\
-----END CERTIFICATE-----\n";

impl Script<'_> {
    pub(super) async fn resource(&mut self, step: &ResourceStep) -> Done {
        match step {
            ResourceStep::Apply(apply) => self.apply_step(apply).await,
            ResourceStep::Patch(patch) => self.patch_step(patch).await,
            ResourceStep::Delete(delete) => {
                let path = self.path_of(&delete.delete)?;
                let response = self.send(&Request::new(Method::Delete, path)).await?;
                accepted(&response, None)
            }
            ResourceStep::See(subject, so) => {
                self.comes_to_be(subject, so).await?;
                if let Some(name) = &so.id {
                    let id = self.id_behind(subject, "eventsURL").await?;
                    self.vars.insert(name.clone(), id);
                }
                Ok(())
            }
            ResourceStep::Holds(subject, so) => self.stays_so(subject, so).await,
            ResourceStep::Gone(subject) => self.goes(subject).await,
            ResourceStep::Request(request) => self.request_step(request).await,
            ResourceStep::Node(node) => self.node_step(node).await,
        }
    }

    /// Where the API server of the check's cluster is, below the hub's.
    fn spoke(&self) -> Done<String> {
        Ok(format!("/clusters/check-{}", self.own()?))
    }

    /// The name of a host's node, and its address.
    fn node_of(&mut self, host: &str) -> Done<(String, String)> {
        let inventory = self.host(host)?.inventory();
        let address = inventory["interfaces"][0]["ipv4_addresses"][0].as_str().unwrap_or_default();
        let name = inventory["hostname"].as_str().unwrap_or_default().to_owned();
        Ok((name, address.split('/').next().unwrap_or_default().to_owned()))
    }

    async fn request_step(&mut self, step: &RequestStep) -> Done {
        let (name, address) = self.node_of(&step.host)?;
        let mut request = match step.request.as_str() {
            "client" => NodeRequest::client(&name),
            _ => NodeRequest::serving(&name, vec![name.clone(), address]),
        };
        let change = step.change.clone();
        for (is, wrong) in [
            (&mut request.user, change.user),
            (&mut request.common_name, change.common_name),
            (&mut request.organization, change.organization),
        ] {
            *is = wrong.unwrap_or_else(|| is.clone());
        }
        for (are, wrong) in [
            (&mut request.groups, change.groups),
            (&mut request.names, change.names),
            (&mut request.usages, change.usages),
        ] {
            *are = wrong.unwrap_or_else(|| are.clone());
        }
        let wrong = |why| Trouble::Differs(format!("the check itself is wrong: {why}"));
        let mut post = request.post(step.name.as_ref().unwrap_or(&step.request)).map_err(wrong)?;
        post.path.insert_str(0, &self.spoke()?);
        let made = self.send(&post).await?;
        accepted(&made, None)
    }

    async fn node_step(&mut self, step: &NodeStep) -> Done {
        let (name, address) = self.node_of(&step.node)?;
        let all = format!("{}/api/v1/nodes", self.spoke()?);
        let path = format!("{all}/{name}");
        if self.look(&path).await?.is_none() {
            let node = json!({ "apiVersion": "v1", "kind": "Node",
                               "metadata": { "name": name, "annotations": step.annotations } });
            let made = self.send(&Request::new(Method::Post, all).json(&node)).await?;
            accepted(&made, None)?;
        }
        let status = json!({ "status": {
            "addresses": [{ "type": "Hostname", "address": name }, { "type": "InternalIP", "address": address }],
            "conditions": [{ "type": "Ready", "status": if step.ready { "True" } else { "False" },
                             "reason": if step.ready { "KubeletReady" } else { "KubeletNotReady" } }],
        } });
        let mut patch = Request::new(Method::Patch, format!("{path}/status"));
        patch.body = status.to_string().into();
        let patched = self.send(&patch.header("content-type", "application/merge-patch+json")).await?;
        accepted(&patched, None)
    }

    /// The namespace of the check's world, and the name of what is in it.
    fn own(&self) -> Done<String> {
        self.var("name")
    }

    /// Where a resource is that a step names.
    fn path_of(&self, subject: &str) -> Done<String> {
        let subject = self.filled_text(subject)?;
        let own = self.own()?;
        let (spoke, subject) = match subject.strip_prefix(SPOKE) {
            Some(rest) => (true, rest),
            None => (false, subject.as_str()),
        };
        let parts: Vec<&str> = subject.split('/').collect();
        let there = SPOKE_KINDS.iter().find(|kind| spoke && kind.0 == parts[0]);
        let kind = Kind::of(parts[0]).filter(|_| !spoke);
        let (None, None) = (there, kind) else { return self.path_at(&parts, there.copied(), kind, &own) };
        differs(format!("the check itself is wrong: there is no kind {}", parts[0]))
    }

    fn path_at(
        &self,
        parts: &[&str],
        there: Option<(&str, &str, &str, bool)>,
        kind: Option<Kind>,
        own: &str,
    ) -> Done<String> {
        let (namespace, name) = match *parts {
            [_] => (own, own),
            [_, name] => (own, name),
            [_, namespace, name] => (namespace, name),
            _ => return differs(format!("the check itself is wrong: {} is not Kind/namespace/name", parts.join("/"))),
        };
        if let Some((_, api, plural, namespaced)) = there {
            let root = if api.contains('/') { "apis" } else { "api" };
            // Of what is in no namespace a third part is a subresource.
            let rest = match (namespaced, parts) {
                (true, _) => format!("namespaces/{namespace}/{plural}/{name}"),
                (false, [_, name, part]) if !name.is_empty() => format!("{plural}/{name}/{part}"),
                (false, _) => format!("{plural}/{name}"),
            };
            return Ok(format!("{}/{root}/{api}/{rest}", self.spoke()?));
        }
        let of = |kind: Kind| {
            if kind.is_namespaced() { kind.path_of(&format!("{namespace}/{name}")) } else { kind.path_of(name) }
        };
        Ok(kind.map(of).unwrap_or_default())
    }

    /// What a resource of the world is, before a check changes it.
    fn world_resource(&self, name: &str) -> Done<Value> {
        let own = self.own()?;
        let kind = self.check.world.cluster;
        let head = |kind: Kind, name: &str| {
            let mut head =
                json!({ "apiVersion": kind.api_version(), "kind": kind.name(), "metadata": { "name": name } });
            if kind.is_namespaced() {
                head["metadata"]["namespace"] = json!(own);
            }
            head
        };
        let with = |kind: Kind, name: &str, rest: Value| merged(&head(kind, name), &rest);
        Ok(match name {
            "pull-secret" => {
                let data = json!({ ".dockerconfigjson": STANDARD.encode(&self.target.pull_secret) });
                with(Kind::Secret, "pull-secret", json!({ "type": "kubernetes.io/dockerconfigjson", "data": data }))
            }
            "image-set" => {
                with(Kind::ClusterImageSet, &own, json!({ "spec": { "releaseImage": self.target.release_image } }))
            }
            "cluster-deployment" => {
                let install = json!({ "group": "extensions.hive.openshift.io", "version": "v1beta1",
                                      "kind": "AgentClusterInstall", "name": own });
                let mut spec = json!({
                    "baseDomain": "example.com", "clusterName": own, "pullSecretRef": { "name": "pull-secret" },
                    "platform": { "agentBareMetal": { "agentSelector": {} } }, "clusterInstallRef": install,
                });
                if kind == ClusterKind::Day2 {
                    spec["installed"] = json!(true);
                    spec["clusterMetadata"] = json!({
                        "clusterID": self.target.id(&self.check.id, 0xd2), "infraID": "imported",
                        "adminKubeconfigSecretRef": { "name": "admin-kubeconfig" },
                    });
                }
                with(Kind::ClusterDeployment, &own, json!({ "spec": spec }))
            }
            "agent-cluster-install" => {
                with(Kind::AgentClusterInstall, &own, json!({ "spec": self.cluster_install(kind, &own) }))
            }
            "infra-env" => {
                let mut spec = json!({ "pullSecretRef": { "name": "pull-secret" }, "cpuArchitecture": "x86_64" });
                if !matches!(kind, ClusterKind::None) && !self.check.world.pool {
                    spec["clusterRef"] = json!({ "name": own, "namespace": own });
                }
                with(Kind::InfraEnv, &own, json!({ "spec": spec }))
            }
            "nmstate-config" => {
                let address = json!([{ "ip": "192.168.126.10", "prefix-length": 24 }]);
                let ipv4 = json!({ "enabled": true, "dhcp": false, "address": address });
                let config = json!({ "interfaces": [{ "name": "eth0", "type": "ethernet", "state": "up",
                                                      "ipv4": ipv4 }] });
                let interfaces = json!([{ "name": "eth0", "macAddress": "52:54:00:00:00:00" }]);
                let rest = json!({ "metadata": { "labels": { "networks": own } },
                                   "spec": { "config": config, "interfaces": interfaces } });
                with(Kind::NMStateConfig, &own, rest)
            }
            "manifests" => {
                let file = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra}\n";
                with(Kind::ConfigMap, "manifests", json!({ "data": { "extra.yaml": file } }))
            }
            "mirrors" => {
                let data = json!({ "registries.conf": REGISTRIES, "ca-bundle.crt": CERTIFICATE });
                with(Kind::ConfigMap, "mirrors", json!({ "data": data }))
            }
            "ignition-ca" => {
                let data = json!({ "tls.crt": STANDARD.encode(CERTIFICATE) });
                with(Kind::Secret, "ignition-ca", json!({ "data": data }))
            }
            "bare-metal-host" => {
                let labels = json!({ "infraenvs.agent-install.openshift.io": own });
                let spec = json!({ "online": false, "bootMACAddress": "52:54:00:00:00:00",
                                   "bmc": { "address": "redfish://192.0.2.1/1", "credentialsName": "bmc" } });
                with(Kind::BareMetalHost, &own, json!({ "metadata": { "labels": labels }, "spec": spec }))
            }
            "admin-kubeconfig" => {
                let server = format!("{}{}", self.wire.hub(), self.spoke()?);
                with(
                    Kind::Secret,
                    "admin-kubeconfig",
                    json!({ "data": { "kubeconfig": STANDARD.encode(kubeconfig(&server)) } }),
                )
            }
            "classification" => {
                let spec = json!({ "labelKey": "size", "labelValue": "large", "query": ".cpu.count >= 8" });
                with(Kind::AgentClassification, &own, json!({ "spec": spec }))
            }
            other => return differs(format!("the check itself is wrong: there is no resource {other:?}")),
        })
    }

    fn cluster_install(&self, kind: ClusterKind, own: &str) -> Value {
        let masters = if matches!(kind, ClusterKind::Ha | ClusterKind::Umn) { 3 } else { 1 };
        let mut spec = json!({
            "clusterDeploymentRef": { "name": own }, "imageSetRef": { "name": own },
            "provisionRequirements": { "controlPlaneAgents": masters },
            "networking": {
                "clusterNetwork": [{ "cidr": "10.128.0.0/14", "hostPrefix": 23 }], "serviceNetwork": ["172.30.0.0/16"],
            },
        });
        match kind {
            ClusterKind::Ha => {
                spec["apiVIPs"] = json!(["192.168.126.200"]);
                spec["ingressVIPs"] = json!(["192.168.126.201"]);
            }
            ClusterKind::Umn => spec["networking"]["userManagedNetworking"] = json!(true),
            _ => spec["networking"]["machineNetwork"] = json!([{ "cidr": "192.168.126.0/24" }]),
        }
        spec
    }

    /// Applies the world's resources, and waits until the service has a cluster and an infra-env for them.
    pub(super) async fn apply_world(&mut self) -> Done {
        let world = &self.check.world;
        let own = self.own()?;
        // Steps that make everything themselves need it, too.
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": own } });
        let made = self.send(&Request::new(Method::Post, "/api/v1/namespaces").json(&namespace)).await?;
        accepted(&made, None)?;
        // It is the last that is deleted.
        self.applied.push(format!("/api/v1/namespaces/{own}"));
        let cluster = !matches!(world.cluster, ClusterKind::Nothing | ClusterKind::None);
        if world.cluster == ClusterKind::Nothing {
            return Ok(());
        }
        self.apply(&self.world_resource("pull-secret")?, None).await?;
        if cluster {
            for name in ["image-set", "cluster-deployment"] {
                self.apply(&self.world_resource(name)?, None).await?;
            }
            let install = self.filled(&merged(&self.world_resource("agent-cluster-install")?, &world.patch))?;
            self.apply(&install, None).await?;
            let id = self.id_behind("AgentClusterInstall", "eventsURL").await?;
            self.vars.insert("cluster".to_owned(), id);
        }
        let infra_env = self.filled(&merged(&self.world_resource("infra-env")?, &world.infra_env))?;
        self.apply(&infra_env, None).await?;
        let id = self.id_behind("InfraEnv", "eventsURL").await?;
        self.vars.insert("infra_env".to_owned(), id);
        Ok(())
    }

    /// The id of what the service has for a resource: it stands in the address of its events.
    async fn id_behind(&mut self, subject: &str, member: &str) -> Done<Value> {
        let path = self.path_of(subject)?;
        let begun = self.wire.now();
        loop {
            let object = self.look(&path).await?.unwrap_or_default();
            let url = object["status"]["debugInfo"][member].as_str().unwrap_or_default();
            if let Some((_, id)) = url.split_once("_id=") {
                return Ok(json!(id));
            }
            let waited = self.wire.now().since(begun);
            if waited >= self.target.patience {
                let status = shown(object.get("status"));
                return differs(format!(
                    "after {} s {subject} is nothing of the service's: {status}",
                    waited.as_secs()
                ));
            }
            self.work().await?;
        }
    }

    /// A resource as it is; `None`: there is none.
    async fn look(&mut self, path: &str) -> Done<Option<Value>> {
        let response = self.send(&Request::new(Method::Get, path)).await?;
        match (response.status, response.decode()) {
            (200, Ok(object)) => Ok(Some(object)),
            (404, _) => Ok(None),
            _ => differs(format!("GET {path}: {}", answer_of(&response))),
        }
    }

    async fn apply_step(&mut self, step: &Apply) -> Done {
        let object = match &step.apply {
            Value::String(name) => self.world_resource(name)?,
            object => {
                let named = object["kind"].as_str().unwrap_or_default();
                let mut object = object.clone();
                if let Some(name) = named.strip_prefix(SPOKE)
                    && let Some(kind) = SPOKE_KINDS.iter().find(|kind| kind.0 == name)
                {
                    object["apiVersion"] = json!(kind.1);
                    object["kind"] = json!(kind.0);
                    let object = self.filled(&object)?;
                    return self.apply_there(*kind, &object).await;
                }
                let kind = Kind::of(named);
                if let Some(kind) = kind {
                    object["apiVersion"] = json!(kind.api_version());
                    if kind.is_namespaced() && object["metadata"]["namespace"].is_null() {
                        object["metadata"]["namespace"] = json!("<name>");
                    }
                }
                object
            }
        };
        let object = self.filled(&merged(&object, &step.change))?;
        let refused = step.refused.as_ref().map(|refused| self.refusal(refused)).transpose()?;
        self.apply(&object, refused.as_ref()).await
    }

    /// Applies an object in the API server of the check's cluster.
    async fn apply_there(&mut self, kind: (&str, &str, &str, bool), object: &Value) -> Done {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = text(&object["metadata"]["name"]);
        let namespace = text(&object["metadata"]["namespace"]);
        let path = self.path_at(&[kind.0, &namespace, &name], Some(kind), None, "")?;
        let mut request = Request::new(Method::Patch, format!("{path}?{APPLIES}"));
        request.body = object.to_string().into();
        let response = self.send(&request.header("content-type", "application/apply-patch+yaml")).await?;
        accepted(&response, None)
    }

    async fn apply(&mut self, object: &Value, refused: Option<&Refusal>) -> Done {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let Some(kind) = object["kind"].as_str().and_then(Kind::of) else {
            return differs("the check itself is wrong: it applies an object of no kind");
        };
        let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
        let path =
            if kind.is_namespaced() { kind.path_of(&format!("{namespace}/{name}")) } else { kind.path_of(&name) };
        let mut request = Request::new(Method::Patch, format!("{path}?{APPLIES}"));
        request.body = object.to_string().into();
        let response = self.send(&request.header("content-type", "application/apply-patch+yaml")).await?;
        accepted(&response, refused)?;
        if refused.is_none() && !self.applied.contains(&path) {
            self.applied.push(path);
        }
        Ok(())
    }

    fn refusal(&self, refused: &Refusal) -> Done<Refusal> {
        Ok(Refusal { status: self.filled(&refused.status)?, says: self.filled(&refused.says)? })
    }

    async fn patch_step(&mut self, step: &Patch) -> Done {
        let refused = step.refused.as_ref().map(|refused| self.refusal(refused)).transpose()?;
        let with = self.filled(&step.with)?;
        self.merge(&step.patch, &with, refused.as_ref()).await
    }

    async fn merge(&mut self, subject: &str, patch: &Value, refused: Option<&Refusal>) -> Done {
        let mut request = Request::new(Method::Patch, self.path_of(subject)?);
        request.body = patch.to_string().into();
        let response = self.send(&request.header("content-type", "application/merge-patch+json")).await?;
        accepted(&response, refused)
    }

    /// What a resource is not as it should be.
    async fn resource_differs(&mut self, path: &str, so: &IsSo) -> Done<Option<String>> {
        let Some(object) = self.look(path).await? else { return Ok(Some("it is not there".to_owned())) };
        let wrong = self.object_differs(&object, so)?;
        if wrong.is_none() {
            for (name, path) in &so.save {
                let Some(value) = matcher::at(&object, path) else { return Ok(Some(format!("it has no {path}"))) };
                self.vars.insert(name.clone(), value.clone());
            }
        }
        Ok(wrong)
    }

    fn object_differs(&mut self, object: &Value, so: &IsSo) -> Done<Option<String>> {
        let mut wrong = Vec::new();
        let conditions = &object["status"]["conditions"];
        for (kind, wanted) in &so.conditions {
            let found = conditions.as_array().into_iter().flatten().find(|c| c["type"] == kind.as_str());
            let lines = differences(&condition(&self.filled(wanted)?), found);
            let is = found.filter(|_| !lines.is_empty()).map(|found| format!("{kind} is {}", shown(Some(found))));
            wrong.extend(lines.into_iter().map(|line| format!("{kind}: {}", line.replace("the answer: ", ""))));
            wrong.extend(is);
        }
        if !so.is.is_null() {
            wrong.extend(differences(&self.filled(&so.is)?, Some(object)));
        }
        Ok((!wrong.is_empty()).then(|| wrong.join("; ")))
    }

    async fn comes_to_be(&mut self, subject: &str, so: &IsSo) -> Done {
        let path = self.path_of(subject)?;
        let begun = self.wire.now();
        loop {
            let Some(wrong) = self.resource_differs(&path, so).await? else { return Ok(()) };
            let waited = self.wire.now().since(begun);
            if waited >= self.target.patience {
                return differs(format!("after {} s {wrong}", waited.as_secs()));
            }
            self.work().await?;
        }
    }

    async fn stays_so(&mut self, subject: &str, so: &IsSo) -> Done {
        let path = self.path_of(subject)?;
        let begun = self.wire.now();
        loop {
            if let Some(wrong) = self.resource_differs(&path, so).await? {
                return differs(wrong);
            }
            if self.wire.now().since(begun) >= (self.target.monitor * SETTLED).max(CONTROLLERS) {
                return Ok(());
            }
            self.work().await?;
        }
    }

    async fn goes(&mut self, subject: &str) -> Done {
        let path = self.path_of(subject)?;
        let begun = self.wire.now();
        loop {
            let Some(object) = self.look(&path).await? else { return Ok(()) };
            let waited = self.wire.now().since(begun);
            if waited >= self.target.patience {
                let meta = shown(object.get("metadata"));
                return differs(format!("after {} s it is still there: {meta}", waited.as_secs()));
            }
            self.work().await?;
        }
    }

    /// Every host that has registered has its Agent; roles are those that the user wants.
    pub(super) async fn agents_are_there(&mut self) -> Done {
        let there = IsSo { is: json!({ "spec": { "approved": { "$any": [true, false] } } }), ..IsSo::default() };
        for id in self.host_ids() {
            self.comes_to_be(&format!("Agent/{id}"), &there).await?;
        }
        for (host, role) in self.check.world.roles.clone() {
            let id = self.host(&host)?.id.clone();
            self.merge(&format!("Agent/{id}"), &json!({ "spec": { "role": role } }), None).await?;
        }
        Ok(())
    }

    /// The user binds every Agent to the cluster, and their hosts start again.
    pub(super) async fn bind_all(&mut self) -> Done {
        let own = self.own()?;
        let name = json!({ "name": own, "namespace": own });
        for id in self.host_ids() {
            self.merge(&format!("Agent/{id}"), &json!({ "spec": { "clusterDeploymentName": name } }), None).await?;
        }
        let hosts: Vec<String> = self.hosts.iter().map(|host| host.name.clone()).collect();
        let binding = Many::One("binding".to_owned());
        self.wait(&hosts.iter().map(|host| (host.clone(), binding.clone())).collect()).await?;
        for host in hosts {
            self.register(&Register { host, status: None, error: None, expect: None }).await?;
        }
        Ok(())
    }

    /// The user approves every Agent; what is ready and approved is installed.
    pub(super) async fn approve_all(&mut self) -> Done {
        for id in self.host_ids() {
            self.merge(&format!("Agent/{id}"), &json!({ "spec": { "approved": true } }), None).await?;
        }
        self.prepares().await
    }

    fn host_ids(&self) -> Vec<String> {
        self.hosts.iter().map(|host| host.id.clone()).collect()
    }

    /// Deletes what the check has applied; gives what was refused. Finalizers may hold it a while, and nobody waits for that.
    pub(super) async fn take_back(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        for path in std::mem::take(&mut self.applied).into_iter().rev() {
            match self.send(&Request::new(Method::Delete, path.clone())).await {
                Ok(response) if response.is_success() || response.status == 404 => {}
                Ok(response) => left.push(format!("{path}: {}", answer_of(&response))),
                Err(Trouble::Differs(why) | Trouble::Lab(why)) => left.push(why),
            }
        }
        left
    }
}

/// Was a write accepted, or refused as it must be?
fn accepted(response: &Response, refused: Option<&Refusal>) -> Done {
    let Some(refusal) = refused else {
        return if response.is_success() {
            Ok(())
        } else {
            differs(format!("expected status 2xx, found {}", answer_of(response)))
        };
    };
    let status = Value::from(response.status);
    let says = match &refusal.says {
        Value::String(text) => json!({ "$has": text }),
        Value::Null => json!({ "$present": true }),
        question => question.clone(),
    };
    let expected = json!({ "kind": "Status", "status": "Failure", "code": refusal.status, "message": says });
    let found: Value = response.decode().unwrap_or_default();
    if status != refusal.status {
        return differs(format!("expected a refusal with status {}, found {}", refusal.status, answer_of(response)));
    }
    let wrong = differences(&expected, Some(&found));
    if wrong.is_empty() { Ok(()) } else { differs(wrong.join("; ")) }
}
