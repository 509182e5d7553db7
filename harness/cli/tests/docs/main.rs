//! The documentation is true: links lead somewhere, commands run and print what is shown, scenarios are valid, and ARCHITECTURE.md
//! describes the crates and files that exist.
//!
//! A page says what its blocks need in comments that do not show, each on a line of its own before the block:
//!
//! | comment | meaning |
//! | --- | --- |
//! | `<!-- not run: REASON -->` | the commands need something that CI lacks; their verbs and options must still exist |
//! | `<!-- run in: PAGE -->` | the same commands, with the same output, are run in that page |
//! | `<!-- exit: CODE -->` | the commands end with this code instead of 0 |
//! | `<!-- before: COMMAND -->` | is run before the block, to make what it needs |
//! | `<!-- file: NAME -->` | the block is written to this file, for the commands that follow |
//! | `<!-- in: SCENARIO -->` | the YAML replaces these keys of this scenario of the catalogue; `sno` without it |
//! | `<!-- not checked: REASON -->` | the YAML cannot be validated here |

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod architecture;
mod commands;
mod examples;
mod links;
mod markdown;
mod pipelines;
mod place;
mod scenarios;
mod supply;
mod tables;
