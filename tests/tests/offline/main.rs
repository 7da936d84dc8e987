//! What runs on every machine: the decoder, the library and the programs on samples, on generated traces and on damaged ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod account;
mod bombs;
mod chart;
mod contract;
mod damage;
mod decoder;
mod documents;
mod encoded;
mod escapes;
mod follow;
mod ftrace_text;
mod graph_text;
mod headings;
mod index;
mod latency;
mod memory;
mod moment;
mod names;
mod other_programs;
mod outside;
mod pack;
mod page_owner;
mod payloads;
mod readers;
mod recorded_facts;
mod recorded_texts;
mod relay;
mod samples;
mod samples_of_others;
mod stack_text;
mod suggestions;
mod supply;
mod symbols;
mod trace_analyze;
mod trace_dat;
mod tracer_stream;
mod tree;
mod trouble;
mod unplaced;
mod widths;
mod witnesses;
mod words;
