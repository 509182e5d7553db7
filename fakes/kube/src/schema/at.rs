//! Where in a value one is.

use std::fmt;

/// A place in a value: steps from a beginning. It becomes a text only where something is wrong, which is seldom.
#[derive(Clone, Copy, Debug)]
pub(crate) enum At<'p> {
    /// The beginning; empty for a whole object.
    Root(&'p str),
    /// A member of what is there.
    Member(&'p At<'p>, &'p str),
    /// An item of the list that is there.
    Item(&'p At<'p>, usize),
}

/// `spec.ports[0].port`
impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Root(text) => f.write_str(text),
            At::Member(At::Root(""), name) => f.write_str(name),
            At::Member(of, name) => write!(f, "{of}.{name}"),
            At::Item(of, at) => write!(f, "{of}[{at}]"),
        }
    }
}

impl From<At<'_>> for String {
    fn from(at: At<'_>) -> Self {
        at.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_written_as_people_know_it() {
        let root = At::Root("");
        let spec = At::Member(&root, "spec");
        let ports = At::Member(&spec, "ports");
        let first = At::Item(&ports, 0);
        assert_eq!(At::Member(&first, "port").to_string(), "spec.ports[0].port");
        assert_eq!(root.to_string(), "");
        assert_eq!(At::Item(&At::Root("x"), 2).to_string(), "x[2]");
    }
}
