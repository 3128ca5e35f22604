mod bodies;
mod calls;
mod differential;
mod fixtures;
mod support;
mod text;
