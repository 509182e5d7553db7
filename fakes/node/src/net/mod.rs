//! What a machine sees of the network, by real packets: who answers ARP and neighbour solicitations, echo requests with their
//! times, losses and sizes, names, clocks, and web servers. Blocking code with budgets: steps run in threads of their own.

pub mod dns;
pub mod echo;
pub mod http;
pub mod link;
pub mod ntp;
