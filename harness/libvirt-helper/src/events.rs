//! libvirt's domain events. The `virt` crate has no wrapper for them, so this is the one module here with unsafe code.
//!
//! Callbacks are called by the thread that runs [`run_loop`]. They must neither call libvirt's blocking functions nor
//! panic; they copy what they are given and pass it on.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use virt::connect::Connect;
use virt::error::Error;
use virt::event::{event_register_default_impl, event_run_default_impl};
use virt::sys;
use vlab_lab::machines::protocol::DomainEvent;

/// Gets the name of a domain and what happened to it.
pub(crate) type Sink = Box<dyn Fn(String, DomainEvent) + Send + Sync>;

/// libvirt hands an opaque pointer through to the callbacks. One connection per process, so a static does the same without
/// lifetimes.
static SINK: OnceLock<Sink> = OnceLock::new();

/// Makes libvirt's event loop. Must come before the first connection.
pub(crate) fn register_loop() -> Result<(), Error> {
    event_register_default_impl()
}

/// Runs the loop until libvirt gives up.
pub(crate) fn run_loop() -> Error {
    loop {
        if let Err(error) = event_run_default_impl() {
            return error;
        }
    }
}

/// From now on `sink` gets all events of this connection.
pub(crate) fn subscribe(connection: &Connect, sink: Sink) -> Result<(), Error> {
    let _ = SINK.set(sink);
    register(connection, sys::VIR_DOMAIN_EVENT_ID_LIFECYCLE, lifecycle as *const c_void)?;
    register(connection, sys::VIR_DOMAIN_EVENT_ID_REBOOT, rebooted as *const c_void)?;
    register(connection, sys::VIR_DOMAIN_EVENT_ID_IO_ERROR_REASON, io_error as *const c_void)
}

#[expect(
    unsafe_code,
    reason = "libvirt takes callbacks of different forms through one type, and `virt` does not wrap it"
)]
fn register(connection: &Connect, id: impl TryInto<c_int>, callback: *const c_void) -> Result<(), Error> {
    let id = id.try_into().unwrap_or(-1);
    // SAFETY: `callback` is one of the functions below, whose signature is the one that libvirt documents for this `id`;
    // libvirt casts it back before it calls it. The connection is alive, the opaque pointer is not used.
    let registered = unsafe {
        let callback: unsafe extern "C" fn(sys::virConnectPtr, sys::virDomainPtr, *mut c_void) =
            std::mem::transmute(callback);
        sys::virConnectDomainEventRegisterAny(
            connection.as_ptr(),
            std::ptr::null_mut(),
            id,
            Some(callback),
            std::ptr::null_mut(),
            None,
        )
    };
    if registered < 0 { Err(Error::last_error()) } else { Ok(()) }
}

extern "C" fn lifecycle(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    event: c_int,
    detail: c_int,
    _: *mut c_void,
) -> c_int {
    tell(domain, meaning(event, detail));
    0
}

extern "C" fn rebooted(_: sys::virConnectPtr, domain: sys::virDomainPtr, _: *mut c_void) {
    tell(domain, DomainEvent::Rebooted);
}

extern "C" fn io_error(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    _source: *const c_char,
    alias: *const c_char,
    action: c_int,
    reason: *const c_char,
    _: *mut c_void,
) {
    let action = word(&["none", "pause", "report"], action);
    tell(domain, DomainEvent::IoError { device: text(alias), action, reason: text(reason) });
}

fn tell(domain: sys::virDomainPtr, event: DomainEvent) {
    #[expect(unsafe_code, reason = "the domain is only borrowed for this call: no wrapper that would free it")]
    // SAFETY: libvirt gives a valid domain for the time of the callback; the name belongs to it and is copied.
    let name = text(unsafe { sys::virDomainGetName(domain) });
    if let Some(sink) = SINK.get() {
        sink(name, event);
    }
}

