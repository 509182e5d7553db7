//! What goes wrong on purpose.

use std::collections::BTreeMap;
use std::net::IpAddr;

use vlab_api::types::HostStage;

use super::hosts::RESERVED;
use super::subject::who;
use super::{Checker, Known, Place};
use crate::diagnostic::quoted;
use crate::faults::{FaultRow, OWN_STAGES, ParamForm, ParamRow, ParamValue, TargetForm, fault_row, operation_ids};
use crate::file::{FaultFile, FaultTargetFile, FaultTimeFile};
use crate::spanned::{At, Plain, Scalar, Text};
use crate::time::Span;
use crate::types::{ActionTime, Fault, FaultTarget, Host, Seen, Subject};
use crate::words::{FaultKind, Lasting, RoleName};

impl Checker<'_> {
    /// The shape is checked, so that files can be written ahead; running them waits for the engine.
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

    pub(super) fn fault(&mut self, item: &At<FaultFile>, known: &Known<'_>) -> Option<Fault> {
        let kind = self.read(&item.inject);
        let when = self.fault_time(item, known);
        let target = self.fault_target(&item.target, known);
        let lasts = self.read_option(&item.lasts);
        let until = item.until.as_ref().map(|u| self.observation(u, known));
        let row = fault_row(kind?);
        if row.needs_real_time() && !known.real_time {
            self.refuse(
                &item.inject.span,
                format!(
                    "`{}` has no form in virtual time, and the scenario does not say that it needs real time",
                    row.kind
                ),
                "needs real time",
                "add `real-time` to `needs`",
            );
        }
        if let (Some(a), Some(b)) = (&item.lasts, &item.until) {
            self.refuse(&b.span, "`for` and `until` are both there", "the second one", "a fault ends in one way");
            self.also(&a.span, "the first one");
        }
        let end = item.lasts.as_ref().map(|t| &t.span).or(item.until.as_ref().map(|u| &u.span));
        if let (Lasting::Moment, Some(end)) = (row.lasts, end) {
            self.refuse(end, format!("`{}` happens in a moment", row.kind), "of no use here", "remove it");
        }
        let with = self.fault_parameters(item, row, known);
        let (target, form) = target?;
        if !row.targets.contains(&form) {
            let words: Vec<&str> = row.targets.iter().map(|t| t.words()).collect();
            self.refuse(
                &item.target.span,
                format!("`{}` cannot hit {}", row.kind, form.words()),
                "not this",
                format!("it hits {}", words.join(" or ")),
            );
            return None;
        }
        // Some parameters make sense only beside what is hit.
        let other = match with.as_ref()?.get("of") {
            Some(ParamValue::Text(other)) => Some(other.clone()),
            _ => None,
        };
        if let (Some(other), FaultTarget::Hosts { of: Subject::Hosts(names), .. }) = (other, &target)
            && names.contains(&other)
        {
            let place = item.with.get("of").map_or(&item.span, |v| &v.span);
            self.refuse(place, format!("`{other}` is hit itself"), "the same host", "name another host");
        }
        if let (FaultKind::VipTaken, FaultTarget::Cluster(name)) = (row.kind, &target)
            && known.clusters.iter().any(|c| c.name == *name && c.api_vips.is_empty())
        {
            self.refuse(
                &item.target.span,
                format!("the cluster `{name}` has no virtual addresses that could be taken"),
                "none",
                "use a cluster of several nodes with `api_vips` and `ingress_vips`",
            );
        }
        Some(Fault {
            name: item.name.text.clone(),
            kind: row.kind,
            when: when?,
            target,
            lasts,
            until: match until {
                None => None,
                Some(moment) => Some(moment?),
            },
            with: with?,
            line: self.line(&item.span),
        })
    }

    pub(super) fn fault_time(&mut self, item: &At<FaultFile>, known: &Known<'_>) -> Option<ActionTime> {
        let then = self.read_option(&item.then);
        match &item.at.value {
            FaultTimeFile::Time(text) => {
                if let Some(then) = &item.then {
                    self.refuse(
                        &then.span,
                        "`then` goes with something that is seen",
                        "`at` is a time",
                        "add the two times up in `at`",
                    );
                }
                match <Span as Scalar>::read(text) {
                    Ok(span) => Some(ActionTime::At(span)),
                    Err(c) => {
                        let help = format!("{}; or say what must be seen: `at: {{host: .., status: ..}}`", c.help);
                        self.refuse(&item.at.span, c.message, c.label, help);
                        None
                    }
                }
            }
            FaultTimeFile::Seen(seen) => {
                let moment = self.observed(seen, &item.at.span, known)?;
                if matches!(&moment.seen, Seen::Fault { name, .. } if *name == item.name.text) {
                    self.refuse(&item.at.span, "it waits for itself", "its own name", "name another fault");
                }
                Some(ActionTime::After { moment, then: then.unwrap_or(Span::ZERO) })
            }
        }
    }

    pub(super) fn fault_target(
        &mut self,
        item: &At<FaultTargetFile>,
        known: &Known<'_>,
    ) -> Option<(FaultTarget, TargetForm)> {
        let place = &item.span;
        let all = |of| (FaultTarget::Hosts { of, choose: None }, TargetForm::Hosts);
        let who = match &item.value {
            FaultTargetFile::Name(name) => {
                let of_group: Vec<String> =
                    known.hosts.iter().filter(|h| h.group == *name || name == "all").map(|h| h.name.clone()).collect();
                if known.hosts.iter().any(|h| h.name == *name) {
                    return Some(all(Subject::Hosts(vec![name.clone()])));
                } else if !of_group.is_empty() {
                    return Some(all(Subject::Hosts(of_group)));
                }
                match name.as_str() {
                    "bootstrap" => {
                        let cluster = self.the_cluster(None, place, known)?.name.clone();
                        return Some(all(Subject::Role { role: RoleName::Bootstrap, cluster }));
                    }
                    "control-plane" => {
                        let cluster = self.the_cluster(None, place, known)?.name.clone();
                        return Some((FaultTarget::Cluster(cluster), TargetForm::Cluster));
                    }
                    "service" => return Some((FaultTarget::Service, TargetForm::Service)),
                    "postgres" => return Some((FaultTarget::Postgres, TargetForm::Postgres)),
                    "gateway" => return Some((FaultTarget::Gateway, TargetForm::Gateway)),
                    _ => {}
                }
                if known.clusters.iter().any(|c| c.name == *name) {
                    return Some((FaultTarget::Cluster(name.clone()), TargetForm::Cluster));
                }
                let names = known.hosts.iter().map(|h| h.name.as_str()).chain(known.groups.iter().copied());
                let names = names.chain(RESERVED.iter().copied().filter(|n| *n != "none"));
                self.unknown(
                    place,
                    "target of a fault",
                    name,
                    names.chain(known.clusters.iter().map(|c| c.name.as_str())),
                );
                return None;
            }
            FaultTargetFile::Who(who) => who,
        };
        if let Some(between) = &who.between {
            let others = [
                who.host.as_ref().map(|t| &t.span),
                who.hosts.as_ref().map(|t| &t.span),
                who.role.as_ref().map(|t| &t.span),
                who.cluster.as_ref().map(|t| &t.span),
                who.choose.as_ref().map(|t| &t.span),
            ];
            if let Some(other) = others.into_iter().flatten().next() {
                self.refuse(other, "`between` stands alone", "one too many", "remove it");
                return None;
            }
            let [from, to] = between.as_slice() else {
                self.refuse(
                    &between.span,
                    "a way is between two",
                    format!("{} here", between.len()),
                    "write two names of hosts or groups: `between: [master-0, worker]`",
                );
                return None;
            };
            let (from, to) = (self.end_of_link(from, known), self.end_of_link(to, known));
            let (from, to) = (from?, to?);
            if from == to && from.len() == 1 {
                self.refuse(&between.span, "a way is between two", "twice the same host", "name two hosts");
                return None;
            }
            return Some((FaultTarget::Link { from, to }, TargetForm::Link));
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
                Some((FaultTarget::Hosts { of, choose }, TargetForm::Hosts))
            }
            Some(Subject::Cluster(name)) => Some((FaultTarget::Cluster(name), TargetForm::Cluster)),
            Some(Subject::Run) | None => {
                self.refuse(
                    place,
                    "it does not say what is hit",
                    "what?",
                    "add `host`, `hosts`, `role`, `cluster` or `between`",
                );
                None
            }
        }
    }

    pub(super) fn end_of_link(&mut self, text: &Text<Plain>, known: &Known<'_>) -> Option<Vec<String>> {
        let is = |h: &&Host| h.name == text.text || h.group == text.text || text.text == "all";
        let names: Vec<String> = known.hosts.iter().filter(is).map(|h| h.name.clone()).collect();
        if names.is_empty() {
            let known = known.hosts.iter().map(|h| h.name.as_str()).chain(known.groups.iter().copied());
            self.unknown(&text.span, "host or group", &text.text, known.chain(["all"]));
            return None;
        }
        Some(names)
    }

    pub(super) fn fault_parameters(
        &mut self,
        item: &At<FaultFile>,
        row: &'static FaultRow,
        known: &Known<'_>,
    ) -> Option<BTreeMap<&'static str, ParamValue>> {
        let mut good = true;
        for (name, value) in &item.with {
            if !row.params.iter().any(|p| p.name == name) {
                let what = format!("parameter of `{}`", row.kind);
                self.unknown(&value.span, &what, name, row.params.iter().map(|p| p.name));
                if row.params.is_empty() {
                    self.set_help(format!("`{}` takes no parameters", row.kind));
                }
                good = false;
            }
        }
        let mut values = BTreeMap::new();
        for param in row.params {
            let (text, place) = match (item.with.get(param.name), param.default) {
                (Some(given), _) => {
                    let text = match &given.value {
                        serde_json::Value::String(text) => text.clone(),
                        other => other.to_string(),
                    };
                    (text, &given.span)
                }
                // It need not be there at all.
                (None, Some("")) => continue,
                (None, Some(default)) => (default.to_owned(), &item.span),
                (None, None) => {
                    self.refuse(
                        &item.inject.span,
                        format!("`{}` needs `{}`: {}", row.kind, param.name, param.purpose),
                        format!("`{}` is missing", param.name),
                        format!("add `with: {{{}: ..}}`", param.name),
                    );
                    good = false;
                    continue;
                }
            };
            match self.fault_parameter(param, &text, place, known) {
                Some(value) => {
                    values.insert(param.name, value);
                }
                None => good = false,
            }
        }
        good.then_some(values)
    }

    pub(super) fn fault_parameter(
        &mut self,
        param: &ParamRow,
        text: &str,
        place: &Place,
        known: &Known<'_>,
    ) -> Option<ParamValue> {
        let complain = |c: &mut Self, complaint: crate::spanned::Complaint| {
            c.refuse(place, complaint.message, complaint.label, complaint.help);
        };
        match param.form {
            ParamForm::Span => match <Span as Scalar>::read(text) {
                Ok(span) => return Some(ParamValue::Span(span)),
                Err(complaint) => complain(self, complaint),
            },
            ParamForm::Number(min, max) => match text.parse::<u64>() {
                Ok(n) if (min..=max).contains(&n) => return Some(ParamValue::Number(n)),
                _ => self.refuse(
                    place,
                    format!("`{}` is {text}, must be {min} to {max}", param.name),
                    "not such a number",
                    format!("write a whole number from {min} to {max}: {}", param.purpose),
                ),
            },
            ParamForm::Text if text.trim().is_empty() => {
                self.refuse(place, format!("`{}` is empty", param.name), "nothing here", param.purpose);
            }
            ParamForm::Text => return Some(ParamValue::Text(text.to_owned())),
            ParamForm::Words(words) if words.contains(&text) => return Some(ParamValue::Text(text.to_owned())),
            ParamForm::Words(words) => {
                self.unknown(place, &format!("value of `{}`", param.name), text, words.iter().copied());
            }
            ParamForm::Host if known.hosts.iter().any(|h| h.name == text) => {
                return Some(ParamValue::Text(text.to_owned()));
            }
            ParamForm::Host => self.unknown(place, "host", text, known.hosts.iter().map(|h| h.name.as_str())),
            ParamForm::Stage => match <HostStage as Scalar>::read(text) {
                Ok(stage) if OWN_STAGES.contains(&stage) => return Some(ParamValue::Stage(stage)),
                Ok(stage) => {
                    let own: Vec<&str> = OWN_STAGES.iter().map(|s| s.as_str()).collect();
                    self.refuse(
                        place,
                        format!("`{stage}` is not reported by the host itself"),
                        "not this one",
                        format!("name {}", quoted(&own, "or")),
                    );
                }
                Err(complaint) => complain(self, complaint),
            },
            ParamForm::Address => match <IpAddr as Scalar>::read(text) {
                Ok(address) => return Some(ParamValue::Address(address)),
                Err(complaint) => complain(self, complaint),
            },
            ParamForm::Operation if operation_ids().contains(&text) => return Some(ParamValue::Text(text.to_owned())),
            ParamForm::Operation => self.unknown(place, "operation", text, operation_ids()),
            ParamForm::FinalizingStage => match <vlab_api::types::FinalizingStage as Scalar>::read(text) {
                Ok(stage) => return Some(ParamValue::FinalizingStage(stage)),
                Err(complaint) => complain(self, complaint),
            },
        }
        None
    }
}
