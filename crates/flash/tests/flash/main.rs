//! Flash devices: one test program, which links once. A module is a subject.

mod common;

mod damage;
mod device;
mod killed;
mod model;
