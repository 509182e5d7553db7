//! What goes wrong on purpose: when, to whom, and with which parameters.

use std::collections::BTreeMap;

use super::hosts::RESERVED;
use super::subject::who;
use super::{Checker, Known, Place};
use crate::faults::{
    FaultRow, Given, HostInjection, Injection, NetworkInjection, ParamDefault, ParamRow, Parameters, ServiceInjection,
    TargetForm,
};
use crate::file::{FaultFile, FaultTargetFile, FaultTimeFile, FaultWhoFile};
use crate::spanned::{At, Complaint, Plain, Scalar, Text};
use crate::time::Span;
use crate::types::{ActionTime, Fault, FaultTarget, Host, Seen, Subject, WantedHosts};
use crate::words::{Lasting, RoleName, WhichReplica};

/// What stands under `with`, for the table of faults to read.
struct With<'r, 'c> {
    checker: &'r mut Checker<'c>,
    item: &'r At<FaultFile>,
    row: &'static FaultRow,
    hosts: &'r [Host],
}

impl Parameters for With<'_, '_> {
    fn text(&mut self, row: &'static ParamRow) -> Given {
        if let Some(given) = self.item.with.get(row.name) {
            return Given::Text(match &given.value {
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            });
        }
        match row.default {
            ParamDefault::Is(default) => Given::Text(default.to_owned()),
            ParamDefault::Nothing => Given::Nothing,
            ParamDefault::Needed => {
                self.checker.refuse(
                    &self.item.inject.span,
                    format!("`{}` needs `{}`: {}", self.row.word, row.name, row.purpose),
                    format!("`{}` is missing", row.name),
                    format!("add `with: {{{}: ..}}`", row.name),
                );
                Given::Refused
            }
        }
    }

    fn hosts(&self) -> Vec<String> {
        self.hosts.iter().map(|host| host.name.clone()).collect()
    }

    fn refuse(&mut self, row: &'static ParamRow, complaint: Complaint) {
        let place = self.item.with.get(row.name).map_or(&self.item.span, |given| &given.span);
        self.checker.refuse(place, complaint.message, complaint.label, complaint.help);
    }
}

