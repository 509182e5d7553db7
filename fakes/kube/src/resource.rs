//! Kinds of objects: those that are built in, and those that a CustomResourceDefinition made.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::builtin::kinds;
use crate::failure::{Failure, Subject};
use crate::schema::Schema;

/// A kind of objects in this server; never used again when a definition goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u32);

/// A column of `kubectl get`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Its heading.
    pub name: String,
    /// `string`, `integer`, `date`, …
    pub kind: String,
    /// `name` for the first one.
    pub format: String,
    /// What it means.
    pub description: String,
    /// Above 0: only with `-o wide`.
    pub priority: i64,
    /// Where the value is.
    pub path: String,
}

/// Where the `scale` subresource finds its numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// Path of the wanted number.
    pub wanted: String,
    /// Path of the number that there is.
    pub found: String,
    /// Path of the selector, or empty.
    pub selector: String,
}

/// A version of a kind.
#[derive(Clone, Debug)]
pub struct Version {
    /// `v1beta1`.
    pub name: String,
    /// Can it be asked for?
    pub served: bool,
    /// What its fields are.
    pub schema: Arc<Schema>,
    /// The schema as it was written, as JSON for those who ask for it. Empty for built-in kinds.
    pub published: Arc<str>,
    /// Is the status written by itself?
    pub status: bool,
    /// Has it a `scale` subresource?
    pub scale: Option<Scale>,
    /// The columns of `kubectl get`.
    pub columns: Vec<Column>,
    /// Fields, beside name and namespace, by which can be selected, and where they are.
    pub fields: Vec<(String, String)>,
    /// What is said to those who still use it.
    pub deprecated: Option<String>,
}

/// A kind.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Its number.
    pub id: ResourceId,
    /// The API group; empty for the core.
    pub group: String,
    /// Name in paths.
    pub plural: String,
    /// Name of one.
    pub singular: String,
    /// Name in objects.
    pub kind: String,
    /// Name of a list of it.
    pub list_kind: String,
    /// Short names.
    pub short: Vec<String>,
    /// Categories, `all`.
    pub categories: Vec<String>,
    /// In namespaces?
    pub namespaced: bool,
    /// Made by a definition?
    pub custom: bool,
    /// Only asked, never stored: `TokenReview`.
    pub review: bool,
    /// Further subresources of built-in kinds.
    pub subresources: &'static [&'static str],
    /// The message of a built-in kind.
    pub message: &'static str,
    /// Its versions, the preferred one first.
    pub versions: Vec<Arc<Version>>,
    /// Which of them is stored.
    pub storage: String,
}

impl Resource {
    /// The version of that name, if it is served.
    pub fn version(&self, name: &str) -> Option<&Arc<Version>> {
        self.versions.iter().find(|v| v.name == name && v.served)
    }

    /// The version in which objects are stored.
    pub fn stored(&self) -> &Version {
        self.versions.iter().find(|v| v.name == self.storage).unwrap_or(&self.versions[0])
    }

    /// `group/version`, or the version.
    pub fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    /// An object of it in a message.
    pub fn named<'n>(&'n self, name: &'n str) -> Subject<'n> {
        Subject { group: &self.group, resource: &self.plural, name }
    }

    /// 404.
    pub fn not_found(&self, name: &str) -> Failure {
        Failure::not_found(self.named(name))
    }

    /// 422.
    pub fn invalid(&self, name: &str, causes: Vec<crate::failure::Cause>) -> Failure {
        Failure::invalid(Subject { group: &self.group, resource: &self.kind, name }, causes)
    }

    /// What can be done with it, as discovery says it.
    pub fn verbs(&self) -> &'static [&'static str] {
        if self.review {
            &["create"]
        } else if self.custom {
            &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
        } else {
            &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
        }
    }
}

/// All kinds.
#[derive(Debug)]
pub(crate) struct Registry {
    all: BTreeMap<ResourceId, Arc<Resource>>,
    by_name: BTreeMap<(String, String), ResourceId>,
    next: u32,
    /// Raised with every change; what is made from the registry is kept as long as it is the same.
    pub generation: u64,
}

impl Registry {
    /// The built-in kinds.
    pub(crate) fn builtin() -> Self {
        let mut registry = Self { all: BTreeMap::new(), by_name: BTreeMap::new(), next: 1, generation: 0 };
        for resource in kinds::all() {
            registry.put(resource);
        }
        registry
    }

    /// Adds a kind, or replaces it under its number.
    pub(crate) fn put(&mut self, mut resource: Resource) -> Arc<Resource> {
        let name = (resource.group.clone(), resource.plural.clone());
        let next = &mut self.next;
        resource.id = *self.by_name.entry(name).or_insert_with(|| {
            *next += 1;
            ResourceId(*next)
        });
        let resource = Arc::new(resource);
        self.all.insert(resource.id, Arc::clone(&resource));
        self.generation += 1;
        resource
    }

    /// Takes a kind away.
    pub(crate) fn remove(&mut self, group: &str, plural: &str) {
        if let Some(id) = self.by_name.remove(&(group.to_owned(), plural.to_owned())) {
            self.all.remove(&id);
            self.generation += 1;
        }
    }

    /// The kind with that name in paths.
    pub(crate) fn find(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.all.get(self.by_name.get(&(group.to_owned(), plural.to_owned()))?)
    }

    /// What is said where a group has no such kind: Kubernetes' own groups answer with an object, where there is no group, or one of
    /// definitions, nobody knows the path.
    pub(crate) fn none_at(&self, group: &str) -> Failure {
        let own = self.all().any(|kind| kind.group == group && !kind.custom);
        if own { Failure::no_such_path() } else { Failure::no_such_page() }
    }

    /// The kind with that number.
    pub(crate) fn get(&self, id: ResourceId) -> Option<&Arc<Resource>> {
        self.all.get(&id)
    }

    /// The kind with that name in objects.
    pub(crate) fn by_kind(&self, group: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.all.values().find(|r| r.group == group && r.kind == kind)
    }

    /// All kinds by group and plural.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_name.values().filter_map(|id| self.all.get(id))
    }
}
