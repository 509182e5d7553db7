//! The service over Kubernetes, in virtual time: scenarios that are driven by resources, things that go wrong at the API server, deletion in
//! every order, and that controllers come to rest.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request};
use vlab_drive::hub::HubEnd;
use vlab_drive::prepare::{Choices, HubChoice, Nowhere, PrepareError, Prepared, prepare};
use vlab_drive::simulate::{Whole, as_lines, run_whole};
use vlab_judge::result::CheckVerdict;
use vlab_kube::{Memory, Options, WatchId};
use vlab_model::history::{ConditionStatus, FaultPhase, ResourceState, What};
use vlab_scenario::{Catalogue, FrontDoor, HostKind, SourceFile};
use vlab_service::kube::{Door, DoorConfig, Kind, definitions};
use vlab_service::{Core, CoreConfig, Snapshot};

/// More than any of these runs needs.
const STEPS: u64 = 100_000;

fn try_prepared(scenario: &str) -> Result<Prepared, PrepareError> {
    with(scenario, "")
}

/// A scenario of the catalogue with more lines.
fn with(scenario: &str, more: &str) -> Result<Prepared, PrepareError> {
    let catalogue = Catalogue::discover().unwrap();
    let source = catalogue.find(scenario).unwrap();
    let text = String::from_utf8_lossy(&source.bytes);
    let door = if text.contains("\napi: kube\n") { "" } else { "api: kube\n" };
    let text = format!("{text}\n{door}{more}");
    // What has no form as resources is to be found when it is prepared.
    let (text, api) = match more.is_empty() {
        true => (source.bytes.clone(), Some(FrontDoor::Kube)),
        false => (text.into_bytes(), None),
    };
    let source = SourceFile { bytes: text, ..source };
    let scenario = vlab_scenario::load(&source, &catalogue).unwrap_or_else(|error| panic!("{error}"));
    let choices = Choices {
        seed: Some(1),
        time_profile: Some("fast".to_owned()),
        hosts: Some(HostKind::Simulated),
        api,
        ..Choices::default()
    };
    prepare(scenario, &catalogue, &choices, &Nowhere)
}

fn prepared(scenario: &str) -> Prepared {
    try_prepared(scenario).unwrap()
}

fn passes(whole: &Whole) {
    let failed = whole.result.checks.iter().filter(|c| c.verdict == CheckVerdict::Failed);
    let failed: Vec<String> = failed.map(|c| format!("{}: {}", c.name, c.message)).collect();
    assert_eq!((whole.result.exit_code, failed), (0, vec![]));
}

/// The same scenario as over REST, with the same checks.
#[rstest]
#[case("sno")]
#[case("ha-3-2")]
#[case("late-binding")]
#[case("hold-and-approve")]
#[case("day-2-worker")]
#[case("static-bond")]
#[case("vips-given-late")]
#[case("insufficient-hardware")]
#[case("service-down-while-installing")]
#[case("bound-and-unbound")]
fn a_scenario_passes_over_kubernetes(#[case] scenario: &str) {
    passes(&run_whole(&prepared(scenario), STEPS));
}

