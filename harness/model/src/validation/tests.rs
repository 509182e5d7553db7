//! Tables, laws, and a replay of what the real service said.

mod replay;
mod rules;
