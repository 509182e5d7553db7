//! Installations over REST.

use super::RestCall;
use super::answer::RestResult;
use super::clusters::shown;
use crate::commands::install;

/// `POST /v2/clusters/{c}/actions/install`
pub(super) fn install(call: &mut RestCall<'_>) -> RestResult {
    install::install(call.core, call.now, call.ids[0])?;
    shown(call.core, call.ids[0], 202)
}

/// `POST /v2/clusters/{c}/actions/cancel`
pub(super) fn cancel(call: &mut RestCall<'_>) -> RestResult {
    install::cancel(call.core, call.now, call.ids[0])?;
    shown(call.core, call.ids[0], 202)
}

/// `POST /v2/clusters/{c}/actions/reset`
pub(super) fn reset(call: &mut RestCall<'_>) -> RestResult {
    install::reset(call.core, call.now, call.ids[0])?;
    shown(call.core, call.ids[0], 202)
}

/// `POST /v2/clusters/{c}/actions/allow-add-hosts`
pub(super) fn allow_add_hosts(call: &mut RestCall<'_>) -> RestResult {
    install::allow_add_hosts(call.core, call.now, call.ids[0])?;
    shown(call.core, call.ids[0], 202)
}
