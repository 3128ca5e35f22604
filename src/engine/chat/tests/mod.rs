mod bodies;
mod calls;
mod fixtures;
mod support;
mod text;