#[test]
fn resources_say_what_rows_say() {
    let prepared = prepared("ha-3-2");
    let whole = run_whole(&prepared, STEPS);
    let hub = whole.hub.unwrap();
    let aci = hub.of(Kind::AgentClusterInstall).next().unwrap();
    assert_eq!(aci["status"]["debugInfo"]["state"], "adding-hosts");
    for (kind, is) in [
        ("SpecSynced", "True SyncOK"),
        ("Validated", "True ValidationsPassing"),
        ("RequirementsMet", "True ClusterAlreadyInstalling"),
        ("Completed", "True InstallationCompleted"),
        ("Failed", "False InstallationNotFailed"),
        ("Stopped", "True InstallationCompleted"),
    ] {
        assert_eq!(HubEnd::condition(aci, kind), is, "{kind}");
    }
    let cd = hub.of(Kind::ClusterDeployment).next().unwrap();
    assert_eq!(
        (&cd["spec"]["installed"], &cd["spec"]["clusterMetadata"]),
        (&json!(true), &aci["spec"]["clusterMetadata"])
    );
    let agents: Vec<&Value> = hub.of(Kind::Agent).collect();
    assert_eq!(agents.len(), 5);
    for agent in agents {
        assert_eq!(HubEnd::condition(agent, "Installed"), "True InstallationCompleted");
        assert_eq!(HubEnd::condition(agent, "Bound"), "True Bound");
        assert_eq!(agent["status"]["debugInfo"]["state"], "installed");
        assert_eq!(agent["metadata"]["annotations"]["agent.agent-install.openshift.io/state"], "installed");
    }
    let secrets: Vec<&str> = hub.of(Kind::Secret).filter_map(|s| s["metadata"]["name"].as_str()).collect();
    assert!(secrets.contains(&"ha-admin-kubeconfig") && secrets.contains(&"ha-admin-password"), "{secrets:?}");
    // Nobody finds the pull secret in a status or in the history.
    let secret = prepared.pull_secret.as_str();
    let told: Vec<String> = hub.objects.iter().map(|(_, object)| object["status"].to_string()).collect();
    assert!(told.iter().all(|status| !status.contains(secret)));
    assert!(!as_lines(&whole.history).contains(secret));
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let prepared = prepared("sno");
    let lines = || as_lines(&run_whole(&prepared, STEPS).history);
    assert!(lines() == lines());
}

/// Whatever goes wrong at the API server: the installation comes to its end, and resources say what rows say.
#[rstest]
#[case::conflict_at_the_finalizer("kube-conflict", "resource: AgentClusterInstall, verb: update, part: spec")]
#[case::conflict_at_the_owner("kube-conflict", "resource: AgentClusterInstall, verb: update, part: spec, after: 1")]
#[case::conflict_at_the_metadata("kube-conflict", "resource: AgentClusterInstall, verb: update, part: spec, after: 2")]
#[case::conflict_at_a_status("kube-conflict", "resource: AgentClusterInstall, verb: update, part: status, after: 4")]
#[case::conflict_at_an_agent("kube-conflict", "resource: Agent, verb: update, after: 5, times: 3")]
#[case::status_refused("kube-error", "resource: Agent, verb: update, part: status, status: 500, after: 3")]
#[case::agent_not_made_at_once("kube-error", "resource: Agent, verb: create, part: spec")]
#[case::no_quota_for_the_kubeconfig("kube-quota", "resource: Secret, after: 1")]
#[case::event_twice("kube-event-twice", "resource: Agent, after: 2")]
#[case::event_late("kube-event-late", "resource: AgentClusterInstall, after: 3, by: 2m")]
#[case::watch_cut("kube-watch-expired", "resource: InfraEnv, after: 1")]
#[case::watch_closed("kube-watch-closed", "resource: Agent, after: 1")]
#[case::stale("kube-stale", "resource: Agent, by: 1m")]
#[case::webhook_times_out("kube-webhook", "resource: AgentClusterInstall, times: 3")]
#[case::webhook_is_away("kube-webhook", "resource: Agent, failure: unavailable, times: 5")]
#[case::restart_behind_the_installation("kube-restart", "resource: AgentClusterInstall, after: 3, times: 2")]
#[case::restart_behind_a_host("kube-restart", "resource: Agent, down: 8s")]
#[case::restart_behind_the_kubeconfig("kube-restart", "resource: Secret, after: 1")]
#[case::restart_at_once("kube-restart", "down: 1s")]
#[case::clock_ahead("kube-clock", "by: 10h")]
#[case::clock_behind("kube-clock", "by: 10h, direction: behind")]
fn it_is_installed_all_the_same(#[case] inject: &str, #[case] about: &str) {
    let fault = format!("faults:\n  - {{name: it, at: 0s, target: kube, inject: {inject}, with: {{{about}}}}}\n");
    let whole = run_whole(&with("kube-sno", &fault).unwrap(), STEPS);
    passes(&whole);
    let did = |what: &What| matches!(what, What::Fault { phase: FaultPhase::Effect, .. });
    assert!(whole.history.iter().any(|o| did(&o.what)), "{inject} never happened");
    let hub = whole.hub.unwrap();
    let aci = hub.of(Kind::AgentClusterInstall).next().unwrap();
    assert_eq!(HubEnd::condition(aci, "Completed"), "True InstallationCompleted");
    let agent = hub.of(Kind::Agent).next().unwrap();
    assert_eq!(HubEnd::condition(agent, "Installed"), "True InstallationCompleted");
}

