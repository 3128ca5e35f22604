mod bodies;
mod calls;
mod differential;
mod fixtures;
mod repeat;
mod support;
mod text;
