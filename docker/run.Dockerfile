# A broker in a container, reachable from outside it, not root:
#   docker build -f docker/run.Dockerfile -t stompica .
#   docker run --rm -p 61613:61613 --ulimit nofile=100000 stompica
# Settings are arguments (`stompica max_connections=50000`) or STOMPICA_… variables.
FROM rust:1.95-slim-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 python3-venv gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/maturin && /opt/maturin/bin/pip install --no-cache-dir maturin==1.16.0
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    PATH=/opt/maturin/bin:$PATH maturin build --release --out /dist

FROM python:3.13-slim-bookworm
RUN --mount=type=bind,from=build,source=/dist,target=/dist \
    pip install --no-cache-dir --no-index /dist/*.whl \
    && useradd --system --home-dir /var/lib/stompica --create-home --uid 61613 stompica
USER stompica
WORKDIR /var/lib/stompica
# A container has its own network: with the default, loopback only, nobody could reach the broker.
ENV STOMPICA_HOST=0.0.0.0
EXPOSE 61613
# The check runs inside the container, on loopback.
HEALTHCHECK --interval=10s --timeout=3s --start-period=2s CMD ["python", "-c", \
    "import urllib.request; urllib.request.urlopen('http://127.0.0.1:61613/healthz', timeout=2)"]
# SIGTERM drains (setting `drain`, 5 s), which is within Docker's 10 s.
STOPSIGNAL SIGTERM
ENTRYPOINT ["stompica"]
