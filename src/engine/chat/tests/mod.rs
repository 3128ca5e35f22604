mod bodies;
mod calls;
mod support;
mod text;