/// What the user mistypes is refused in the API server's own words, with the line of the action, and not dropped in silence.
#[rstest]
#[case::patched(
    "{do: patch-resource, cluster: sno, patch: {spec: {holdInstalation: false}}, after: {host: node-0, status: discovering}}",
    "refused with 422:  \"\" is invalid: patch: Invalid value: \"…\": strict decoding error: unknown field \"spec.holdInstalation\""
)]
#[case::applied(
    "{do: apply-resource, cluster: sno, object: {kind: ConfigMap, metadata: {name: m}, date: {}}, after: {host: node-0, status: discovering}}",
    "refused with 500: failed to create typed patch object (sno/m; v1, Kind=ConfigMap): .date: field not declared in schema"
)]
fn what_the_user_mistypes_is_refused_with_its_line(#[case] action: &str, #[case] words: &str) {
    let whole = run_whole(&with("sno", &format!("actions:\n  - {action}\n")).unwrap(), STEPS);
    let check = whole.result.checks.iter().find(|c| c.name.starts_with("user: ")).unwrap();
    assert_eq!(check.verdict, CheckVerdict::Failed);
    assert!(check.message.starts_with(words), "{}", check.message);
    assert!(check.message.ends_with(" of the scenario)"), "{}", check.message);
}

/// Without its lease the service ends, is started again, and its controllers go on once they have it.
#[rstest]
#[case("kube-sno", false)]
#[case("kube-lease-taken", true)]
#[case("kube-lease-not-renewed", true)]
#[case("kube-lease-answered-late", true)]
#[case("kube-api-server-down", true)]
fn a_service_that_loses_its_lease_is_started_again(#[case] scenario: &str, #[case] loses: bool) {
    let whole = run_whole(&prepared(scenario), STEPS);
    passes(&whole);
    let noted =
        |words: &str| whole.history.iter().any(|o| matches!(&o.what, What::Note { text } if text.contains(words)));
    assert_eq!((noted("leader election lost"), noted("the service is up again")), (loses, loses));
}

/// Every change of every resource is in the history, with its version.
#[test]
fn the_history_has_every_change_of_a_resource() {
    let rest = "until:\n  seen: [{cluster: sno, status: adding-hosts}]\n  then: 30m\n";
    let whole = run_whole(&with("sno", rest).unwrap(), STEPS);
    let versions = |wanted: &str| -> Vec<(u64, ResourceState)> {
        let all = whole.history.iter().filter_map(|o| match &o.what {
            What::Resource { kind, version, is, .. } if kind == wanted => Some((*version, *is)),
            _ => None,
        });
        all.collect()
    };
    for kind in [Kind::AgentClusterInstall, Kind::Agent, Kind::ClusterDeployment, Kind::InfraEnv] {
        let told = versions(kind.name());
        assert_eq!(told.first().map(|(_, is)| *is), Some(ResourceState::There), "{}", kind.name());
        let object = whole.hub.as_ref().unwrap().of(kind).next().unwrap();
        let last = object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
        assert!(told.iter().any(|(version, _)| *version == last), "{}: {told:?} without {last}", kind.name());
    }
    let completed = whole.history.iter().any(|o| match &o.what {
        What::Resource { conditions, .. } => {
            conditions.get("Completed").is_some_and(|c| c.as_ref().is_some_and(|c| c.status == ConditionStatus::True))
        }
        _ => false,
    });
    assert!(completed);
}

