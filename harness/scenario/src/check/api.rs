//! What a scenario says in the words of the API: members of what the user creates, and requests for which there is no action.

use std::collections::BTreeMap;

use serde_json::Value;
use vlab_api::requests::{
    About, Misfit, Parameter, USER_REQUESTS, UserRequest, Wants, fits, member_fits, user_request,
};
use vlab_api::spec::{FieldSpec, StructSpec, WireObject};
use vlab_api::types::{ClusterCreateParams, InfraEnvCreateParams};

use super::{Checker, Known, Place};
use crate::diagnostic::suggestion;
use crate::file::{ActionFile, ScenarioFile};
use crate::spanned::At;
use crate::types::ApiRequest;
use crate::words::ActionKind;

/// What the user makes: its schema, and which of its members are said by which keys of the language. An empty key: the lab says it.
pub(super) struct Created {
    spec: &'static StructSpec,
    said: &'static [(&'static str, &'static str)],
}

pub(super) const CLUSTER: Created = Created {
    spec: &ClusterCreateParams::SPEC,
    said: &[
        ("name", "name"),
        ("openshift_version", "openshift_version"),
        ("pull_secret", ""),
        ("base_dns_domain", "base_domain"),
        ("high_availability_mode", "topology"),
        ("control_plane_count", "control_plane_count"),
        ("cluster_networks", "cluster_networks"),
        ("service_networks", "service_networks"),
        ("machine_networks", "machine_networks"),
        ("api_vips", "api_vips"),
        ("ingress_vips", "ingress_vips"),
        ("vip_dhcp_allocation", "vip_dhcp_allocation"),
        ("platform", "platform"),
        ("user_managed_networking", "user_managed_networking"),
        ("ssh_public_key", "ssh_public_key"),
        ("additional_ntp_source", "additional_ntp_source"),
    ],
};

pub(super) const INFRA_ENV: Created = Created {
    spec: &InfraEnvCreateParams::SPEC,
    said: &[
        ("name", ""),
        ("cluster_id", ""),
        ("openshift_version", ""),
        ("pull_secret", ""),
        ("ssh_authorized_key", ""),
        ("cpu_architecture", "cpu_architecture"),
        ("image_type", "image_type"),
        ("additional_ntp_sources", "additional_ntp_sources"),
        ("kernel_arguments", "kernel_arguments"),
        ("static_network_config", "static_network_config"),
    ],
};

/// Members of the API's `cluster-create-params` that a scenario can have under `params`.
pub fn params_of_a_cluster() -> Vec<&'static FieldSpec> {
    let is_said = |field: &&FieldSpec| CLUSTER.said.iter().any(|(member, _)| *member == field.name);
    CLUSTER.spec.fields.iter().filter(|field| !is_said(field)).collect()
}

