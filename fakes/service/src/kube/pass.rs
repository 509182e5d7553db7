//! A look at one resource: what a pass can read, and how it ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request, Response};

use super::altered::{Beside, WrongController, WrongFinalizer};
use super::client::{Client, Kind};
use super::object::{BACKUP_LABEL, WATCH_LABEL, alike, bare, filled, key_of, label, namespace, time, without};
use super::{Command, DoorConfig, Index, Item};
use crate::Core;
use crate::refusal::{Reason, Refusal};

/// Why a pass ends before nothing is missing.
#[derive(Debug)]
pub(super) enum Stop {
    /// That is to be written; then the resource is looked at again.
    Write(Request),
    /// That is to be asked of a cluster's own API server; then the resource is looked at again.
    Ask(String, Request),
    /// Something that it needs is not there yet, and nobody will tell.
    Later(Duration),
    /// The same, and a setting says until when it waits.
    Until(Timestamp),
    /// It cannot go on; it is tried again, later and later.
    Failed,
}

/// Something that is wrong with what a resource asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// Who wrote it must change it.
    Input(String),
    /// It is the service's; it is tried again.
    Backend(String),
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal.reason {
            Reason::Internal | Reason::NotBuilt => Self::Backend(refusal.text),
            _ => Self::Input(refusal.text),
        }
    }
}

/// What a step of a pass can end with.
#[derive(Debug)]
pub(super) enum Halt {
    Stop(Stop),
    Problem(Problem),
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<Problem> for Halt {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<Refusal> for Halt {
    fn from(refusal: Refusal) -> Self {
        Self::Problem(refusal.into())
    }
}

/// Takes problems out of a step's end: they are told, and the pass goes on.
pub(super) fn told<T>(outcome: Result<T, Halt>) -> Result<Result<T, Problem>, Stop> {
    match outcome {
        Ok(value) => Ok(Ok(value)),
        Err(Halt::Problem(problem)) => Ok(Err(problem)),
        Err(Halt::Stop(stop)) => Err(stop),
    }
}

/// What API servers of clusters have answered since the resource began to be looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    /// By server, method and path; `Err`: there was no answer, and why.
    pub(super) all: BTreeMap<(String, &'static str, String), Result<Response, String>>,
    /// When the first of them came.
    pub(super) since: Option<Timestamp>,
}

/// What a pass has to do with.
pub(super) struct Pass<'a> {
    /// What is wrong on purpose.
    pub(super) wrong: Option<WrongController>,
    /// Do service and metal3 share hosts?
    pub(super) converged: bool,
    pub(super) core: &'a mut Core,
    pub(super) client: &'a Client,
    pub(super) index: &'a mut Index,
    pub(super) config: &'a DoorConfig,
    pub(super) now: Timestamp,
    /// What is to be looked at besides.
    pub(super) wanted: &'a mut Vec<Item>,
    /// What the service was told to do.
    pub(super) commands: &'a mut Vec<(Command, Uuid)>,
    /// What API servers of clusters have answered.
    pub(super) answers: &'a Answers,
}

impl Pass<'_> {
    pub(super) fn get(&self, kind: Kind, key: &str) -> Option<Arc<Value>> {
        self.client.get(kind, key).map(|object| self.seen(kind, object))
    }

    /// A resource as it is seen.
    pub(super) fn seen(&self, kind: Kind, object: &Arc<Value>) -> Arc<Value> {
        self.wrong.map_or_else(|| object.clone(), |wrong| wrong.seen(kind, object, &self.index.memory))
    }

    /// Is that wrong on purpose?
    pub(super) fn is_wrong(&self, beside: Beside) -> bool {
        self.wrong == Some(WrongController::Beside(beside))
    }

    /// What the API server of a cluster answers; `Err` of the inner result: nothing, and why. Each question is asked once while the
    /// resource is looked at.
    pub(super) fn asked(&self, server: &str, request: Request) -> Result<&Result<Response, String>, Stop> {
        let key = (server.to_owned(), request.method.as_str(), request.path.clone());
        self.answers.all.get(&key).ok_or_else(|| Stop::Ask(server.to_owned(), request))
    }

    /// Gives a command; one that was carried out is told.
    pub(super) fn give(
        &mut self,
        command: Command,
        subject: Uuid,
        how: impl FnOnce(&mut Core, Timestamp) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        if self.wrong == Some(WrongController::NotGiven(command)) {
            return Ok(());
        }
        how(self.core, self.now)?;
        self.commands.push((command, subject));
        Ok(())
    }

    pub(super) fn cluster(&self, key: &str) -> Option<Uuid> {
        let id = *self.index.clusters.get(key)?;
        self.core.state.cluster(id).map(|_| id)
    }

    pub(super) fn infra_env(&self, key: &str) -> Option<Uuid> {
        let id = *self.index.infra_envs.get(key)?;
        self.core.state.infra_env(id).map(|_| id)
    }

