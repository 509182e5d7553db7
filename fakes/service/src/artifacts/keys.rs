//! Keys and certificates out of a seed.