impl Checker<'_> {
    /// Members of what the user creates.
    pub(super) fn params(&mut self, given: &BTreeMap<String, At<Value>>, of: &Created) -> BTreeMap<String, Value> {
        for (name, value) in given {
            match of.said.iter().find(|(member, _)| member == name) {
                Some((_, "")) => {
                    self.refuse(&value.span, format!("`{name}` is said by the lab itself"), "not here", "remove it");
                }
                Some((_, key)) => {
                    let why = format!("`{name}` has a key of its own");
                    self.refuse(&value.span, why, "not here", format!("write `{key}`, outside of `params`"));
                }
                None => {
                    if let Err(misfit) = member_fits(&value.value, of.spec, name) {
                        self.misfit(&value.span, &misfit);
                    }
                }
            }
        }
        given.iter().map(|(name, value)| (name.clone(), value.value.clone())).collect()
    }

    fn misfit(&mut self, place: &Place, misfit: &Misfit) {
        let message = match misfit.place.as_str() {
            "" => format!("the API does not take this: {}", misfit.why),
            inner => format!("the API does not take `{inner}`: {}", misfit.why),
        };
        let help = match &misfit.unknown {
            Some((word, known)) => suggestion(word, known.iter().copied()),
            None => "it is written as the API's schema has it".to_owned(),
        };
        self.refuse(place, message, "does not fit", help);
    }

    /// The operation that an action asks for, as far as it can be told; nothing is complained about.
    pub(super) fn operation(item: &ActionFile) -> Option<&'static UserRequest> {
        item.operation.as_ref().and_then(|operation| user_request(&operation.text))
    }

    /// What `request` asks for, and nothing else has.
    pub(super) fn api_request(
        &mut self,
        item: &At<ActionFile>,
        kind: ActionKind,
        known: &Known<'_>,
    ) -> Option<ApiRequest> {
        if kind != ActionKind::Request {
            let named = item.operation.iter().map(|text| &text.span);
            let with = item.with.values().map(|value| &value.span);
            for place in named.chain(with).chain(item.body.iter().map(|value| &value.span)) {
                let help = "remove it, or write `do: request`";
                self.refuse(place, format!("`{kind}` does not take this"), "not used here", help);
            }
            return None;
        }
        let Some(named) = &item.operation else {
            let help = "add `operation:` and its id in the API, for example `V2UpdateCluster`";
            self.refuse(&item.act.span, "`request` asks for nothing", "which operation?", help);
            return None;
        };
        let Some(operation) = user_request(&named.text) else {
            let names = USER_REQUESTS.iter().map(|request| request.id);
            self.unknown(&named.span, "operation of a user", &named.text, names);
            return None;
        };
        if operation.about == About::Host && known.hosts.is_empty() {
            return None;
        }
        let with = self.parameters(item, operation);
        let body = self.body(item, operation);
        Some(ApiRequest { operation: operation.id, with, body })
    }

    fn parameters(&mut self, item: &At<ActionFile>, operation: &UserRequest) -> BTreeMap<String, String> {
        let mut with = BTreeMap::new();
        for (name, value) in &item.with {
            let Some(parameter) = operation.parameter(name) else {
                let what = format!("parameter of `{}`", operation.id);
                self.unknown(&value.span, &what, name, operation.with.iter().map(|parameter| parameter.name));
                continue;
            };
            if let Some(text) = self.parameter(value, parameter) {
                with.insert(name.clone(), text);
            }
        }
        for parameter in operation.with.iter().filter(|parameter| parameter.needed) {
            if !item.with.contains_key(parameter.name) {
                let name = parameter.name;
                let words = match parameter.words.first() {
                    Some(word) => format!("add `with: {{{name}: {word}}}`"),
                    None => format!("add `with: {{{name}: ..}}`"),
                };
                self.refuse(&item.act.span, format!("`{}` needs `{name}`", operation.id), "it is missing", words);
            }
        }
        with
    }

    fn parameter(&mut self, value: &At<Value>, parameter: &Parameter) -> Option<String> {
        let text = match &value.value {
            Value::String(text) => text.clone(),
            Value::Bool(_) | Value::Number(_) => value.value.to_string(),
            _ => {
                self.refuse(&value.span, "a parameter is a text", "not a text", "write a text or a number");
                return None;
            }
        };
        if !parameter.words.is_empty() && !parameter.words.contains(&text.as_str()) {
            let what = format!("value of `{}`", parameter.name);
            self.unknown(&value.span, &what, &text, parameter.words.iter().copied());
            return None;
        }
        Some(text)
    }

    fn body(&mut self, item: &At<ActionFile>, operation: &UserRequest) -> Option<Value> {
        let id = operation.id;
        match (&item.body, operation.body) {
            (None, Wants::Nothing) => None,
            (Some(body), Wants::Nothing) => {
                self.refuse(&body.span, format!("`{id}` takes no body"), "not used here", "remove it");
                None
            }
            (None, Wants::Object(spec)) => {
                let message = format!("`{id}` needs a body (`{}`)", spec.name);
                self.refuse(&item.act.span, message, "it is missing", "add `body: {..}`");
                None
            }
            (None, Wants::Text) => {
                self.refuse(
                    &item.act.span,
                    format!("`{id}` needs a body, a text"),
                    "it is missing",
                    "add `body: \"..\"`",
                );
                None
            }
            (Some(body), Wants::Object(spec)) => {
                if let Err(misfit) = fits(&body.value, spec) {
                    self.misfit(&body.span, &misfit);
                }
                Some(body.value.clone())
            }
            (Some(body), Wants::Text) => {
                if !body.value.is_string() {
                    self.refuse(&body.span, format!("the body of `{id}` is a text"), "not a text", "put it in quotes");
                }
                Some(body.value.clone())
            }
        }
    }

    /// What is said in the words of the REST API has no form over Kubernetes.
    pub(super) fn params_over_kube(&mut self, file: &ScenarioFile) {
        let clusters = file.cluster.iter().chain(file.clusters.iter().flatten());
        let of_clusters = clusters.flat_map(|cluster| cluster.params.values());
        let of_infra_env = file.infra_env.iter().flat_map(|env| env.params.values());
        for value in of_clusters.chain(of_infra_env).collect::<Vec<_>>() {
            let why = "over Kubernetes nothing is said in the words of the REST API";
            let help = "remove it, and write `apply-resource` or `patch-resource`, or ask over REST";
            self.refuse(&value.span, why, "not used here", help);
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use crate::{Catalogue, SourceFile, load};

    fn read(params: &str, action: &str, kube: bool) -> Result<crate::Scenario, String> {
        let api = if kube { "api: kube\n" } else { "" };
        let text = format!(
            "version: 1\nname: t\n{api}cluster: {{topology: sno{params}}}\nhosts: [{{name: n}}]\nactions:\n- {{{action}, at: 5m}}\n"
        );
        load(&SourceFile::new("t.yaml", text), &Catalogue::embedded()).map_err(|error| error.to_string())
    }

    #[rstest]
    #[case::of_a_host("do: request, operation: v2UpdateHost, host: n-0, body: {host_name: x}")]
    #[case::of_the_only_cluster("do: request, operation: V2GetCredentials")]
    #[case::of_the_service("do: request, operation: v2ListComponentVersions")]
    #[case::with_a_parameter("do: request, operation: V2DownloadClusterFiles, with: {file_name: master.ign}")]
    #[case::a_text("do: request, operation: V2UpdateClusterUISettings, body: x")]
    fn what_the_api_has_can_be_asked_for(#[case] action: &str) {
        let scenario = read(", params: {olm_operators: [{name: lvm}], tags: a}", action, false).unwrap();
        assert_eq!(scenario.clusters[0].params.len(), 2);
        assert!(scenario.actions[0].request.is_some());
    }

    #[rstest]
    #[case::a_key_of_its_own(
        ", params: {base_dns_domain: x}",
        "do: install",
        "write `base_domain`, outside of `params`"
    )]
    #[case::of_the_lab(", params: {pull_secret: x}", "do: install", "`pull_secret` is said by the lab itself")]
    #[case::no_member(", params: {tagz: x}", "do: install", "did you mean `tags`?")]
    #[case::of_another_type(", params: {schedulable_masters: x}", "do: install", "it is `true` or `false`")]
    #[case::no_operation("", "do: request", "`request` asks for nothing")]
    #[case::unknown("", "do: request, operation: V2UpdateClustr, hosts: all", "did you mean `V2UpdateCluster`")]
    #[case::of_a_host_without("", "do: request, operation: v2UpdateHost, body: {}", "`request` needs hosts")]
    #[case::without_its_body(
        "",
        "do: request, operation: V2UpdateCluster",
        "needs a body (`v2-cluster-update-params`)"
    )]
    #[case::with_a_body("", "do: request, operation: V2GetCredentials, body: {}", "takes no body")]
    #[case::no_text("", "do: request, operation: v2UpdateClusterInstallConfig, body: {a: 1}", "is a text")]
    #[case::without_a_parameter("", "do: request, operation: V2DownloadClusterFiles", "needs `file_name`")]
    #[case::another_parameter(
        "",
        "do: request, operation: V2GetCredentials, with: {a: b}",
        "there is no parameter of `V2GetCredentials` `a`"
    )]
    #[case::another_value(
        "",
        "do: request, operation: V2DownloadClusterFiles, with: {file_name: mastr.ign}",
        "did you mean `master.ign`"
    )]
    #[case::of_another_action("", "do: install, operation: V2GetCredentials", "`install` does not take this")]
    fn what_it_has_not_is_refused(#[case] params: &str, #[case] action: &str, #[case] words: &str) {
        let error = read(params, action, false).unwrap_err();
        assert!(error.contains(words), "{error}");
        assert_eq!(error.matches('×').count(), 1, "{error}");
    }

    #[rstest]
    #[case(", params: {tags: a}", "do: install")]
    #[case("", "do: request, operation: V2GetCredentials")]
    fn over_kubernetes_there_are_no_words_of_the_api(#[case] params: &str, #[case] action: &str) {
        let error = read(params, action, true).unwrap_err();
        assert!(error.contains("ask over REST"), "{error}");
    }
}
