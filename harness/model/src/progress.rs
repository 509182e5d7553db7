//! Percentages of hosts and clusters.