#[rstest]
#[case("reset", "has no form over Kubernetes")]
#[case("cancel", "`cancel` has no form over Kubernetes")]
#[case("vips-by-dhcp", "leases its VIPs by DHCP")]
fn what_has_no_form_as_resources_is_refused_by_name(#[case] scenario: &str, #[case] words: &str) {
    let error = try_prepared(scenario).unwrap_err().to_string();
    assert!(error.contains(words), "{error}");
}

/// Over REST there is none of it; the scenario itself says so where no word of it does.
#[rstest]
#[case("kube-approved-late", "it needs `kube`")]
#[case("kube-sno", "leave `--api rest` out")]
fn what_there_is_only_on_a_hub_is_refused_over_rest(#[case] scenario: &str, #[case] words: &str) {
    let catalogue = Catalogue::discover().unwrap();
    let source = catalogue.find(scenario).unwrap();
    let scenario = vlab_scenario::load(&source, &catalogue).unwrap();
    let choices = Choices { api: Some(FrontDoor::Rest), hosts: Some(HostKind::Simulated), ..Choices::default() };
    let error = prepare(scenario, &catalogue, &choices, &Nowhere).unwrap_err().to_string();
    assert!(error.contains(words), "{error}");
}

/// Whom the scenario approves, the user does not approve before.
#[test]
fn a_host_that_an_action_approves_waits_for_it() {
    let whole = run_whole(&prepared("kube-approved-late"), STEPS);
    passes(&whole);
    let approvals = whole
        .history
        .iter()
        .filter(|o| matches!(&o.what, What::UserAction { action, .. } if action.to_string() == "approve"));
    assert_eq!(approvals.count(), 1);
    let agent = whole.hub.unwrap();
    assert_eq!(agent.of(Kind::Agent).next().unwrap()["spec"]["approved"], true);
}

/// The secret is given to the hub as such, and shown by nobody who is good.
#[rstest]
#[case::hidden("", CheckVerdict::Passed, "")]
#[case::shown(
    "vlab.test/shown: SECRET",
    CheckVerdict::Failed,
    "shows a pull secret in metadata.annotations.vlab.test/shown"
)]
fn a_secret_that_stands_in_an_annotation_is_noticed(
    #[case] annotation: &str,
    #[case] verdict: CheckVerdict,
    #[case] words: &str,
) {
    let pull: Value = serde_json::from_str(&prepared("sno").pull_secret).unwrap();
    let auth = pull["auths"]["quay.io"]["auth"].as_str().unwrap();
    let annotation = annotation.replace("SECRET", auth);
    let action = match annotation.is_empty() {
        true => String::new(),
        false => format!(
            "actions: [{{do: annotate, host: node-0, annotations: {{{annotation}}}, after: {{host: node-0, status: known}}}}]\n"
        ),
    };
    let prepared = with("sno", &format!("{action}tags: []\n").replace("tags: []\n", "")).unwrap();
    let whole = run_whole(&prepared, STEPS);
    let check = whole.result.checks.iter().find(|c| c.name.contains("secrets-hidden")).unwrap();
    assert_eq!(check.verdict, verdict, "{}", check.message);
    assert!(check.message.contains(words), "{}", check.message);
    assert!(!as_lines(&whole.history).contains(auth), "the history has it");
}

/// A service, its controllers and an API server, without users and hosts.
struct Bench {
    memory: Memory,
    core: Core,
    door: Door,
    now: Timestamp,
    watches: BTreeMap<WatchId, u64>,
}

