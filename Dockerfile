FROM rust:1.95-slim-bookworm AS build
# The slim image brings the C compiler that SQLite, the allocator and the cryptography need.
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY src src
# Targets that the manifest names must exist; they are not built.
COPY tests tests
RUN cargo build --release --locked
# The final image has no shell that could make a directory.
RUN mkdir -p /out/var/lib/tallygate

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/release/tallygate /usr/local/bin/tallygate
COPY --from=build --chown=nonroot:nonroot /out/var/lib/tallygate /var/lib/tallygate
COPY config /etc/tallygate
ENV TALLYGATE_CONFIG=/etc/tallygate/docker.toml
VOLUME /var/lib/tallygate
EXPOSE 8080 8081
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["/usr/local/bin/tallygate", "health"]
ENTRYPOINT ["/usr/local/bin/tallygate"]
CMD ["serve"]