impl Checker<'_> {
    pub(super) fn faults(&mut self, faults: &[At<FaultFile>], known: &Known<'_>) -> Vec<Fault> {
        let mut names: BTreeMap<&str, &Place> = BTreeMap::new();
        for fault in faults {
            self.label_name(&fault.name, "the fault's name", 63);
            if let Some(first) = names.insert(&fault.name.text, &fault.name.span) {
                self.refuse(
                    &fault.name.span,
                    format!("two faults are named `{}`", fault.name.text),
                    "the second one",
                    "give each fault a `name` of its own",
                );
                self.also(first, "the first one");
            }
        }
        faults.iter().filter_map(|fault| self.fault(fault, known)).collect()
    }

    fn fault(&mut self, item: &At<FaultFile>, known: &Known<'_>) -> Option<Fault> {
        let row = self.read(&item.inject);
        let when = self.fault_time(item, known);
        let target = self.fault_target(&item.target, known);
        let lasts = self.read_option(&item.lasts);
        let until = item.until.as_ref().map(|u| self.observation(u, known));
        let row = row?;
        if row.needs_real_time() && !known.real_time {
            self.refuse(
                &item.inject.span,
                format!("`{}` does not exist in virtual time, and the scenario does not ask for real time", row.word),
                "needs real time",
                "add `real-time` to `needs`",
            );
        }
        if row.needs_hub() && !known.kube {
            self.refuse(
                &item.inject.span,
                format!("`{}` hits the API server of a hub, and the service is asked over REST here", row.word),
                "no hub",
                "add `api: kube` to the scenario",
            );
        }
        self.fault_end(item, row);
        let injection = self.injection(item, row, known);
        let (target, form) = target?;
        if !row.targets.contains(&form) {
            let words: Vec<&str> = row.targets.iter().map(|t| t.words()).collect();
            self.refuse(
                &item.target.span,
                format!("`{}` cannot hit {}", row.word, form.words()),
                "not possible",
                format!("it hits {}", words.join(" or ")),
            );
            return None;
        }
        self.fault_fits(item, injection.as_ref()?, &target, known);
        Some(Fault {
            name: item.name.text.clone(),
            injection: injection?,
            when: when?,
            target,
            lasts,
            until: match until {
                None => None,
                Some(moment) => Some(moment?),
            },
            line: self.line(&item.span),
        })
    }

    fn fault_end(&mut self, item: &At<FaultFile>, row: &FaultRow) {
        if let (Some(a), Some(b)) = (&item.lasts, &item.until) {
            self.refuse(&b.span, "`for` and `until` cannot be used together", "the second one", "keep one of them");
            self.also(&a.span, "the first one");
        }
        let end = item.lasts.as_ref().map(|t| &t.span).or(item.until.as_ref().map(|u| &u.span));
        if let (Lasting::Moment, Some(end)) = (row.lasts, end) {
            self.refuse(end, format!("`{}` is over at once", row.word), "not used here", "remove it");
        }
    }

    /// Some kinds make sense only beside what is hit.
    fn fault_fits(&mut self, item: &At<FaultFile>, injection: &Injection, target: &FaultTarget, known: &Known<'_>) {
        if let (Some(other), FaultTarget::Hosts(WantedHosts { of: Subject::Hosts(names), .. })) =
            (injection.other_host(), target)
            && names.contains(&other.0)
        {
            let place = item.with.get("of").map_or(&item.span, |v| &v.span);
            self.refuse(
                place,
                format!("`{}` is a target of this fault itself", other.0),
                "the same host",
                "name another host",
            );
        }
        if let (Injection::Host(HostInjection::DuplicateId { of }), FaultTarget::Hosts(hit)) = (injection, target) {
            // Each cluster has an infra-env of its own, and so has the pool: elsewhere the id is another host's.
            let is_hit = |host: &&Host| match &hit.of {
                Subject::Hosts(names) => names.contains(&host.name),
                Subject::Role { cluster, .. } => known.member.get(host.name.as_str()) == Some(&Some(cluster)),
                Subject::Cluster(_) | Subject::Run => false,
            };
            let home = known.hosts.iter().find(|host| host.name == of.0).map(|host| &host.cluster);
            if let Some(apart) = known.hosts.iter().filter(is_hit).find(|host| Some(&host.cluster) != home) {
                let place = item.with.get("of").map_or(&item.span, |v| &v.span);
                let why = format!("`{}` and `{}` are not of the same cluster", of.0, apart.name);
                let help = format!("name a host of the cluster of `{}`", apart.name);
                self.refuse(place, why, "an id is one in its infra-env", help);
            }
        }
        if known.replicas == 1
            && let Injection::Service(
                ServiceInjection::ServiceRestart { replica: WhichReplica::Other, .. }
                | ServiceInjection::ServiceKill { replica: WhichReplica::Other, .. }
                | ServiceInjection::ServicePause { replica: WhichReplica::Other },
            ) = injection
        {
            let place = item.with.get("replica").map_or(&item.span, |v| &v.span);
            let help = "add `service: {replicas: 2}`, or remove it";
            self.refuse(place, "the service has no other replica", "there is one only", help);
        }
        if let (Injection::Network(NetworkInjection::VipTaken { .. }), FaultTarget::Cluster(name)) = (injection, target)
            && known.clusters.iter().any(|c| c.name == *name && c.api_vips.is_empty())
        {
            self.refuse(
                &item.target.span,
                format!("the cluster `{name}` has no virtual addresses to take"),
                "no VIPs",
                "use a cluster of several nodes with `api_vips` and `ingress_vips`",
            );
        }
    }

    fn fault_time(&mut self, item: &At<FaultFile>, known: &Known<'_>) -> Option<ActionTime> {
        let then = self.read_option(&item.then);
        match &item.at.value {
            FaultTimeFile::Time(text) => {
                if let Some(then) = &item.then {
                    self.refuse(
                        &then.span,
                        "`then` only goes with something that is seen",
                        "`at` is a time",
                        "add the two times up in `at`",
                    );
                }
                match <Span as Scalar>::read(text) {
                    Ok(span) => Some(ActionTime::At(span)),
                    Err(c) => {
                        let help = format!("{}; or write what must be seen: `at: {{host: .., status: ..}}`", c.help);
                        self.refuse(&item.at.span, c.message, c.label, help);
                        None
                    }
                }
            }
            FaultTimeFile::Seen(seen) => {
                let moment = self.observed(seen, &item.at.span, known)?;
                if matches!(&moment.seen, Seen::Fault { name, .. } if *name == item.name.text) {
                    self.refuse(&item.at.span, "this fault waits for itself", "its own name", "name another fault");
                }
                Some(ActionTime::After { moment, then: then.unwrap_or(Span::ZERO) })
            }
        }
    }

    fn fault_target(&mut self, item: &At<FaultTargetFile>, known: &Known<'_>) -> Option<(FaultTarget, TargetForm)> {
        let place = &item.span;
        let who = match &item.value {
            FaultTargetFile::Name(name) => return self.named_target(name, place, known),
            FaultTargetFile::Who(who) => who,
        };
        if let Some(between) = &who.between {
            return self.link(who, between, known);
        }
        let subject = self.subject(who!(who), known)?;
        let choose = match &who.choose {
            None => None,
            Some(n) => {
                let most = match &subject {
                    Some(Subject::Hosts(names)) => names.len(),
                    _ => known.hosts.len(),
                };
                let most = i64::try_from(most).unwrap_or(i64::MAX);
                Some(self.number(n, "the number of hosts to choose", 1, most).and_then(|n| u32::try_from(n).ok())?)
            }
        };
        match subject {
            Some(of @ (Subject::Hosts(_) | Subject::Role { .. })) => {
                Some((FaultTarget::Hosts(WantedHosts { of, choose }), TargetForm::Hosts))
            }
            Some(Subject::Cluster(name)) => Some((FaultTarget::Cluster(name), TargetForm::Cluster)),
            Some(Subject::Run) | None => {
                self.refuse(
                    place,
                    "no target is named",
                    "which target?",
                    "add `host`, `hosts`, `role`, `cluster` or `between`",
                );
                None
            }
        }
    }

    /// A target that is one word: a host, a group, a cluster, or a part of the lab.
    fn named_target(&mut self, name: &str, place: &Place, known: &Known<'_>) -> Option<(FaultTarget, TargetForm)> {
        let hosts = |of| Some((FaultTarget::Hosts(WantedHosts { of, choose: None }), TargetForm::Hosts));
        let members = known.hosts.iter().filter(|h| h.group == name || name == "all");
        let of_group: Vec<String> = members.map(|h| h.name.clone()).collect();
        if known.hosts.iter().any(|h| h.name == name) {
            return hosts(Subject::Hosts(vec![name.to_owned()]));
        } else if !of_group.is_empty() {
            return hosts(Subject::Hosts(of_group));
        }
        match name {
            "bootstrap" => {
                let cluster = self.the_cluster(None, place, known)?.name.clone();
                return hosts(Subject::Role { role: RoleName::Bootstrap, cluster });
            }
            "control-plane" => {
                let cluster = self.the_cluster(None, place, known)?.name.clone();
                return Some((FaultTarget::Cluster(cluster), TargetForm::Cluster));
            }
            "service" => return Some((FaultTarget::Service, TargetForm::Service)),
            "postgres" => return Some((FaultTarget::Postgres, TargetForm::Postgres)),
            "gateway" => return Some((FaultTarget::Gateway, TargetForm::Gateway)),
            "kube" => return Some((FaultTarget::Kube, TargetForm::Kube)),
            _ => {}
        }
        if known.clusters.iter().any(|c| c.name == name) {
            return Some((FaultTarget::Cluster(name.to_owned()), TargetForm::Cluster));
        }
        let names = known.hosts.iter().map(|h| h.name.as_str()).chain(known.groups.iter().copied());
        let names = names.chain(RESERVED.iter().copied().filter(|n| *n != "none"));
        let names = names.chain(known.clusters.iter().map(|c| c.name.as_str()));
        self.unknown(place, "target of a fault", name, names);
        None
    }

    /// The way between two hosts or groups.
    fn link(
        &mut self,
        who: &FaultWhoFile,
        between: &At<Vec<Text<Plain>>>,
        known: &Known<'_>,
    ) -> Option<(FaultTarget, TargetForm)> {
        let others = [
            who.host.as_ref().map(|t| &t.span),
            who.hosts.as_ref().map(|t| &t.span),
            who.role.as_ref().map(|t| &t.span),
            who.cluster.as_ref().map(|t| &t.span),
            who.choose.as_ref().map(|t| &t.span),
        ];
        if let Some(other) = others.into_iter().flatten().next() {
            self.refuse(other, "`between` cannot be combined with other keys", "not used here", "remove it");
            return None;
        }
        let [from, to] = between.as_slice() else {
            self.refuse(
                &between.span,
                "a link has two ends",
                format!("{} here", between.len()),
                "write two names of hosts or groups: `between: [master-0, worker]`",
            );
            return None;
        };
        let (from, to) = (self.end_of_link(from, known), self.end_of_link(to, known));
        let (from, to) = (from?, to?);
        if from == to && from.len() == 1 {
            self.refuse(&between.span, "a link has two ends", "the same host twice", "name two hosts");
            return None;
        }
        Some((FaultTarget::Link { from, to }, TargetForm::Link))
    }

    fn end_of_link(&mut self, text: &Text<Plain>, known: &Known<'_>) -> Option<Vec<String>> {
        let is = |h: &&Host| h.name == text.text || h.group == text.text || text.text == "all";
        let names: Vec<String> = known.hosts.iter().filter(is).map(|h| h.name.clone()).collect();
        if names.is_empty() {
            let known = known.hosts.iter().map(|h| h.name.as_str()).chain(known.groups.iter().copied());
            self.unknown(&text.span, "host or group", &text.text, known.chain(["all"]));
            return None;
        }
        Some(names)
    }

    /// What the fault does, with all that stands under `with`. Unknown parameters are refused, and so are those that cannot be read.
    fn injection(&mut self, item: &At<FaultFile>, row: &'static FaultRow, known: &Known<'_>) -> Option<Injection> {
        let mut good = true;
        for (name, value) in &item.with {
            if !row.all_params().any(|p| p.name == name) {
                let what = format!("parameter of `{}`", row.word);
                self.unknown(&value.span, &what, name, row.all_params().map(|p| p.name));
                if row.all_params().next().is_none() {
                    self.set_help(format!("`{}` takes no parameters", row.word));
                }
                good = false;
            }
        }
        let injection = (row.read)(&mut With { checker: self, item, row, hosts: known.hosts });
        injection.filter(|_| good)
    }
}