impl Bench {
    fn new() -> Self {
        let prepared = prepared("sno");
        let now = Timestamp::from_secs(1_767_225_600);
        let config: CoreConfig = prepared.core_config("http://127.0.0.1:8090");
        let mut memory = Memory::new(Options::default(), now);
        memory.create_all(now, &definitions()).unwrap();
        let clusters = Some(Memory::URL.to_owned());
        let door = Door::new(DoorConfig { pace: 1.0, service: true, hive: true, metal3: true, clusters });
        let core = Core::new(config.clone(), Snapshot::default()).with_controllers();
        let image = config.settings.release_images.last().unwrap().url.clone();
        let mut bench = Self { memory, core, door, now, watches: BTreeMap::new() };
        bench.core.wake(now);
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull", "namespace": "default"},
                            "stringData": {".dockerconfigjson": prepared.pull_secret}});
        let set = json!({"apiVersion": "hive.openshift.io/v1", "kind": "ClusterImageSet", "metadata": {"name": "set"},
                         "spec": {"releaseImage": image}});
        let cd = json!({"apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
            "metadata": {"name": "c", "namespace": "default"},
            "spec": {"baseDomain": "example.com", "clusterName": "c", "platform": {}, "pullSecretRef": {"name": "pull"},
                     "clusterInstallRef": {"group": "extensions.hive.openshift.io", "version": "v1beta1",
                                           "kind": "AgentClusterInstall", "name": "c"}}});
        let aci = json!({"apiVersion": "extensions.hive.openshift.io/v1beta1", "kind": "AgentClusterInstall",
            "metadata": {"name": "c", "namespace": "default"},
            "spec": {"clusterDeploymentRef": {"name": "c"}, "imageSetRef": {"name": "set"},
                     "provisionRequirements": {"controlPlaneAgents": 1},
                     "networking": {"clusterNetwork": [{"cidr": "10.128.0.0/14", "hostPrefix": 23}],
                                    "serviceNetwork": ["172.30.0.0/16"]}}});
        let infra_env = json!({"apiVersion": "agent-install.openshift.io/v1beta1", "kind": "InfraEnv",
            "metadata": {"name": "c", "namespace": "default"},
            "spec": {"clusterRef": {"name": "c", "namespace": "default"}, "pullSecretRef": {"name": "pull"}}});
        // The InfraEnv first: its cluster is waited for.
        bench.memory.create_all(now, &[infra_env, aci, cd, secret, set]).unwrap();
        bench.settle(30);
        bench
    }

    /// Lets so many seconds pass.
    fn settle(&mut self, seconds: i64) {
        let end = Timestamp::from_secs(self.now.as_secs() + seconds);
        loop {
            self.door.wake(&mut self.core, self.now);
            self.exchange();
            let next = [self.core.next_wake(), self.door.next_wake(), self.memory.core.next_wake()];
            let next = next.into_iter().flatten().min().unwrap_or(end).max(self.now);
            if next >= end {
                self.now = end;
                return;
            }
            self.now = if next == self.now { next + Duration::from_millis(1) } else { next };
            self.core.wake(self.now);
            self.memory.core.wake(self.now);
        }
    }

    fn exchange(&mut self) {
        loop {
            let writes = self.core.take_writes();
            self.core.confirm();
            self.door.rows_changed(self.now, &writes);
            let asks = self.door.take_asks();
            let mut quiet = asks.is_empty();
            for ask in asks {
                if ask.watch {
                    let watch = self.memory.watch(self.now, &ask.request.path).unwrap();
                    self.watches.insert(watch, ask.tag);
                } else {
                    let answer = self.memory.handle_at(self.now, ask.server.as_deref(), &ask.request);
                    self.door.answered(&mut self.core, self.now, ask.tag, answer);
                }
            }
            for watch in self.memory.core.take_woken() {
                let Some(tag) = self.watches.get(&watch).copied() else { continue };
                let (events, over) = self.memory.poll_watch(self.now, watch);
                quiet &= events.is_empty() && !over;
                let events = events.into_iter().map(|event| (event.kind, event.object)).collect();
                self.door.told(&mut self.core, self.now, tag, events, over);
            }
            if quiet {
                return;
            }
        }
    }

    fn get(&mut self, kind: Kind) -> Value {
        let key = if kind.is_namespaced() { "default/c" } else { "set" };
        self.memory.get(self.now, &kind.path_of(key)).unwrap()
    }

    fn rest(&mut self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let request = Request::new(method, format!("/api/assisted-install/v2{path}")).json(body);
        let response = self.core.handle(self.now, &request);
        (response.status, response.decode().unwrap_or_default())
    }

    /// An agent registers; gives its host's id.
    fn register(&mut self) -> String {
        let url = self.get(Kind::InfraEnv)["status"]["debugInfo"]["eventsURL"].as_str().unwrap().to_owned();
        let id = url.split_once("infra_env_id=").unwrap().1.to_owned();
        let host = "11111111-2222-3333-4444-555555555555";
        let body = json!({"host_id": host, "discovery_agent_version": "a"});
        assert_eq!(self.rest(Method::Post, &format!("/infra-envs/{id}/hosts"), &body).0, 201);
        self.settle(5);
        host.to_owned()
    }
}

