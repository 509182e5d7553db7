//! What `vlab` and its helper `vlab-libvirt-helper` say to each other: one JSON object a line, requests on the helper's stdin,
//! answers and events on its stdout. The helper is the only program that links libvirt.

use serde::{Deserialize, Serialize};

/// Version of what is said here. Both sides compare it first: they may come from different builds.
pub const PROTOCOL: u32 = 2;

/// A request. Answers carry the same `id` and may come in another order than the requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HelperRequest {
    /// Chosen by `vlab`.
    pub id: u64,
    /// What shall be done.
    pub call: HelperCall,
}

/// What can be done. `domain` is the name of the domain in libvirt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub enum HelperCall {
    /// Defines a transient domain and starts it. Answer: [`HelperAnswer::Started`].
    Create {
        /// The domain as libvirt wants it.
        xml: String,
        /// Its processors stand still until [`HelperCall::Resume`].
        paused: bool,
    },
    /// Power off, at once.
    Destroy {
        /// Name of the domain in libvirt.
        domain: String,
    },
    /// The ACPI power button; the guest may do what it likes with it.
    Shutdown {
        /// Name of the domain in libvirt.
        domain: String,
    },
    /// The reset button.
    Reset {
        /// Name of the domain in libvirt.
        domain: String,
    },
    /// Stops its processors.
    Pause {
        /// Name of the domain in libvirt.
        domain: String,
    },
    /// Lets them go on.
    Resume {
        /// Name of the domain in libvirt.
        domain: String,
    },
    /// Replaces a device by the same one in another state (link down, no medium).
    UpdateDevice {
        /// Name of the domain in libvirt.
        domain: String,
        /// The device.
        xml: String,
        /// Even if the guest has locked it (a CD drive).
        force: bool,
    },
    /// A command of QEMU's own monitor (QMP). Answer: [`HelperAnswer::Monitor`].
    Monitor {
        /// Name of the domain in libvirt.
        domain: String,
        /// `{"execute": ...}`.
        command: serde_json::Value,
    },
    /// What it uses. Answer: [`HelperAnswer::Usage`].
    Usage {
        /// Name of the domain in libvirt.
        domain: String,
    },
    /// The domains that there are. Answer: [`HelperAnswer::Domains`].
    List,
}

/// A line of the helper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HelperLine {
    /// The first one: the connection is open.
    Hello {
        /// [`PROTOCOL`] of the helper.
        protocol: u32,
        /// As libvirt reports it.
        uri: String,
        /// Version of libvirt, for example `9.0.0`.
        libvirt: String,
        /// Version of QEMU as libvirt reports it, for example `7.2.22`.
        qemu: String,
    },
    /// Instead of [`HelperLine::Hello`]: there is no connection.
    Refused {
        /// libvirt's words.
        why: String,
    },
    /// An answer.
    Answer {
        /// Of the request.
        id: u64,
        /// What came of it, or why not.
        result: Result<HelperAnswer, String>,
    },
    /// Something happened to a domain.
    Event {
        /// Unix time in milliseconds at which libvirt told.
        at_ms: u64,
        /// Name of the domain in libvirt.
        domain: String,
        /// What libvirt reported.
        event: DomainEvent,
    },
}

/// What a request came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HelperAnswer {
    /// It is done.
    Nothing,
    /// The domain runs.
    Started {
        /// How long libvirt took to define and start it, in microseconds.
        took_us: u64,
    },
    /// QEMU's answer: its `return`.
    Monitor {
        /// As JSON.
        answer: serde_json::Value,
    },
    /// What a domain uses.
    Usage(DomainUsage),
    /// Names of the domains.
    Domains(Vec<String>),
}

/// What a domain uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainUsage {
    /// Memory that the guest has, in KiB.
    pub memory_kib: u64,
    /// Its processors.
    pub cpus: u32,
    /// Processor time that it has used, in nanoseconds.
    pub cpu_ns: u64,
}

/// [`DomainEvent::IoError`]'s reason when the disk of this computer is full.
pub const NO_SPACE: &str = "enospc";

/// What happens to domains. The words behind are libvirt's reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "did")]
pub enum DomainEvent {
    /// It began to exist.
    Started {
        /// `booted`, ...
        reason: String,
    },
    /// Its processors stand still.
    Suspended {
        /// `paused`, `ioerror`, ...
        reason: String,
    },
    /// They go on.
    Resumed {
        /// `unpaused`, ...
        reason: String,
    },
    /// The guest has switched itself off; QEMU is about to end.
    ShutDown {
        /// `guest`, `host`, ...
        reason: String,
    },
    /// It does not exist any more.
    Stopped {
        /// `shutdown`, `destroyed`, `crashed`, `failed` (QEMU exited unexpectedly or was killed), ...
        reason: String,
    },
    /// The guest itself says that it has crashed.
    Crashed {
        /// `panicked`, ...
        reason: String,
    },
    /// It restarted: the guest or the reset button.
    Rebooted,
    /// A disk reported an error to the guest.
    IoError {
        /// Alias of the disk.
        device: String,
        /// `report`, `pause`, `none`.
        action: String,
        /// [`NO_SPACE`] or nothing.
        reason: String,
    },
    /// Something that this version does not know.
    Other {
        /// libvirt's numbers.
        event: i32,
        /// libvirt's numbers.
        detail: i32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The form is a contract between two programs: it must not change without [`PROTOCOL`].
    #[test]
    fn lines_have_this_form() {
        let request = HelperRequest { id: 7, call: HelperCall::Reset { domain: "a".into() } };
        assert_eq!(serde_json::to_string(&request).unwrap(), r#"{"id":7,"call":{"do":"reset","domain":"a"}}"#);
        let answer = HelperLine::Answer { id: 7, result: Ok(HelperAnswer::Nothing) };
        assert_eq!(serde_json::to_string(&answer).unwrap(), r#"{"answer":{"id":7,"result":{"Ok":"nothing"}}}"#);
        let stopped = DomainEvent::Stopped { reason: "failed".into() };
        let event = HelperLine::Event { at_ms: 1, domain: "a".into(), event: stopped };
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(text, r#"{"event":{"at_ms":1,"domain":"a","event":{"did":"stopped","reason":"failed"}}}"#);
        assert_eq!(serde_json::from_str::<HelperLine>(&text).unwrap(), event);
    }
}
