//! What the user does, and when.

use vlab_api::types::HostRole;

use super::subject::Who;
use super::{Checker, Known};
use crate::file::ActionFile;
use crate::spanned::At;
use crate::time::Span;
use crate::types::{Action, ActionTime, Subject};
use crate::words::ActionKind;

/// Is it done to hosts, and not to a cluster?
fn is_on_hosts(kind: ActionKind) -> bool {
    matches!(
        kind,
        ActionKind::PatchHost
            | ActionKind::DeleteHost
            | ActionKind::Bind
            | ActionKind::Unbind
            | ActionKind::InstallHost
            | ActionKind::BootDiscovery
    )
}

impl Checker<'_> {
    pub(super) fn action(&mut self, item: &At<ActionFile>, known: &Known<'_>) -> Option<Action> {
        let kind = self.read(&item.act);
        let when = self.action_time(item, known);
        let kind = kind?;
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
        if is_on_hosts(kind) {
            let who = Who { host: &item.host, hosts: &item.hosts, role: &None, cluster: &None };
            if let Some(Subject::Hosts(names)) = self.subject(who, known)? {
                return Some(names);
            }
            self.refuse(&item.act.span, format!("`{kind}` needs hosts"), "which hosts?", "add `host` or `hosts`");
        } else if let Some(text) = item.host.as_ref().or(item.hosts.as_ref()) {
            self.refuse(&text.span, format!("`{kind}` is for a cluster, not for hosts"), "not used here", "remove it");
        }
        Some(vec![])
    }

    /// The inner `None`: it is not done to a cluster.
    fn action_cluster(&mut self, item: &At<ActionFile>, kind: ActionKind, known: &Known<'_>) -> Option<Option<String>> {
        if !is_on_hosts(kind) || kind == ActionKind::Bind {
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