#[test]
fn six_resources_in_any_order_give_a_cluster_and_an_image() {
    let mut bench = Bench::new();
    let aci = bench.get(Kind::AgentClusterInstall);
    assert_eq!(HubEnd::condition(&aci, "SpecSynced"), "True SyncOK");
    assert_eq!(HubEnd::condition(&aci, "RequirementsMet"), "False ClusterNotReady");
    let infra_env = bench.get(Kind::InfraEnv);
    assert_eq!(HubEnd::condition(&infra_env, "ImageCreated"), "True InfraEnvAvailable");
    let (_, clusters) = bench.rest(Method::Get, "/clusters", &json!(null));
    assert_eq!((clusters.as_array().unwrap().len(), &clusters[0]["name"]), (1, &json!("c")));
    let host = bench.register();
    let agent = bench.memory.get(bench.now, &Kind::Agent.path_of(&format!("default/{host}"))).unwrap();
    assert_eq!(
        (&agent["spec"]["approved"], &agent["spec"]["clusterDeploymentName"]["name"]),
        (&json!(false), &json!("c"))
    );
    assert_eq!(agent["status"]["debugInfo"]["state"], "discovering");
}

/// Without input nothing is written, however long it takes.
#[test]
fn controllers_come_to_rest() {
    let mut bench = Bench::new();
    let (before, writes) = (bench.memory.versions(), bench.door.stats().writes);
    bench.settle(3600);
    assert_eq!(bench.memory.versions(), before);
    assert_eq!(bench.door.stats().writes, writes);
}

/// In every order all of them go, and nothing of them stays in the service.
#[rstest]
#[case(&[Kind::ClusterDeployment, Kind::InfraEnv])]
#[case(&[Kind::InfraEnv, Kind::ClusterDeployment])]
#[case(&[Kind::AgentClusterInstall, Kind::ClusterDeployment, Kind::InfraEnv])]
#[case(&[Kind::InfraEnv, Kind::AgentClusterInstall, Kind::ClusterDeployment])]
fn deletion_leaves_nothing(#[case] kinds: &[Kind], #[values(false, true)] at_once: bool) {
    let mut bench = Bench::new();
    bench.register();
    for kind in kinds {
        bench.memory.delete(bench.now, &kind.path_of("default/c")).unwrap();
        bench.settle(if at_once { 0 } else { 60 });
    }
    bench.settle(600);
    let left: Vec<String> = bench.memory.versions().into_keys().filter(|key| key.contains("default/")).collect();
    let left: Vec<&String> = left.iter().filter(|key| key.contains("openshift.io")).collect();
    assert_eq!(left, Vec::<&String>::new());
    for path in ["/clusters", "/infra-envs"] {
        assert_eq!(bench.rest(Method::Get, path, &json!(null)).1, json!([]), "{path}");
    }
}

/// What is wrong is told, and is right again once it is mended.
#[test]
fn a_spec_that_cannot_be_taken_says_why() {
    let mut bench = Bench::new();
    let path = Kind::AgentClusterInstall.path_of("default/c");
    bench.memory.merge(bench.now, &path, &json!({"spec": {"imageSetRef": {"name": "other"}}})).unwrap();
    bench.settle(30);
    let aci = bench.get(Kind::AgentClusterInstall);
    assert_eq!(HubEnd::condition(&aci, "SpecSynced"), "False BackendError");
    bench.memory.merge(bench.now, &path, &json!({"spec": {"imageSetRef": {"name": "set"}}})).unwrap();
    bench.settle(30);
    let aci = bench.get(Kind::AgentClusterInstall);
    assert_eq!(HubEnd::condition(&aci, "SpecSynced"), "True SyncOK");
}