fn text(words: *const c_char) -> String {
    if words.is_null() {
        return String::new();
    }
    #[expect(unsafe_code, reason = "a C string of libvirt")]
    // SAFETY: not null, and libvirt's strings end with a zero byte and live as long as the callback.
    unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
}

/// libvirt's numbers (`virDomainEventType` and its details) as words. Pure, and the only place that knows them.
fn meaning(event: c_int, detail: c_int) -> DomainEvent {
    const STARTED: &[&str] = &["booted", "migrated", "restored", "from-snapshot", "wakeup"];
    const SUSPENDED: &[&str] = &[
        "paused",
        "migrated",
        "ioerror",
        "watchdog",
        "restored",
        "from-snapshot",
        "api-error",
        "postcopy",
        "postcopy-failed",
    ];
    const RESUMED: &[&str] = &["unpaused", "migrated", "from-snapshot", "postcopy", "postcopy-failed"];
    const STOPPED: &[&str] = &["shutdown", "destroyed", "crashed", "migrated", "saved", "failed", "from-snapshot"];
    const SHUT_DOWN: &[&str] = &["finished", "guest", "host"];
    const CRASHED: &[&str] = &["panicked", "crashloaded"];
    match event {
        2 => DomainEvent::Started { reason: word(STARTED, detail) },
        3 => DomainEvent::Suspended { reason: word(SUSPENDED, detail) },
        4 => DomainEvent::Resumed { reason: word(RESUMED, detail) },
        5 => DomainEvent::Stopped { reason: word(STOPPED, detail) },
        6 => DomainEvent::ShutDown { reason: word(SHUT_DOWN, detail) },
        8 => DomainEvent::Crashed { reason: word(CRASHED, detail) },
        _ => DomainEvent::Other { event, detail },
    }
}

fn word(words: &[&str], number: c_int) -> String {
    let known = usize::try_from(number).ok().and_then(|number| words.get(number));
    known.map_or_else(|| format!("reason {number}"), |word| (*word).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words stand at the places that libvirt's header gives their numbers.
    #[test]
    fn words_and_numbers_are_those_of_libvirt() {
        let number = |value: u32| c_int::try_from(value).unwrap();
        let is = |event: u32, detail: u32| meaning(number(event), number(detail));
        let failed = is(sys::VIR_DOMAIN_EVENT_STOPPED, sys::VIR_DOMAIN_EVENT_STOPPED_FAILED);
        assert_eq!(failed, DomainEvent::Stopped { reason: "failed".into() });
        let guest = is(sys::VIR_DOMAIN_EVENT_SHUTDOWN, sys::VIR_DOMAIN_EVENT_SHUTDOWN_GUEST);
        assert_eq!(guest, DomainEvent::ShutDown { reason: "guest".into() });
        let ioerror = is(sys::VIR_DOMAIN_EVENT_SUSPENDED, sys::VIR_DOMAIN_EVENT_SUSPENDED_IOERROR);
        assert_eq!(ioerror, DomainEvent::Suspended { reason: "ioerror".into() });
        let resumed = is(sys::VIR_DOMAIN_EVENT_RESUMED, sys::VIR_DOMAIN_EVENT_RESUMED_UNPAUSED);
        assert_eq!(resumed, DomainEvent::Resumed { reason: "unpaused".into() });
        let booted = is(sys::VIR_DOMAIN_EVENT_STARTED, sys::VIR_DOMAIN_EVENT_STARTED_BOOTED);
        assert_eq!(booted, DomainEvent::Started { reason: "booted".into() });
        let panicked = is(sys::VIR_DOMAIN_EVENT_CRASHED, sys::VIR_DOMAIN_EVENT_CRASHED_PANICKED);
        assert_eq!(panicked, DomainEvent::Crashed { reason: "panicked".into() });
        assert_eq!(meaning(99, 1), DomainEvent::Other { event: 99, detail: 1 });
        assert_eq!(word(&["none", "pause", "report"], number(sys::VIR_DOMAIN_EVENT_IO_ERROR_REPORT)), "report");
    }
}
