# Builds wheels that run on any Linux with glibc 2.17 or later (manylinux2014), for the machine's own architecture:
#   docker build -f docker/build.Dockerfile --output type=local,dest=dist .
FROM rust:1.95-slim-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/maturin && /opt/maturin/bin/pip install --no-cache-dir maturin==1.16.0 ziglang==0.15.1
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    PATH=/opt/maturin/bin:$PATH maturin build --release --zig --compatibility manylinux2014 --out /dist

# Only the wheel, for `--output`.
FROM scratch
COPY --from=build /dist /