    /// Holds the resource until its finalizer's work is done.
    pub(super) fn finalizer(&self, object: &Value, finalizer: &str) -> Result<(), Stop> {
        let all = &object["metadata"]["finalizers"];
        let not_set = |kind| self.wrong == Some(WrongController::Finalizer(kind, WrongFinalizer::NotSet));
        if all.as_array().into_iter().flatten().any(|f| f == finalizer) || Kind::of_object(object).is_some_and(not_set)
        {
            return Ok(());
        }
        let mut changed = object.clone();
        let mut finalizers = all.as_array().cloned().unwrap_or_default();
        finalizers.push(json!(finalizer));
        changed["metadata"]["finalizers"] = Value::Array(finalizers);
        Err(put(changed))
    }

    /// Does its finalizer stay on purpose?
    pub(super) fn keeps_finalizer(&self, object: &Value) -> bool {
        let stays = |kind| self.wrong == Some(WrongController::Finalizer(kind, WrongFinalizer::Stays));
        Kind::of_object(object).is_some_and(stays)
    }

    /// Its work is done.
    pub(super) fn drop_finalizer(&self, object: &Value, finalizer: &str) -> Result<(), Stop> {
        let all = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let left: Vec<Value> = all.iter().filter(|f| *f != finalizer).cloned().collect();
        if left.len() == all.len() || self.keeps_finalizer(object) {
            return Ok(());
        }
        let mut changed = object.clone();
        changed["metadata"]["finalizers"] = Value::Array(left);
        Err(put(changed))
    }

    /// What stands in a Secret under that name, in base64; the Secret is marked as used. That it is not there, or has no such member, is
    /// a trouble of the service's, with these words: it may come yet.
    pub(super) fn of_secret(&self, key: &str, member: &str, missing: String, without: String) -> Result<String, Halt> {
        let secret = self.get(Kind::Secret, key).ok_or(Problem::Backend(missing))?;
        self.mark_as_used(&secret)?;
        Ok(filled(&secret["data"][member]).ok_or(Problem::Backend(without))?)
    }

    /// Marks a Secret or ConfigMap as one that the service uses: two writes, as the real service does it.
    pub(super) fn mark_as_used(&self, object: &Value) -> Result<(), Stop> {
        for name in [BACKUP_LABEL, WATCH_LABEL] {
            if label(object, name) != "true" {
                let mut changed = object.clone();
                changed["metadata"]["labels"][name] = json!("true");
                return Err(put(changed));
            }
        }
        Ok(())
    }

    /// Writes the status, if it is another one.
    pub(super) fn status(&self, object: &Value, mut status: Value) -> Result<(), Stop> {
        if let (Some(wrong), Some(kind)) = (self.wrong, Kind::of_object(object)) {
            status = wrong.status(kind, object, status, &self.index.memory);
            if let WrongController::Beside(beside) = wrong {
                self.spoil(beside, kind, object, &mut status);
            }
        }
        if alike(&object["status"], &status) {
            return Ok(());
        }
        bare(&mut status);
        let mut changed = without(object, &["status"]);
        changed["status"] = status;
        let path = format!("{}/status", path(&changed));
        Err(Stop::Write(Request::new(Method::Put, path).object(changed)))
    }

    /// Makes a status wrong on purpose.
    fn spoil(&self, beside: Beside, kind: Kind, object: &Value, status: &mut Value) {
        let Some(condition) = status["conditions"].as_array_mut().and_then(|all| all.first_mut()) else { return };
        match beside {
            Beside::SecretTold if kind == Kind::AgentClusterInstall => {
                let mut secrets = self.client.all_in(Kind::Secret, namespace(object));
                let told =
                    secrets.find_map(|(_, secret)| secret["data"][".dockerconfigjson"].as_str().map(str::to_owned));
                condition["message"] = json!(told);
            }
            // Another time than that which is there, whenever it is looked at.
            Beside::WrittenAgain if kind == Kind::Agent => {
                let is = &object["status"]["conditions"][0]["lastProbeTime"];
                let now = time(self.now);
                condition["lastProbeTime"] = if *is == now { time(self.now + Duration::from_secs(1)) } else { now };
            }
            _ => {}
        }
    }
}

fn path(object: &Value) -> String {
    Kind::of(object["kind"].as_str().unwrap_or_default()).map(|kind| kind.path_of(&key_of(object))).unwrap_or_default()
}

/// Writes a resource over the one that is there.
pub(super) fn put(object: Value) -> Stop {
    Stop::Write(Request::new(Method::Put, path(&object)).object(object))
}

/// Makes a resource.
pub(super) fn post(kind: Kind, namespace: &str, object: Value) -> Stop {
    Stop::Write(Request::new(Method::Post, kind.path_in(namespace)).object(object))
}

/// Changes members of a resource.
pub(super) fn merge(object: &Value, subresource: &str, patch: &Value) -> Stop {
    let mut request = Request::new(Method::Patch, format!("{}{subresource}", path(object)));
    request.body = patch.to_string().into_bytes().into();
    Stop::Write(request.header("content-type", "application/merge-patch+json"))
}

/// Deletes a resource.
pub(super) fn delete(object: &Value) -> Stop {
    Stop::Write(Request::new(Method::Delete, path(object)))
}
