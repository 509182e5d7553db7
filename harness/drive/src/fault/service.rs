//! Faults of the service, of its database, and of the way to it. They are the same whoever the hosts are.

use std::time::Duration;

use vlab_scenario::{RequestSide, Requests, ServiceInjection, Span, WhichReplica};

use super::effect::{Lookup, Program, ServiceFault};
use crate::requests::{RequestFault, Rule, Select, Side};

/// What the fault of that name does.
pub(super) fn effect(injection: &ServiceInjection, name: &str, who: &dyn Lookup) -> Result<ServiceFault, String> {
    let restart = |program: Program, kill: bool, down: &Span, of: WhichReplica| {
        Ok(ServiceFault::Restart { who: program, of, kill, down: who.span(*down) })
    };
    let (requests, wrong) = match injection {
        ServiceInjection::ServiceRestart { down, replica } => return restart(Program::Service, false, down, *replica),
        ServiceInjection::ServiceKill { down, replica } => return restart(Program::Service, true, down, *replica),
        ServiceInjection::ServicePause { replica } => return Ok(ServiceFault::Pause(Program::Service, *replica)),
        ServiceInjection::PostgresRestart { down } => {
            return restart(Program::Postgres, false, down, WhichReplica::All);
        }
        ServiceInjection::PostgresKill { down } => return restart(Program::Postgres, true, down, WhichReplica::All),
        ServiceInjection::PostgresUnreachable => return Ok(ServiceFault::Pause(Program::Postgres, WhichReplica::All)),
        ServiceInjection::PostgresLocked { table } => return Ok(ServiceFault::Lock(*table)),
        ServiceInjection::SlowQueries { ms } => {
            return Ok(ServiceFault::SlowQueries(Duration::from_millis(u64::from(*ms))));
        }
        ServiceInjection::HttpError { status, retry_after, requests } => {
            (requests, RequestFault::Status { status: *status, retry_after: *retry_after })
        }
        ServiceInjection::SlowAnswer { by, requests } => (requests, RequestFault::Late(who.span(*by))),
        ServiceInjection::DroppedConnection { lost, requests } => (requests, RequestFault::Dropped(*lost)),
        ServiceInjection::ResetConnection { lost, requests } => (requests, RequestFault::Reset(*lost)),
        ServiceInjection::StaleKeepAlive { requests } => (requests, RequestFault::StaleKeepAlive),
    };
    Ok(ServiceFault::Requests(Rule {
        fault: name.into(),
        select: select(requests, who)?,
        percent: requests.percent,
        at_most: requests.at_most,
        wrong,
    }))
}

fn select(requests: &Requests, who: &dyn Lookup) -> Result<Select, String> {
    let host = match &requests.host {
        None => None,
        Some(name) => Some(who.id(name).ok_or_else(|| format!("there is no host {}", name.0))?),
    };
    Ok(Select {
        side: match requests.from {
            RequestSide::Hosts => Some(Side::Hosts),
            RequestSide::User => Some(Side::User),
            RequestSide::All => None,
        },
        operation: requests.operation.as_ref().map(|id| id.0.clone()),
        path: requests.path.clone(),
        method: requests.method.map(|method| method.0),
        host,
    })
}