/// The image comes once it has settled, and then nothing more happens.
#[test]
fn a_bare_metal_host_gets_the_image_of_its_infra_env() {
    let mut bench = Bench::new();
    let labels = json!({"infraenvs.agent-install.openshift.io": "c"});
    let bmh = json!({"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
                     "metadata": {"name": "c", "namespace": "default", "labels": labels},
                     "spec": {"online": false, "bootMACAddress": "52:54:00:00:00:01"}});
    bench.memory.create_all(bench.now, &[bmh]).unwrap();
    bench.settle(10);
    assert_eq!(bench.get(Kind::BareMetalHost)["spec"]["image"], json!(null), "the image is too young");
    bench.settle(60);
    let (bmh, infra_env) = (bench.get(Kind::BareMetalHost), bench.get(Kind::InfraEnv));
    let image = json!({"url": infra_env["status"]["isoDownloadURL"], "format": "live-iso"});
    assert_eq!((&bmh["spec"]["image"], &bmh["spec"]["online"]), (&image, &json!(true)));
    assert_eq!(bmh["status"]["provisioning"]["state"], "provisioned");
    let writes = bench.door.stats().writes;
    bench.settle(3600);
    assert_eq!(bench.door.stats().writes, writes);
    bench.memory.delete(bench.now, &Kind::BareMetalHost.path_of("default/c")).unwrap();
    bench.settle(10);
    assert!(bench.memory.get(bench.now, &Kind::BareMetalHost.path_of("default/c")).is_err());
}

/// Which API server goes with which service, and what there is only on the lab's own.
#[rstest]
#[case::one_that_is_there("kube-sno", "remote:http://192.0.2.1:8090", HubChoice::Existing("k".into()), HostKind::Simulated, "")]
#[case::with_a_service_of_the_run("kube-sno", "simulated", HubChoice::Existing("k".into()), HostKind::Simulated, "--service remote:http://HOST:PORT")]
#[case::a_service_without_its_hub(
    "kube-sno",
    "remote:http://192.0.2.1:8090",
    HubChoice::Ours,
    HostKind::Simulated,
    "--kubeconfig FILE"
)]
#[case::machines("kube-sno", "remote:http://192.0.2.1:8090", HubChoice::Existing("k".into()), HostKind::Vm, "use `--hosts sim`")]
#[case::over_rest("sno", "remote:http://192.0.2.1:8090", HubChoice::Existing("k".into()), HostKind::Simulated, "add `--api kube`")]
#[case::a_real_one("kube-sno", "simulated", HubChoice::Assets("a".into()), HostKind::Simulated, "")]
#[case::faults_of_a_real_one("kube-event-lost", "simulated", HubChoice::Assets("a".into()), HostKind::Simulated, "leave --hub-assets a out")]
#[case::in_a_container("kube-sno", "container:x", HubChoice::Ours, HostKind::Simulated, "")]
#[case::in_a_container_with_a_real_one("kube-sno", "container:x", HubChoice::Assets("a".into()), HostKind::Simulated, "leave `--hub-assets` out")]
#[case::in_a_container_with_machines("kube-sno", "container:x", HubChoice::Ours, HostKind::Vm, "use `--hosts sim`")]
fn which_api_server_a_run_may_have(
    #[case] scenario: &str,
    #[case] service: &str,
    #[case] hub: HubChoice,
    #[case] hosts: HostKind,
    #[case] refused: &str,
) {
    let catalogue = Catalogue::discover().unwrap();
    let scenario = vlab_scenario::load(&catalogue.find(scenario).unwrap(), &catalogue).unwrap();
    let service = Some(service.parse().unwrap());
    let choices = Choices { seed: Some(1), service, hub, hosts: Some(hosts), ..Choices::default() };
    match prepare(scenario, &catalogue, &choices, &Nowhere) {
        Ok(_) => assert_eq!(refused, ""),
        Err(error) => {
            let text = error.to_string();
            assert!(!refused.is_empty() && text.contains(refused), "{text}");
        }
    }
}
